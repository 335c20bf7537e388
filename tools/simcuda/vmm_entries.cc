// Entry points: virtual memory management. Every argument rule of the driver is checked here, the
// stricter way where the documentation is silent (driver.md section 6). None of these waits for
// work: what a missing synchronization breaks is found by the work itself (an illegal address) and
// by the checker.
#include <sys/types.h>
#include <unistd.h>

#include <bit>
#include <memory>
#include <optional>
#include <vector>

#include "tools/simcuda/entry.h"
#include "tools/simcuda/simulator.h"

namespace weir::sim {
namespace {

constexpr uint64_t kHostPage = 4096;

bool IsMultiple(uint64_t value, uint64_t unit) { return value != 0 && value % unit == 0; }
bool Wraps(CUdeviceptr at, uint64_t bytes) { return bytes > UINT64_MAX - at; }

CUresult CheckSupported() {
  return Simulator::Get().config().vmm ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

// Which memory the properties ask for, and whether this device can give it.
CUresult CheckProperties(const CUmemAllocationProp* prop) {
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (prop->type == CU_MEM_ALLOCATION_TYPE_MANAGED) return CUDA_ERROR_NOT_SUPPORTED;
  if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (!Simulator::Get().IsDevice(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr int kKnownHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR |
                                    CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT |
                                    CU_MEM_HANDLE_TYPE_FABRIC;
  const int handle_types = static_cast<int>(prop->requestedHandleTypes);
  if ((handle_types & ~kKnownHandleTypes) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((handle_types & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (prop->allocFlags.gpuDirectRDMACapable > 1) return CUDA_ERROR_INVALID_VALUE;
  if (prop->allocFlags.compressionType != CU_MEM_ALLOCATION_COMP_NONE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult CheckFlags(CUmemAccess_flags flags) {
  switch (flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Host locations may access host memory only, and all mappings here are of device memory.
CUresult CheckDeviceLocation(const CUmemLocation& location) {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  return Simulator::Get().IsDevice(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// An object of this process is the same store as before; one of another is mapped.
std::shared_ptr<Store> ImportStore(int fd, uint64_t position, const SharedObject& object) {
  Simulator& sim = Simulator::Get();
  for (int device = 0; device < sim.device_count(); ++device) {
    Arena& arena = *sim.device(device).arena;
    if (SameFile(arena.file(), fd)) {
      return arena.FindPublished(position, device, &sim.timeline());
    }
  }
  const int file = OpenHolding(fd, position);
  return file < 0 ? nullptr : Store::Import(file, position, object, &sim.timeline());
}

}  // namespace

CUresult SimMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment,
                              CUdeviceptr hint, unsigned long long flags) {
  if (const CUresult result = CheckSupported(); result != CUDA_SUCCESS) return result;
  if (address == nullptr || flags != 0 || !IsMultiple(bytes, kHostPage) || hint % kHostPage != 0 ||
      (alignment != 0 && !std::has_single_bit(alignment))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUdeviceptr base = Simulator::Get().space().Reserve(bytes, alignment, hint);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = base;
  return CUDA_SUCCESS;
}

CUresult SimMemAddressFree(CUdeviceptr address, size_t bytes) {
  AddressSpace& space = Simulator::Get().space();
  CUdeviceptr base = 0;
  uint64_t reserved = 0;
  if (!space.FindReservation(address, &base, &reserved) || base != address || reserved != bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (space.Overlaps(base, reserved)) return CUDA_ERROR_INVALID_VALUE;
  space.Unreserve(base);
  return CUDA_SUCCESS;
}

CUresult SimMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                      const CUmemAllocationProp* prop, unsigned long long flags) {
  Simulator& sim = Simulator::Get();
  if (const CUresult result = CheckSupported(); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckProperties(prop); result != CUDA_SUCCESS) return result;
  if (handle == nullptr || flags != 0 || !IsMultiple(bytes, sim.config().granularity)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int device = prop->location.id;
  std::shared_ptr<Store> store =
      Store::Create(sim.device(device).arena, device, bytes, &sim.timeline());
  if (store == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  ChargeBytes(bytes);
  *handle = sim.handles().Add(std::move(store), *prop);
  return CUDA_SUCCESS;
}

CUresult SimMemRelease(CUmemGenericAllocationHandle handle) {
  return Simulator::Get().handles().Release(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult SimMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                   CUmemGenericAllocationHandle handle, unsigned long long flags) {
  Simulator& sim = Simulator::Get();
  const uint64_t granularity = sim.config().granularity;
  if (flags != 0 || offset != 0 || !IsMultiple(address, granularity) ||
      !IsMultiple(bytes, granularity) || Wraps(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const MemoryHandle* found = sim.handles().Find(handle);
  if (found == nullptr || bytes > found->store->bytes()) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr base = 0;
  uint64_t reserved = 0;
  if (!sim.space().FindReservation(address, &base, &reserved) ||
      bytes > reserved - (address - base) || sim.space().Overlaps(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ChargeHandles(1);
  auto range = std::make_unique<Range>();
  range->base = address;
  range->bytes = bytes;
  range->kind = RangeKind::kMapping;
  range->device = found->store->device();
  range->store = found->store;
  range->handle = handle;
  range->reservation = base;
  range->parts = {{bytes, AccessRights{}}};
  sim.space().Add(std::move(range));
  sim.handles().AddMapping(handle);
  return CUDA_SUCCESS;
}

CUresult SimMemUnmap(CUdeviceptr address, size_t bytes) {
  Simulator& sim = Simulator::Get();
  if (bytes == 0 || Wraps(address, bytes) || !sim.space().IsTiledByMappings(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<PhysicalSpan> spans;
  sim.space().AppendSpans(address, bytes, &spans);
  sim.timeline().CheckHostRelease("cuMemUnmap", address, bytes, spans);
  std::vector<CUdeviceptr> bases;
  sim.space().ForEachIn(address, bytes, [&](const Range& range) { bases.push_back(range.base); });
  for (const CUdeviceptr base : bases) sim.FreeRange(base);
  ChargeHandles(bases.size());
  return CUDA_SUCCESS;
}

CUresult SimMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* descriptions,
                         size_t count) {
  Simulator& sim = Simulator::Get();
  const uint64_t granularity = sim.config().granularity;
  if (descriptions == nullptr || count == 0 || !IsMultiple(address, granularity) ||
      !IsMultiple(bytes, granularity) || Wraps(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const CUresult location = CheckDeviceLocation(descriptions[i].location);
    if (location != CUDA_SUCCESS) return location;
    const CUresult flags = CheckFlags(descriptions[i].flags);
    if (flags != CUDA_SUCCESS) return flags;
  }
  if (!sim.space().IsMapped(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t handles = 0;
  sim.space().ForEachIn(address, bytes, [&handles](const Range&) { ++handles; });
  ChargeHandles(handles);
  for (size_t i = 0; i < count; ++i) {
    sim.space().SetRights(address, bytes, descriptions[i].location.id, descriptions[i].flags);
  }
  return CUDA_SUCCESS;
}

CUresult SimMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                         CUdeviceptr address) {
  Simulator& sim = Simulator::Get();
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = CheckDeviceLocation(*location);
  if (result != CUDA_SUCCESS) return result;
  const Range* range = sim.space().Find(address);
  if (range == nullptr || range->kind != RangeKind::kMapping) return CUDA_ERROR_INVALID_VALUE;
  *flags = sim.space().RightsAt(*range, address).Get(location->id);
  return CUDA_SUCCESS;
}

CUresult SimMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                        CUmemAllocationGranularity_flags option) {
  if (const CUresult result = CheckSupported(); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckProperties(prop); result != CUDA_SUCCESS) return result;
  const bool known =
      option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
  if (granularity == nullptr || !known) return CUDA_ERROR_INVALID_VALUE;
  *granularity = Simulator::Get().config().granularity;
  return CUDA_SUCCESS;
}

CUresult SimMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                 CUmemGenericAllocationHandle handle) {
  const MemoryHandle* found = Simulator::Get().handles().Find(handle);
  if (prop == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = found->properties;
  return CUDA_SUCCESS;
}

CUresult SimMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  Simulator& sim = Simulator::Get();
  const Range* range = sim.space().Find(reinterpret_cast<CUdeviceptr>(address));
  if (handle == nullptr || range == nullptr || range->kind != RangeKind::kMapping) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  sim.handles().Retain(range->handle);
  *handle = range->handle;
  return CUDA_SUCCESS;
}

CUresult SimMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                       CUmemAllocationHandleType type, unsigned long long flags) {
  const MemoryHandle* found = Simulator::Get().handles().Find(handle);
  if (shareable == nullptr || flags != 0 || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if ((found->properties.requestedHandleTypes & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  int file = -1;
  uint64_t position = 0;
  const bool rdma = found->properties.allocFlags.gpuDirectRDMACapable != 0;
  const int fd =
      Store::Publish(found->store, found->properties.requestedHandleTypes, rdma, &file, &position)
          ? OpenHolding(file, position)
          : -1;
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareable) = fd;
  return CUDA_SUCCESS;
}

CUresult SimMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                         CUmemAllocationHandleType type) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
  const std::optional<uint64_t> position = PositionOf(fd);
  const std::optional<SharedObject> object =
      position.has_value() ? ReadRecord(fd, *position) : std::nullopt;
  if (!object.has_value()) return CUDA_ERROR_INVALID_VALUE;
  Simulator& sim = Simulator::Get();
  if (!sim.IsDevice(object->device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::shared_ptr<Store> store = ImportStore(fd, *position, *object);
  if (store == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {object->device}};
  prop.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(object->handle_types);
  prop.allocFlags.gpuDirectRDMACapable = object->rdma_capable ? 1 : 0;
  *handle = sim.handles().Add(store, prop);
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
