# What every target of the project is compiled with, and the one way to declare tests and fuzzers.

# C++20, warnings, no contraction (the contract allows fused operations only where they are written), sanitizers.
function(seriatim_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX,C>:-Wall -Wextra -Wpedantic -Wshadow>
    $<$<COMPILE_LANGUAGE:CXX>:-Wconversion -Wsign-conversion>
    -ffp-contract=off -fno-fast-math)
  if(SERIATIM_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(SERIATIM_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SERIATIM_SANITIZE} -fno-omit-frame-pointer
      $<$<CONFIG:Release>:-O1 -g1> -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${SERIATIM_SANITIZE})
  endif()
  if(SERIATIM_FUZZ)  # a fuzzer steers by what it reached in the library, not only in its own file
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(${target} PUBLIC -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# seriatim_test(select_test select_test.cc [more.cc ...]): one GoogleTest binary that may include private headers.
function(seriatim_test name)
  if(NOT SERIATIM_TESTS)
    return()
  endif()
  add_executable(${name} ${ARGN})
  seriatim_options(${name})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # the library is what must be fast
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE seriatim::seriatim GTest::gtest_main seriatim_fmt
    nlohmann_json::nlohmann_json Threads::Threads)
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
endfunction()

# seriatim_fuzzer(npy_fuzz npy_fuzz.cc): one libFuzzer binary, built only with -DSERIATIM_FUZZ=ON under clang. All lie
# in fuzz/ of the build folder, where scripts/fuzz finds them; the seeds of NAME_fuzz are tests/corpus/NAME.
function(seriatim_fuzzer name)
  if(NOT SERIATIM_FUZZ)
    return()
  endif()
  add_executable(${name} ${ARGN})
  seriatim_options(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE seriatim::seriatim)
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
endfunction()
