# cmake -DBUILD=... -DSCRATCH=... -DCXX=... -DSOURCE=... -P run.cmake: installs the build into a prefix of its own, moves
# the prefix away (a package must not remember where it was installed), and builds and runs the consumer against it.
function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " words)
    message(FATAL_ERROR "failed (${code}): ${words}")
  endif()
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
file(MAKE_DIRECTORY ${SCRATCH})
must(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/installed)
file(RENAME ${SCRATCH}/installed ${SCRATCH}/prefix)
must(${CMAKE_COMMAND} -S ${SOURCE} -B ${SCRATCH}/consumer -G ${GENERATOR}
  -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix -DCMAKE_CXX_COMPILER=${CXX})
must(${CMAKE_COMMAND} --build ${SCRATCH}/consumer)
must(${SCRATCH}/consumer/consumer)

file(GLOB tool ${SCRATCH}/prefix/bin/seriatim)
if(EXPECT_CLI AND NOT tool)
  message(FATAL_ERROR "the command-line tool was not installed")
elseif(tool)
  must(${tool} --help)
endif()
