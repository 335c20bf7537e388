# weir::torch_cuda: PyTorch's C++ core for CUDA (libc10, libc10_cuda and their headers) in
# WEIR_BENCH_PYTHON, a folder into which the wheel was unpacked. Not defined if it is not there.
# PyTorch's libraries name libcudart.so.13, which the program that is linked must provide.
set(torch_folder "${WEIR_BENCH_PYTHON}/torch")
if(NOT EXISTS "${torch_folder}/lib/libc10_cuda.so" OR
   NOT EXISTS "${torch_folder}/include/c10/cuda/CUDACachingAllocator.h")
  return()
endif()
foreach(library IN ITEMS c10 c10_cuda)
  add_library(weir_torch_${library} SHARED IMPORTED)
  set_target_properties(weir_torch_${library} PROPERTIES
    IMPORTED_LOCATION "${torch_folder}/lib/lib${library}.so"
    INTERFACE_INCLUDE_DIRECTORIES "${torch_folder}/include")
endforeach()
target_link_libraries(weir_torch_c10_cuda INTERFACE weir_torch_c10 weir::cuda_headers)
add_library(weir::torch_cuda ALIAS weir_torch_c10_cuda)
