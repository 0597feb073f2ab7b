# The CUDA copier (src/transfer/cuda), a library of its own: libtiercel itself needs no CUDA. Built
# with -DTIERCEL_CUDA=ON where there is an nvcc; its tests run where there is a GPU and say so where
# there is none.
if(NOT TIERCEL_CUDA)
  message(STATUS "the CUDA copier is left out: TIERCEL_CUDA is OFF")
  return()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "the CUDA copier is left out: TIERCEL_CUDA is ON, but no nvcc was found")
  return()
endif()
enable_language(CUDA)
find_package(CUDAToolkit 12.0 REQUIRED)

# C++17: CMake 3.25 knows no flag for more with CUDA 13.
add_library(tiercel_cuda_kernel OBJECT src/transfer/cuda/copy_kernel.cu)
set_target_properties(tiercel_cuda_kernel PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON)
target_compile_options(tiercel_cuda_kernel PRIVATE -O2 -Werror=all-warnings
  -Xcompiler=-Wall,-Wextra,-Werror)
target_include_directories(tiercel_cuda_kernel PRIVATE ${CMAKE_SOURCE_DIR}/src
  ${CMAKE_SOURCE_DIR}/include)

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/transfer/cuda/*.cc)
add_library(tiercel_cuda STATIC ${sources} $<TARGET_OBJECTS:tiercel_cuda_kernel>)
tiercel_compile_options(tiercel_cuda)
target_link_libraries(tiercel_cuda PUBLIC tiercel_transfer CUDA::cudart_static)
