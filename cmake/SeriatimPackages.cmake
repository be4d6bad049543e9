# cpack -G DEB: libseriatim0.2 (programs run with it), libseriatim-dev (programs are built with it) and seriatim (the
# tool).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME seriatim)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package says its own
set(CPACK_PACKAGE_VENDOR "Seriatim")
set(CPACK_PACKAGE_CONTACT "The Seriatim maintainers <maintainers@seriatim.invalid>" CACHE
  STRING "Who maintains the packages")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL lib dev tool)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)

set(seriatim_about
  "Sparse attention by one rule: top-k chooses the set, time chooses the order. The same input gives the same
bits on every instruction set, thread count, batch and chunking.")
set(CPACK_COMPONENT_LIB_DESCRIPTION "deterministic sparse attention: shared library\n${seriatim_about}")
set(CPACK_COMPONENT_DEV_DESCRIPTION
  "deterministic sparse attention: headers for C and C++, static library\n${seriatim_about}")
set(CPACK_COMPONENT_TOOL_DESCRIPTION "deterministic sparse attention: command-line tool\n${seriatim_about}")

# Named after the soname, so that programs of other versions of the ABI keep theirs beside it.
set(CPACK_DEBIAN_LIB_PACKAGE_NAME libseriatim${SERIATIM_SOVERSION})
set(CPACK_DEBIAN_LIB_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIB_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")

# What the CMake configuration and seriatim-cpp.pc look for comes with it; the rest is inside the static library.
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libseriatim-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "${CPACK_DEBIAN_LIB_PACKAGE_NAME} (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}), libtbb-dev, libhwy-dev")

set(CPACK_DEBIAN_TOOL_PACKAGE_NAME seriatim)
set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOL_PACKAGE_SHLIBDEPS ON)

# Debian wants one in every package.
foreach(pair lib:${CPACK_DEBIAN_LIB_PACKAGE_NAME} dev:libseriatim-dev tool:seriatim)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 component)
  list(GET pair 1 package)
  install(FILES packaging/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endforeach()
include(CPack)
