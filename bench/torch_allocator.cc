// The benchmark programs of PyTorch's caching allocator, the real one of the wheel's libc10_cuda,
// built twice: WEIR_BENCH_TORCH_EXPANDABLE 0, "torch" (segments of cudaMalloc), and 1,
// "torch_expandable" (expandable_segments:True).
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/headeronly/version.h>

#include <cstdlib>
#include <exception>

#include "bench/allocator.h"
#include "bench/device.h"
#include "tools/simcuda/faces.h"

// Exported by libc10_cuda for PyTorch's larger libraries, which are not linked here, and declared
// in none of its headers.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*has_context)(DeviceIndex));
}

namespace weir::bench {
namespace {

namespace native = c10::cuda::CUDACachingAllocator;

constexpr bool kExpandable = WEIR_BENCH_TORCH_EXPANDABLE != 0;

c10::DeviceIndex device = 0;
native::CUDAAllocator* allocator = nullptr;

// Whether the allocator takes its memory from the simulated device the way its name says.
bool TakesMemoryAsNamed() {
  constexpr size_t kBytes = size_t{32} << 20;
  const char* const entry = kExpandable ? "cuMemMap" : "cuMemAlloc";
  const uint64_t before = sim::CallCount(entry);
  allocator->raw_delete(allocator->raw_alloc_with_stream(kBytes, nullptr));
  return sim::CallCount(entry) > before;
}

}  // namespace

const AllocatorInfo& Info() {
  static const AllocatorInfo info = [] {
    AllocatorInfo i;
    i.name = kExpandable ? "torch_expandable" : "torch";
    i.version = TORCH_VERSION;
    i.record_use = true;
    return i;
  }();
  return info;
}

bool Start(const StartOptions& options, std::string* error) {
  // Read when the allocator is first used. Whatever is set outside is not what the name says.
  setenv("PYTORCH_ALLOC_CONF", kExpandable ? "expandable_segments:True" : "", 1);
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  if (options.simulated) simcuda_refuse(0);  // wanted, also beside a real driver
  if (!StartDevice(options.simulated, options.device, error)) return false;
  try {
    device = static_cast<c10::DeviceIndex>(options.simulated ? 0 : options.device);
    native::init(c10::cuda::device_count_ensure_non_zero());
    c10::cuda::set_device(device);
    // StartDevice made the context of this one.
    c10::cuda::_internal::setHasPrimaryContext(
        [](c10::DeviceIndex asked) { return asked == device; });
    allocator = native::get();
    const bool expandable =
        c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments();
    if (expandable != kExpandable || (options.simulated && !TakesMemoryAsNamed())) {
      *error = "PyTorch did not take the setting expandable_segments";
      return false;
    }
  } catch (const std::exception& failure) {
    *error = failure.what();
    return false;
  }
  return true;
}

void StartThread() { c10::cuda::set_device(device); }

Stream CreateStream() { return CreateDriverStream(); }

void* Allocate(size_t bytes, Stream stream) {
  try {
    return allocator->raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream));
  } catch (const std::exception&) {
    return nullptr;
  }
}

void Free(void* pointer, size_t, Stream) { allocator->raw_delete(pointer); }

void RecordUse(void* pointer, Stream other) {
  // As torch::Tensor::record_stream does it, with a handle that does not own the block.
  c10::DataPtr data(pointer, pointer, allocator->raw_deleter(), {c10::kCUDA, device});
  allocator->recordStream(
      data, c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(other), device));
  data.release_context();
}

void FreeOnOther(void*, size_t, Stream, Stream) {}

void Reset() { allocator->emptyCache(); }

uint64_t ReservedBytes() {
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<uint64_t>(allocator->getDeviceStats(device).reserved_bytes[kAll].current);
}

}  // namespace weir::bench
