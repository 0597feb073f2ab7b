# One line a room at the place of use: the sources are whatever lies in the folder.
include(GoogleTest)

# tiercel_room(NAME [ROOMS other…] [PRIVATE libraries…]): static library tiercel_NAME from src/NAME.
function(tiercel_room name)
  cmake_parse_arguments(ROOM "" "" "ROOMS;PRIVATE;SOURCES" ${ARGN})
  if(NOT ROOM_SOURCES)
    file(GLOB_RECURSE ROOM_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
    list(FILTER ROOM_SOURCES EXCLUDE REGEX "/main\\.cc$|/cuda/")
  endif()
  if(NOT ROOM_SOURCES)
    add_library(tiercel_${name} INTERFACE)
    foreach(room IN LISTS ROOM_ROOMS)
      target_link_libraries(tiercel_${name} INTERFACE tiercel_${room})
    endforeach()
    return()
  endif()
  add_library(tiercel_${name} STATIC ${ROOM_SOURCES})
  tiercel_compile_options(tiercel_${name})
  target_include_directories(tiercel_${name} PUBLIC ${CMAKE_SOURCE_DIR}/include
    ${CMAKE_SOURCE_DIR}/src)
  foreach(room IN LISTS ROOM_ROOMS)
    target_link_libraries(tiercel_${name} PUBLIC tiercel_${room})
  endforeach()
  target_link_libraries(tiercel_${name} PUBLIC tl::expected PRIVATE ${ROOM_PRIVATE})
  set_property(GLOBAL PROPERTY tiercel_private_${name} ${ROOM_PRIVATE})
endfunction()

# What all test programs share: paths of the checkout, and headers of gtest compiled once. Tests are
# compiled without optimization, whatever the preset says of the code under test: what gtest expands
# to costs the optimizer, above all with sanitizers, more than everything else together.
set(tiercel_test_flags -O0)
# What is undefined is looked for in the code under test; looking in the tests as well would double
# the time that they take to compile.
if("undefined" IN_LIST TIERCEL_SANITIZE)
  list(APPEND tiercel_test_flags -fno-sanitize=undefined)
endif()
function(tiercel_test_support)
  add_library(tiercel_test_support STATIC ${CMAKE_SOURCE_DIR}/tests/support/paths.cc)
  tiercel_compile_options(tiercel_test_support)
  target_compile_options(tiercel_test_support PRIVATE ${tiercel_test_flags})
  target_include_directories(tiercel_test_support PUBLIC ${CMAKE_SOURCE_DIR}/tests)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/support/paths.cc PROPERTIES
    COMPILE_DEFINITIONS
    "TIERCEL_SOURCE_DIR=\"${CMAKE_SOURCE_DIR}\";TIERCEL_BINARY_DIR=\"${CMAKE_BINARY_DIR}\"")
  target_link_libraries(tiercel_test_support PUBLIC GTest::gtest)
  # Libraries and programs differ in this by default, and then could not share the headers.
  set_property(TARGET tiercel_test_support PROPERTY POSITION_INDEPENDENT_CODE OFF)
  target_precompile_headers(tiercel_test_support PRIVATE <gtest/gtest.h> <algorithm> <chrono>
    <memory> <string> <vector>)
endfunction()

# tiercel_tests(NAME [LABEL label] [TOGETHER suffix… LIBRARIES] libraries…): one test program from
# tests/NAME/*_test.cc. Each test is a process of its own, but all cases of a suite whose name ends
# in /suffix are one: what they need takes longer to start than they take.
function(tiercel_tests name)
  cmake_parse_arguments(TESTS "" "LABEL;TIMEOUT" "TOGETHER;LIBRARIES" ${ARGN})
  if(NOT TESTS_LABEL)
    set(TESTS_LABEL unit)
  endif()
  if(NOT TESTS_TIMEOUT)
    set(TESTS_TIMEOUT 120)
  endif()
  # What takes seconds takes a minute with sanitizers on a busy machine: that is no hang.
  if(TIERCEL_SANITIZE)
    math(EXPR TESTS_TIMEOUT "3 * ${TESTS_TIMEOUT}")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" target tiercel_${name}_tests)
  add_executable(${target} ${sources})
  tiercel_compile_options(${target})
  target_compile_options(${target} PRIVATE ${tiercel_test_flags})
  target_link_libraries(${target} PRIVATE ${TESTS_UNPARSED_ARGUMENTS} ${TESTS_LIBRARIES}
    tiercel_test_support GTest::gtest_main)
  set_property(TARGET ${target} PROPERTY POSITION_INDEPENDENT_CODE OFF)
  target_precompile_headers(${target} REUSE_FROM tiercel_test_support)
  set(apart "")
  foreach(suffix ${TESTS_TOGETHER})
    string(APPEND apart ":*/${suffix}")
    add_test(NAME ${name}/together/${suffix} COMMAND ${target} --gtest_filter=*/${suffix})
    set_tests_properties(${name}/together/${suffix} PROPERTIES
      LABELS ${TESTS_LABEL} TIMEOUT 300)
  endforeach()
  if(apart)
    string(SUBSTRING "${apart}" 1 -1 apart)
    set(apart TEST_FILTER "-${apart}")
  endif()
  gtest_discover_tests(${target} TEST_PREFIX "${name}/" DISCOVERY_MODE PRE_TEST ${apart}
    PROPERTIES LABELS ${TESTS_LABEL} TIMEOUT ${TESTS_TIMEOUT})
endfunction()
