# Warnings are errors in every preset; sanitizers apply to all targets of the tree.
function(tiercel_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    -Wnon-virtual-dtor -Wold-style-cast -Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # libstdc++ 12 uses what it has deprecated itself, in std::stable_sort.
    target_compile_options(${target} PRIVATE -Wthread-safety -Wno-deprecated-declarations)
  endif()
endfunction()

if(TIERCEL_SANITIZE)
  string(REPLACE ";" "," tiercel_sanitizers "${TIERCEL_SANITIZE}")
  add_compile_options(-fsanitize=${tiercel_sanitizers} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  # Tests that replace malloc or pthread functions stand aside for the sanitizers' own replacements.
  add_compile_definitions(TIERCEL_SANITIZED)
  # g++ 12 sees uninitialised members of tl::expected where its sanitizers have moved code.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  add_link_options(-fsanitize=${tiercel_sanitizers})
endif()

# The library tells the fuzzer which way an input took; only the targets link the fuzzer itself.
if(TIERCEL_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
