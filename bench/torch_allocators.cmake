# PyTorch's own caching allocator, linked from the wheel that tools/install_dependencies --bench
# unpacks, over a CUDA runtime: the simulated one beside the program, or the one that
# LD_LIBRARY_PATH names.
include(TorchWheel)
if(NOT TARGET weir::torch_cuda)
  message(STATUS "No PyTorch wheel in ${WEIR_BENCH_PYTHON}: no benchmark of its allocator "
                 "(tools/install_dependencies --bench)")
  return()
endif()
if(NOT TARGET simcuda_libcudart)
  message(STATUS "No libcudart.so.13: no benchmark of PyTorch's allocator")
  return()
endif()

foreach(expandable IN ITEMS 0 1)
  if(expandable)
    set(name torch_expandable)
  else()
    set(name torch)
  endif()
  # The runtime is named before PyTorch, so that it is loaded first and PyTorch's libraries take it.
  weir_add_bench_allocator(${name}
    SOURCES torch_allocator.cc
    LINK -Wl,--no-as-needed simcuda_libcudart weir::torch_cuda
    OPTIONS -DWEIR_BENCH_TORCH_EXPANDABLE=${expandable})
endforeach()
