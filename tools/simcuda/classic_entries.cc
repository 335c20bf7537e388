// Entry points: classic device memory, managed memory, and what memory an address belongs to.
//
// cuMemAlloc aligns to 512 B. Requests below a frame are cut from shared frames, so cuMemGetInfo
// falls in whole frames; larger ones have frames to themselves. cuMemFree waits for all work of the
// context (driver.md section 4: the documented "may synchronize", always taken). Managed memory is
// host memory that every device may use; it takes nothing from the device.
#include <memory>

#include "tools/simcuda/entry.h"
#include "tools/simcuda/host_memory.h"
#include "tools/simcuda/simulator.h"

namespace weir::sim {
namespace {

constexpr uint64_t kPitchAlignment = 512;

}  // namespace

CUresult SimMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  Simulator& sim = Simulator::Get();
  if (free_bytes == nullptr || total_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Arena& arena = *sim.device(sim.current_device()).arena;
  *free_bytes = arena.available();
  *total_bytes = arena.capacity();
  return CUDA_SUCCESS;
}

CUresult SimMemAlloc(CUdeviceptr* address, size_t bytes) {
  Simulator& sim = Simulator::Get();
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const int device = sim.current_device();
  auto range = std::make_unique<Range>();
  if (!sim.device(device).classic->Allocate(bytes, 0, &range->base, &range->store)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ChargeBytes(bytes);
  range->bytes = bytes;
  range->kind = RangeKind::kClassic;
  range->device = device;
  *address = sim.space().Add(std::move(range))->base;
  return CUDA_SUCCESS;
}

CUresult SimMemAllocPitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                          unsigned int element_bytes) {
  const bool element_ok = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
  if (pitch == nullptr || width == 0 || height == 0 || !element_ok) return CUDA_ERROR_INVALID_VALUE;
  if (width > UINT64_MAX / 2 / height) return CUDA_ERROR_OUT_OF_MEMORY;
  const size_t row = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  if (row > UINT64_MAX / 2 / height) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = SimMemAlloc(address, row * height);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult SimMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned int flags) {
  Simulator& sim = Simulator::Get();
  const bool flags_ok = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
  if (address == nullptr || bytes == 0 || !flags_ok) return CUDA_ERROR_INVALID_VALUE;
  std::byte* pages = AllocateHostBytes(bytes);
  if (pages == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  auto range = std::make_unique<Range>();
  range->base = reinterpret_cast<CUdeviceptr>(pages);
  range->bytes = bytes;
  range->kind = RangeKind::kManaged;
  range->device = sim.current_device();
  range->store = Store::Host(pages, bytes, &sim.timeline());
  *address = sim.space().Add(std::move(range))->base;
  return CUDA_SUCCESS;
}

CUresult SimMemFree(CUdeviceptr address) {
  Simulator& sim = Simulator::Get();
  // The memory is looked up again after the wait: the lock was dropped, and a queued
  // cuMemFreeAsync may have run.
  const auto find = [&sim, address]() -> Range* {
    Range* range = sim.space().Find(address);
    if (range == nullptr || range->base != address || range->free_queued) return nullptr;
    const bool freeable = range->kind == RangeKind::kClassic ||
                          range->kind == RangeKind::kManaged || range->kind == RangeKind::kPool;
    return freeable ? range : nullptr;
  };
  const Range* range = find();
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult drained = sim.timeline().DrainContext(range->device);
  if (drained != CUDA_SUCCESS) return drained;
  if (find() == nullptr) return CUDA_ERROR_INVALID_VALUE;
  sim.FreeRange(address);
  return CUDA_SUCCESS;
}

// One mapping of a handle, not the whole reservation; one allocation otherwise.
CUresult SimMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  const Range* range = Simulator::Get().space().Find(address);
  if (range == nullptr || range->is_host()) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = range->base;
  if (bytes != nullptr) *bytes = range->bytes;
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
