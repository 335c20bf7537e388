# What `pip install .` puts into the Python package, beside its modules: the libraries, the simulated
# device, the command, and what the PyTorch plugin is built from on the user's machine.
set_target_properties(weir_allocator PROPERTIES VERSION 0)  # a wheel has no links
set_target_properties(weir_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
set_target_properties(simcuda_libcuda simcuda_libnvidia_ml PROPERTIES INSTALL_RPATH "$ORIGIN/..")
install(TARGETS weir_allocator simcuda weir_torch_pluggable
  LIBRARY DESTINATION lib NAMELINK_SKIP)
install(TARGETS simcuda_libcuda simcuda_libnvidia_ml LIBRARY DESTINATION lib/simcuda)
if(TARGET simcuda_libcudart)
  set_target_properties(simcuda_libcudart PROPERTIES INSTALL_RPATH "$ORIGIN/..")
  install(TARGETS simcuda_libcudart LIBRARY DESTINATION lib/simcuda)
endif()
install(TARGETS weir_cli RUNTIME DESTINATION bin)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/allocator/include/weir" DESTINATION include
  FILES_MATCHING PATTERN "*.h")
file(GLOB weir_plugin_sources "${PROJECT_SOURCE_DIR}/allocator/torch/*.cc"
  "${PROJECT_SOURCE_DIR}/allocator/torch/*.h")
install(FILES ${weir_plugin_sources} DESTINATION torch)
