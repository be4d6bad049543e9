# cmake -DBUILD=... -DSCRATCH=... -DCC=... -DCXX=... -DSOURCE=... -P run.cmake: installs the build into a prefix of its
# own, moves the prefix away (a package must not remember where it was installed) to a name with a space, and builds
# and runs consumers in C and C++ against it, by CMake and by pkg-config.
include(${CMAKE_CURRENT_LIST_DIR}/consumers.cmake)

file(REMOVE_RECURSE ${SCRATCH})
file(MAKE_DIRECTORY ${SCRATCH})
must(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/installed)
file(RENAME ${SCRATCH}/installed "${SCRATCH}/a prefix")

build_by_cmake(cpp "${SCRATCH}/a prefix")
# Not in a sanitized build: the runtimes come with C++'s link options, which a project in C or pkg-config does not see.
if(EXPECT_C AND NOT SANITIZE)
  build_by_cmake(c "${SCRATCH}/a prefix")
  build_by_cmake(c "${SCRATCH}/a prefix" -DMAYBE_CPP=ON -DCMAKE_DISABLE_FIND_PACKAGE_TBB=ON)
  build_by_pkg_config("${SCRATCH}/a prefix")
endif()

if(EXPECT_CLI)
  run_tool("${SCRATCH}/a prefix")
endif()
