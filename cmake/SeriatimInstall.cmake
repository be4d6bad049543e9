# cmake --install: headers, libraries, the tool with its manual page and completions, and what find_package and
# pkg-config look for. Components: `lib` is what programs run with, `dev` what they are built with, `tool` the command
# line.
include(CMakePackageConfigHelpers)
set(seriatim_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/seriatim)

install(TARGETS seriatim EXPORT seriatim-cpp-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(EXPORT seriatim-cpp-targets NAMESPACE seriatim:: DESTINATION ${seriatim_package_dir} COMPONENT dev)
# Not in the Debian packages, which would need one MPI of several.
if(SERIATIM_MPI_FOUND)
  install(TARGETS seriatim_mpi EXPORT seriatim-mpi-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi)
  install(FILES include/seriatim/transport_mpi.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/seriatim COMPONENT mpi)
  install(EXPORT seriatim-mpi-targets NAMESPACE seriatim:: DESTINATION ${seriatim_package_dir} COMPONENT mpi)
endif()
install(DIRECTORY include/seriatim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  PATTERN transport_mpi.hpp EXCLUDE)
if(SERIATIM_CAPI)
  install(TARGETS seriatim_c EXPORT seriatim-c-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib NAMELINK_COMPONENT dev)
  install(EXPORT seriatim-c-targets NAMESPACE seriatim:: DESTINATION ${seriatim_package_dir} COMPONENT dev)
  install(FILES include/seriatim.h include/seriatim_rule.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/seriatim-config.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/seriatim-config.cmake INSTALL_DESTINATION ${seriatim_package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/seriatim-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/seriatim-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/seriatim-config-version.cmake
  DESTINATION ${seriatim_package_dir} COMPONENT dev)

# The .pc files find the prefix from where they lie, so that an installed tree can be moved.
file(RELATIVE_PATH SERIATIM_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(SERIATIM_PC_PREFIX "\${pcfiledir}/${SERIATIM_PC_PREFIX}")
set(seriatim_pc_names seriatim-cpp)
if(SERIATIM_CAPI)
  list(APPEND seriatim_pc_names seriatim)
endif()
foreach(name IN LISTS seriatim_pc_names)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endforeach()

if(SERIATIM_CLI)
  install(TARGETS seriatim_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
  install(FILES packaging/seriatim.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tool)
  install(FILES packaging/completion/seriatim.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    RENAME seriatim COMPONENT tool)
  install(FILES packaging/completion/_seriatim DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions
    COMPONENT tool)
  install(FILES packaging/completion/seriatim.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
    COMPONENT tool)
endif()
