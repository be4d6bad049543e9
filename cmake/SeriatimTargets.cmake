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
  if(SERIATIM_FUZZ)
    target_link_options(${target} PUBLIC -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# What fuzzers run: libFuzzer steers by what an input reached in it. The tests in the same build do without.
function(seriatim_reached_by_fuzzers target)
  if(SERIATIM_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# seriatim_test(select_test select_test.cc [more.cc ...] [LABELS label...] [SLOW Suite.Test...]): one GoogleTest program
# that may include private headers, and one test of ctest, which carries the labels. SLOW names, as gtest's filter does,
# what takes a second or more: a test of ctest's own, select_test.slow, with the label `slow`.
function(seriatim_test name)
  if(NOT SERIATIM_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 test "" "" "LABELS;SLOW")
  add_executable(${name} ${test_UNPARSED_ARGUMENTS})
  seriatim_options(${name})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # the library is what must be fast
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE seriatim::seriatim GTest::gtest_main seriatim_fmt
    nlohmann_json::nlohmann_json Threads::Threads)
  if(test_SLOW)
    list(JOIN test_SLOW ":" slow)
    add_test(NAME ${name} COMMAND ${name} --gtest_filter=-${slow})
    add_test(NAME ${name}.slow COMMAND ${name} --gtest_filter=${slow})
    seriatim_slow(${name}.slow)
    set_property(TEST ${name}.slow APPEND PROPERTY LABELS ${test_LABELS})
    set_property(TEST ${name}.slow PROPERTY FAIL_REGULAR_EXPRESSION "Running 0 tests")  # a name that is no more
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS "${test_LABELS}")
endfunction()

# seriatim_slow(TESTS...): they start before the others, so as not to run last and alone. `ctest -LE slow` leaves them
# out.
function(seriatim_slow)
  set_tests_properties(${ARGN} PROPERTIES COST 100 TIMEOUT 900)
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS slow)
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
