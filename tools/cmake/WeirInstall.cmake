# What `cmake --install` puts where: the libraries and their headers, the simulated device beside
# them, the weir command, a CMake package (weir::allocator, weir::allocator_static) and pkg-config
# files (weir, weir-static). The installed tree may be moved: no file in it names its place.
include(CMakePackageConfigHelpers)

set(weir_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/weir")

# ---- Libraries and headers ----
install(TARGETS weir_allocator weir_allocator_static
  EXPORT weir_targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/allocator/include/weir"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")

# ---- The simulated device and the command ----
if(TARGET simcuda)
  install(TARGETS simcuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(TARGET weir_cli)
  file(RELATIVE_PATH weir_lib_from_bin "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(weir_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${weir_lib_from_bin}")
  install(TARGETS weir_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

# ---- find_package(weir) ----
install(EXPORT weir_targets NAMESPACE weir:: FILE weirTargets.cmake
  DESTINATION "${weir_package_dir}")
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/weirConfig.cmake.in" "${PROJECT_BINARY_DIR}/weirConfig.cmake"
  INSTALL_DESTINATION "${weir_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/weirConfigVersion.cmake"
  COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/weirConfig.cmake" "${PROJECT_BINARY_DIR}/weirConfigVersion.cmake"
  DESTINATION "${weir_package_dir}")

# ---- pkg-config ----
file(RELATIVE_PATH weir_prefix_from_pc "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
foreach(package IN ITEMS weir weir-static)
  configure_file("${CMAKE_CURRENT_LIST_DIR}/${package}.pc.in" "${PROJECT_BINARY_DIR}/${package}.pc"
    @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${package}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()
