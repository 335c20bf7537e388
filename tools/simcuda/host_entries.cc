// Entry points: pinned host memory. It is real host memory; every device may use it at the same
// address (write-combined memory too, which real devices see elsewhere). Freeing and unregistering
// do not wait for work that uses the memory: the checker reports it.
#include <memory>
#include <vector>

#include "tools/simcuda/entry.h"
#include "tools/simcuda/host_memory.h"
#include "tools/simcuda/simulator.h"

namespace weir::sim {
namespace {

constexpr unsigned int kAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned int kUnsupportedRegisterFlags =
    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
constexpr unsigned int kRegisterFlags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | kUnsupportedRegisterFlags;

void AddHostRange(std::byte* host, uint64_t bytes, RangeKind kind, unsigned int flags) {
  Simulator& sim = Simulator::Get();
  auto range = std::make_unique<Range>();
  range->base = reinterpret_cast<CUdeviceptr>(host);
  range->bytes = bytes;
  range->kind = kind;
  range->host_flags = flags;
  range->store = Store::Host(host, bytes, &sim.timeline());
  sim.space().Add(std::move(range));
  ChargeBytes(bytes);
}

Range* FindHostRange(const void* address) {
  Range* range = Simulator::Get().space().Find(reinterpret_cast<CUdeviceptr>(address));
  return range != nullptr && range->is_host() ? range : nullptr;
}

void RemoveHostRange(const char* entry, const Range& range) {
  Simulator& sim = Simulator::Get();
  std::vector<PhysicalSpan> spans;
  range.store->AppendSpans(0, range.bytes, &spans);
  sim.timeline().CheckHostRelease(entry, range.base, range.bytes, spans);
  sim.FreeRange(range.base);
}

}  // namespace

CUresult SimMemHostAlloc(void** address, size_t bytes, unsigned int flags) {
  if (address == nullptr || bytes == 0 || (flags & ~kAllocFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::byte* pages = AllocateHostBytes(bytes);
  if (pages == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  AddHostRange(pages, bytes, RangeKind::kPinned, flags);
  *address = pages;
  return CUDA_SUCCESS;
}

CUresult SimMemAllocHost(void** address, size_t bytes) {
  return SimMemHostAlloc(address, bytes, 0);
}

CUresult SimMemFreeHost(void* address) {
  const Range* range = FindHostRange(address);
  const bool freeable = range != nullptr && range->kind == RangeKind::kPinned &&
                        range->base == reinterpret_cast<CUdeviceptr>(address);
  if (!freeable) return CUDA_ERROR_INVALID_VALUE;
  RemoveHostRange("cuMemFreeHost", *range);
  return CUDA_SUCCESS;
}

CUresult SimMemHostRegister(void* address, size_t bytes, unsigned int flags) {
  const CUdeviceptr base = reinterpret_cast<CUdeviceptr>(address);
  if (address == nullptr || bytes == 0 || bytes > UINT64_MAX - base ||
      (flags & ~kRegisterFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & kUnsupportedRegisterFlags) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  AddressSpace& space = Simulator::Get().space();
  if (space.Overlaps(base, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  if (space.Owns(base)) return CUDA_ERROR_INVALID_VALUE;  // a device address
  AddHostRange(static_cast<std::byte*>(address), bytes, RangeKind::kRegistered, flags);
  return CUDA_SUCCESS;
}

CUresult SimMemHostUnregister(void* address) {
  const Range* range = FindHostRange(address);
  const bool registered = range != nullptr && range->kind == RangeKind::kRegistered &&
                          range->base == reinterpret_cast<CUdeviceptr>(address);
  if (!registered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  RemoveHostRange("cuMemHostUnregister", *range);
  return CUDA_SUCCESS;
}

CUresult SimMemHostGetDevicePointer(CUdeviceptr* device_address, void* address,
                                    unsigned int flags) {
  if (device_address == nullptr || flags != 0 || FindHostRange(address) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *device_address = reinterpret_cast<CUdeviceptr>(address);
  return CUDA_SUCCESS;
}

CUresult SimMemHostGetFlags(unsigned int* flags, void* address) {
  const Range* range = FindHostRange(address);
  if (flags == nullptr || range == nullptr || range->kind != RangeKind::kPinned) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *flags = range->host_flags;
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
