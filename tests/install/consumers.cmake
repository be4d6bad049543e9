# Builds and runs the consumers against a tree that something was installed in; included by tests' scripts, which define
# SOURCE (tests/install), SCRATCH, CC, CXX, GENERATOR and LIBDIR.
function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " words)
    message(FATAL_ERROR "failed (${code}): ${words}")
  endif()
endfunction()

# build_by_cmake(c|cpp PREFIX [OPTION...]), in an empty folder
function(build_by_cmake language prefix)
  file(REMOVE_RECURSE ${SCRATCH}/consumer_${language})
  must(${CMAKE_COMMAND} -S ${SOURCE}/${language} -B ${SCRATCH}/consumer_${language} -G ${GENERATOR}
    -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX} -Wno-unused-cli ${ARGN})
  must(${CMAKE_COMMAND} --build ${SCRATCH}/consumer_${language})
  must(${SCRATCH}/consumer_${language}/consumer)
endfunction()

# flags_of(VARIABLE PREFIX PACKAGE)
function(flags_of variable prefix package)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${prefix}/${LIBDIR}/pkgconfig pkg-config --cflags
    --libs ${package}
    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  set(${variable} ${flags} PARENT_SCOPE)
endfunction()

function(build_by_pkg_config prefix)
  flags_of(c_flags ${prefix} seriatim)
  must(${CC} -std=c99 -pedantic-errors -Wall -Wextra -Werror ${SOURCE}/c/consumer.c ${c_flags}
    -o ${SCRATCH}/consumer_pc_c)
  must(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${prefix}/${LIBDIR} ${SCRATCH}/consumer_pc_c)
  flags_of(cpp_flags ${prefix} seriatim-cpp)
  must(${CXX} -std=c++20 -Wall -Wextra -Werror ${SOURCE}/cpp/consumer.cc ${cpp_flags} -o ${SCRATCH}/consumer_pc_cpp)
  must(${SCRATCH}/consumer_pc_cpp)
endfunction()

function(run_tool prefix)
  must(${prefix}/bin/seriatim --version)
  must(${prefix}/bin/seriatim --help)
  file(GLOB_RECURSE texts RELATIVE ${prefix} ${prefix}/share/*seriatim*)
  set(expected share/bash-completion/completions/seriatim share/fish/vendor_completions.d/seriatim.fish
    share/man/man1/seriatim.1 share/zsh/vendor-completions/_seriatim)
  list(SORT texts)
  if(NOT texts STREQUAL expected)
    message(FATAL_ERROR "beside the tool were installed: ${texts}")
  endif()
endfunction()
