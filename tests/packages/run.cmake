# Makes the Debian packages, compares what is in them with what should be, lays them out in a root of their own as dpkg
# would, and builds and runs there what a user would.
include(${SOURCE}/consumers.cmake)

function(must_be what found expected)
  if(NOT found STREQUAL expected)
    list(JOIN found "\n  " found)
    list(JOIN expected "\n  " expected)
    message(FATAL_ERROR "${what}:\n  ${found}\nwhere this is expected:\n  ${expected}")
  endif()
endfunction()

# control_field(VARIABLE PACKAGE FIELD)
function(control_field variable package field)
  execute_process(COMMAND dpkg-deb -f ${package} ${field} OUTPUT_VARIABLE value OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  set(${variable} "${value}" PARENT_SCOPE)
endfunction()

# check_depends(PACKAGE REGEXES...)
function(check_depends package)
  control_field(depends ${package} Depends)
  foreach(wanted IN LISTS ARGN)
    if(NOT ", ${depends}," MATCHES ", ${wanted}[ ,]")
      message(FATAL_ERROR "${package} depends on '${depends}', not on ${wanted}")
    endif()
  endforeach()
endfunction()

# check_files(PACKAGE FILES...): all files and links, without folders.
function(check_files package)
  execute_process(COMMAND dpkg-deb --fsys-tarfile ${package} COMMAND tar -t OUTPUT_VARIABLE listed
    COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" listed "${listed}")
  list(FILTER listed EXCLUDE REGEX "(^|/)$")
  list(TRANSFORM listed REPLACE "^\\./" "")
  list(SORT listed)
  set(expected ${ARGN})
  list(SORT expected)
  must_be("${package} holds" "${listed}" "${expected}")
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
file(MAKE_DIRECTORY ${SCRATCH}/root)
must(${CMAKE_COMMAND} -E chdir ${SCRATCH} ${CPACK} -G DEB --config ${BUILD}/CPackConfig.cmake -B ${SCRATCH})

execute_process(COMMAND dpkg --print-architecture OUTPUT_VARIABLE arch
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(runtime ${SCRATCH}/libseriatim${SOVERSION}_${VERSION}-1_${arch}.deb)
set(dev ${SCRATCH}/libseriatim-dev_${VERSION}-1_${arch}.deb)
set(tool ${SCRATCH}/seriatim_${VERSION}-1_${arch}.deb)
file(GLOB made ${SCRATCH}/*.deb)
set(all ${dev} ${runtime} ${tool})
must_be("cpack made" "${made}" "${all}")

set(lib usr/${LIBDIR})
file(GLOB_RECURSE headers RELATIVE ${INCLUDE}/.. ${INCLUDE}/*.h ${INCLUDE}/*.hpp)
list(FILTER headers EXCLUDE REGEX "transport_mpi") # with the library seriatim_mpi, which no package holds
list(TRANSFORM headers PREPEND usr/)
file(GLOB cmake_files RELATIVE ${BUILD}/ ${BUILD}/CMakeFiles/Export/*/seriatim-*-targets-*.cmake
  ${BUILD}/CMakeFiles/Export/${LIBDIR}/cmake/seriatim/seriatim-*-targets-*.cmake)
list(FILTER cmake_files EXCLUDE REGEX "seriatim-mpi-targets")
list(TRANSFORM cmake_files REPLACE "^.*/" "${lib}/cmake/seriatim/")
list(REMOVE_DUPLICATES cmake_files)
check_files(${runtime} usr/share/doc/libseriatim${SOVERSION}/copyright ${lib}/libseriatim.so.${SOVERSION}
  ${lib}/libseriatim.so.${VERSION})
check_files(${dev} usr/share/doc/libseriatim-dev/copyright ${headers} ${lib}/libseriatim.a ${lib}/libseriatim.so
  ${lib}/pkgconfig/seriatim.pc
  ${lib}/pkgconfig/seriatim-cpp.pc ${lib}/cmake/seriatim/seriatim-config.cmake
  ${lib}/cmake/seriatim/seriatim-config-version.cmake ${lib}/cmake/seriatim/seriatim-c-targets.cmake
  ${lib}/cmake/seriatim/seriatim-cpp-targets.cmake ${cmake_files})
check_files(${tool} usr/share/doc/seriatim/copyright usr/bin/seriatim usr/share/man/man1/seriatim.1
  usr/share/bash-completion/completions/seriatim
  usr/share/zsh/vendor-completions/_seriatim usr/share/fish/vendor_completions.d/seriatim.fish)

# Computed by dpkg-shlibdeps from what the binaries link, and named for what the CMake configuration looks for.
check_depends(${runtime} libc6 libtbb12 libhwy1 "libstdc\\+\\+6")
check_depends(${tool} libc6 libtbb12 libhwy1 "libstdc\\+\\+6")
check_depends(${dev} "libseriatim${SOVERSION} \\(= ${VERSION}-1\\)" libtbb-dev libhwy-dev)
foreach(package IN LISTS all)
  control_field(description ${package} Description)
  if(NOT description MATCHES "^deterministic sparse attention: ")
    message(FATAL_ERROR "${package} is described as '${description}'")
  endif()
  must(dpkg-deb -x ${package} ${SCRATCH}/root)
endforeach()
execute_process(COMMAND dpkg-deb --info ${runtime} shlibs OUTPUT_VARIABLE shlibs OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
if(NOT shlibs MATCHES "^libseriatim ${SOVERSION} libseriatim${SOVERSION} ")
  message(FATAL_ERROR "the library's shlibs file says '${shlibs}'")
endif()

build_by_cmake(cpp ${SCRATCH}/root/usr)
build_by_cmake(c ${SCRATCH}/root/usr)
build_by_pkg_config(${SCRATCH}/root/usr)
run_tool(${SCRATCH}/root/usr)
