# cmake --install: headers, library, and a package that find_package(seriatim) finds.
include(CMakePackageConfigHelpers)
install(TARGETS seriatim EXPORT seriatim-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/seriatim DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT seriatim-targets NAMESPACE seriatim:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/seriatim)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/seriatim-config.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/seriatim-config.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/seriatim)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/seriatim-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/seriatim-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/seriatim-config-version.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/seriatim)
