// Entry points: stream-ordered memory and its pools (policy: pools.h). Allocations and frees on a
// capturing stream, which would become graph memory nodes, are NOT_SUPPORTED. Sharing of pools
// between processes is not implemented.
#include <cstring>
#include <memory>

#include "tools/simcuda/entry.h"
#include "tools/simcuda/simulator.h"

namespace weir::sim {
namespace {

CUresult CheckSupported() {
  return Simulator::Get().config().memory_pools ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

Operation WholeRange(OperationKind kind, const char* label, const Range& range) {
  Operation op;
  op.kind = kind;
  op.label = label;
  op.accesses = {{range.base, range.bytes, true}};
  // The pool's own device does it, since that of the stream may have no right to the memory.
  op.access_devices = {range.device};
  return op;
}

// Memory of the pool, after giving back what pools keep and waiting for queued frees if need be.
CUresult AllocateFrom(Pool* pool, uint64_t bytes, Range** range) {
  Simulator& sim = Simulator::Get();
  const CUmemoryPool handle = pool->handle;
  const int device = pool->device;
  *range = sim.pools().Allocate(pool, bytes);
  if (*range != nullptr) return CUDA_SUCCESS;
  sim.pools().TrimAll(device);
  *range = sim.pools().Allocate(pool, bytes);
  if (*range != nullptr) return CUDA_SUCCESS;
  const CUresult drained = sim.timeline().DrainContext(device);
  if (drained == CUDA_ERROR_TIMEOUT) return CUDA_ERROR_OUT_OF_MEMORY;
  if (drained != CUDA_SUCCESS) return drained;
  sim.pools().TrimAll(device);
  pool = sim.pools().Find(handle);  // the lock was dropped
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *range = sim.pools().Allocate(pool, bytes);
  return *range != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult AllocateAsync(CUdeviceptr* address, size_t bytes, Pool* pool, CUstream stream) {
  Simulator& sim = Simulator::Get();
  if (address == nullptr || bytes == 0 || pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int device = sim.current_device();
  if (sim.timeline().IsCapturing(device, stream)) return CUDA_ERROR_NOT_SUPPORTED;
  Range* range = nullptr;
  const CUresult result = AllocateFrom(pool, bytes, &range);
  if (result != CUDA_SUCCESS) return result;
  ChargeBytes(bytes);
  const CUdeviceptr base = range->base;
  Operation op = WholeRange(OperationKind::kFill, "cuMemAllocAsync", *range);
  const CUresult queued = sim.timeline().Submit(device, stream, std::move(op));
  if (queued != CUDA_SUCCESS) {
    sim.pools().Free(base);
    return queued;
  }
  *address = base;
  return CUDA_SUCCESS;
}

// The highs may only be reset.
CUresult SetHigh(const void* value, uint64_t current, uint64_t* high) {
  cuuint64_t wanted = 0;
  std::memcpy(&wanted, value, sizeof(wanted));
  if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;
  *high = current;
  return CUDA_SUCCESS;
}

CUresult FindPoolDevice(const CUmemAccessDesc& description, int* device) {
  if (description.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  *device = description.location.id;
  return Simulator::Get().IsDevice(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult GivePool(CUmemoryPool* handle, CUdevice device, bool get_default) {
  Simulator& sim = Simulator::Get();
  if (const CUresult result = CheckSupported(); result != CUDA_SUCCESS) return result;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Pools& pools = sim.pools();
  *handle = (get_default ? pools.default_pool(device) : pools.current_pool(device))->handle;
  return CUDA_SUCCESS;
}

// The forms of CUDA 13, by location and type: pools of pinned device memory only.
CUresult CheckPoolKind(const CUmemLocation* location, CUmemAllocationType type) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool device_memory =
      type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE;
  return device_memory ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult SimMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  Simulator& sim = Simulator::Get();
  if (const CUresult result = CheckSupported(); result != CUDA_SUCCESS) return result;
  return AllocateAsync(address, bytes, sim.pools().current_pool(sim.current_device()), stream);
}

CUresult SimMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                  CUstream stream) {
  if (const CUresult result = CheckSupported(); result != CUDA_SUCCESS) return result;
  return AllocateAsync(address, bytes, Simulator::Get().pools().Find(pool), stream);
}

CUresult SimMemFreeAsync(CUdeviceptr address, CUstream stream) {
  Simulator& sim = Simulator::Get();
  Range* range = sim.space().Find(address);
  const bool freeable = range != nullptr && range->base == address &&
                        range->kind == RangeKind::kPool && !range->free_queued;
  if (!freeable) return CUDA_ERROR_INVALID_VALUE;
  const int device = sim.current_device();
  if (sim.timeline().IsCapturing(device, stream)) return CUDA_ERROR_NOT_SUPPORTED;
  Operation op = WholeRange(OperationKind::kFreeAsync, "cuMemFreeAsync", *range);
  op.body = [address] {
    Simulator::Get().pools().Free(address);
    return CUDA_SUCCESS;
  };
  range->free_queued = true;
  const uint64_t buffer = range->buffer_id;
  const CUresult queued = sim.timeline().Submit(device, stream, std::move(op));
  if (queued != CUDA_SUCCESS) {
    range = sim.space().Find(address);
    if (range != nullptr && range->buffer_id == buffer) range->free_queued = false;
  }
  return queued;
}

CUresult SimMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  Simulator& sim = Simulator::Get();
  if (const CUresult result = CheckSupported(); result != CUDA_SUCCESS) return result;
  if (handle == nullptr || properties == nullptr ||
      properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!sim.IsDevice(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  *handle = sim.pools().Create(*properties, properties->location.id)->handle;
  return CUDA_SUCCESS;
}

CUresult SimMemPoolDestroy(CUmemoryPool handle) {
  Simulator& sim = Simulator::Get();
  Pool* pool = sim.pools().Find(handle);
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  sim.pools().Destroy(pool);
  return CUDA_SUCCESS;
}

CUresult SimMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  Pool* pool = Simulator::Get().pools().Find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  pool->memory->Trim(keep_bytes);
  return CUDA_SUCCESS;
}

CUresult SimMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Pool* pool = Simulator::Get().pools().Find(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(&pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], value,
                  sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      std::memcpy(&pool->release_threshold, value, sizeof(cuuint64_t));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return SetHigh(value, pool->memory->reserved_bytes(), &pool->reserved_high);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return SetHigh(value, pool->memory->used_bytes(), &pool->used_high);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SimMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Pool* pool = Simulator::Get().pools().Find(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  cuuint64_t number = 0;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(value, &pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES],
                  sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      number = pool->release_threshold;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      number = pool->memory->reserved_bytes();
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      number = pool->reserved_high;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      number = pool->memory->used_bytes();
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      number = pool->used_high;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(value, &number, sizeof(number));
  return CUDA_SUCCESS;
}

CUresult SimMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  Pool* pool = Simulator::Get().pools().Find(handle);
  if (pool == nullptr || map == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  AccessRights rights = pool->rights;
  for (size_t i = 0; i < count; ++i) {
    int device = -1;
    const CUresult result = FindPoolDevice(map[i], &device);
    if (result != CUDA_SUCCESS) return result;
    const bool none = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (!none && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (none && device == pool->device) return CUDA_ERROR_INVALID_VALUE;  // never revoked
    rights.Set(device, map[i].flags);
  }
  pool->rights = rights;
  return CUDA_SUCCESS;
}

CUresult SimMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                             CUmemLocation* location) {
  const Pool* pool = Simulator::Get().pools().Find(handle);
  if (flags == nullptr || pool == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int device = -1;
  const CUresult result = FindPoolDevice({*location, CU_MEM_ACCESS_FLAGS_PROT_NONE}, &device);
  if (result != CUDA_SUCCESS) return result;
  *flags = pool->rights.Get(device);
  return CUDA_SUCCESS;
}

CUresult SimDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return GivePool(pool, device, true);
}

CUresult SimDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return GivePool(pool, device, false);
}

CUresult SimDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  Simulator& sim = Simulator::Get();
  if (!sim.IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  Pool* pool = sim.pools().Find(handle);
  if (pool == nullptr || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
  sim.pools().set_current_pool(device, pool);
  return CUDA_SUCCESS;
}

CUresult SimMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                 CUmemAllocationType type) {
  const CUresult kind = CheckPoolKind(location, type);
  return kind == CUDA_SUCCESS ? GivePool(pool, location->id, true) : kind;
}

CUresult SimMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  const CUresult kind = CheckPoolKind(location, type);
  return kind == CUDA_SUCCESS ? GivePool(pool, location->id, false) : kind;
}

CUresult SimMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  const CUresult kind = CheckPoolKind(location, type);
  return kind == CUDA_SUCCESS ? SimDeviceSetMemPool(location->id, pool) : kind;
}

}  // namespace weir::sim
