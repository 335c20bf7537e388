// Weir for PyTorch's stock torch.cuda.memory.CUDAPluggableAllocator: a library with nothing to
// compile. weir.enable() gives more (statistics, MemPools, snapshots), which that interface lacks.
//
//   so = "libweir_torch_pluggable.so"
//   allocator = torch.cuda.memory.CUDAPluggableAllocator(so, "weir_torch_malloc",
//   "weir_torch_free") torch.cuda.memory.change_current_allocator(allocator)
//
// and with the address of each other function the setter of that name (weir/_pluggable.py does it).
// The functions throw where PyTorch's interface would go on with a null tensor.
#ifndef WEIR_TORCH_PLUGGABLE_PLUGGABLE_H_
#define WEIR_TORCH_PLUGGABLE_PLUGGABLE_H_

#include <cstddef>
#include <functional>
#include <utility>

#include "weir/weir.h"

#define WEIR_TORCH_API extern "C" __attribute__((visibility("default")))

// PyTorch's names of pools, MempoolId_t.
using WeirTorchPoolId =
    std::pair<unsigned long long, unsigned long long>;  // NOLINT: PyTorch's type

// Throws std::bad_alloc with Weir's reasons, which Python sees as a RuntimeError.
WEIR_TORCH_API void* weir_torch_malloc(size_t bytes, int device, weir_stream_t stream);
// In the order of the stream that the memory was allocated on; the other arguments are not used.
WEIR_TORCH_API void weir_torch_free(void* ptr, size_t bytes, int device, weir_stream_t stream);
WEIR_TORCH_API void weir_torch_init(int device_count);
WEIR_TORCH_API void weir_torch_reset();  // torch.cuda.empty_cache()
WEIR_TORCH_API void weir_torch_memory_fraction(double fraction, int device);
WEIR_TORCH_API void* weir_torch_base_alloc(void* ptr, size_t* bytes);
WEIR_TORCH_API void weir_torch_record_stream(void* ptr, weir_stream_t stream);
// Requests for the streams that the filter picks come from the pool until the end; its memory stays
// its own until the release. PyTorch passes C++ objects here: same compiler ABI as PyTorch's.
WEIR_TORCH_API void weir_torch_begin_allocate_to_pool(int device, WeirTorchPoolId id,
                                                      std::function<bool(weir_stream_t)> filter);
WEIR_TORCH_API void weir_torch_end_allocate_to_pool(int device, WeirTorchPoolId id);
WEIR_TORCH_API void weir_torch_release_pool(int device, WeirTorchPoolId id);

#endif  // WEIR_TORCH_PLUGGABLE_PLUGGABLE_H_
