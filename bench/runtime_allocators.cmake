# RMM and CUB: allocators above the CUDA runtime, which their programs load as libcudart.so.13.
# Without a GPU that is idle_runtime.cc; bench/run puts the real one before it where there is a GPU.

add_library(weir_bench_runtime SHARED idle_runtime.cc)
target_link_libraries(weir_bench_runtime PRIVATE weir_build_flags weir::simcuda)
set_target_properties(weir_bench_runtime PROPERTIES
  OUTPUT_NAME cudart
  SUFFIX ".so.13"  # also the SONAME
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/bench_runtime"
  BUILD_RPATH_USE_ORIGIN ON)

# CUB comes with the CUDA toolkit, not with the header wheel.
find_path(WEIR_CUB_INCLUDE_DIR cub/util_allocator.cuh
  PATHS "${WEIR_CUDA_INCLUDE_DIR}" PATH_SUFFIXES . cccl)
if(WEIR_CUB_INCLUDE_DIR)
  weir_add_bench_allocator(cub SOURCES cub_allocator.cc LINK weir_bench_runtime
    INCLUDE "${WEIR_CUB_INCLUDE_DIR}" "${WEIR_CUDA_INCLUDE_DIR}")
else()
  message(STATUS "No CUB headers (they come with the CUDA toolkit): no benchmark of CUB")
endif()

# The last librmm whose headers need no library. They want the runtime's headers, which the header
# wheel has too.
set(weir_rmm "${WEIR_BENCH_PYTHON}/librmm")
if(EXISTS "${weir_rmm}/VERSION")
  file(STRINGS "${weir_rmm}/VERSION" weir_rmm_version LIMIT_COUNT 1)
  foreach(resource IN ITEMS pool arena)
    weir_add_bench_allocator(rmm_${resource} SOURCES rmm_${resource}_allocator.cc
      LINK weir_bench_runtime
      INCLUDE "${weir_rmm}/include" "${weir_rmm}/include/rapids"
              "${weir_rmm}/include/rapids/libcudacxx" "${WEIR_CUDA_INCLUDE_DIR}"
      OPTIONS -DSPDLOG_FMT_EXTERNAL -DFMT_HEADER_ONLY
              -DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
              "-DWEIR_BENCH_RMM_VERSION=\"${weir_rmm_version}\"")
  endforeach()
else()
  message(STATUS "No RMM headers (tools/install_dependencies --bench): no benchmark of RMM")
endif()
