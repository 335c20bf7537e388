#include "allocator/driver/device_caps.h"

#include "allocator/driver/driver.h"
#include "allocator/driver/driver_status.h"
#include "allocator/driver/driver_table.h"
#include "allocator/driver/relaxed_capture_scope.h"

namespace weir {
namespace {

Capability Attribute(const Driver& driver, int device, const char* name,
                     CUdevice_attribute attribute) {
  int value = 0;
  const DriverStatus status(driver.entries().DeviceGetAttribute(&value, attribute, device),
                            "cuDeviceGetAttribute");
  if (!status.ok()) {
    // The driver is older than the attribute.
    return {name, 0, "device attribute " + std::to_string(attribute) + ": " + status.ToString()};
  }
  return {name, value,
          "device attribute " + std::to_string(attribute) + " is " + std::to_string(value)};
}

// One granule through its whole life. Out of memory proves nothing about the mechanism: the device
// is merely full, so that counts as success.
DriverStatus TryMapping(const DriverTable& entries, const CUmemAllocationProp& properties,
                        size_t granularity) {
  CUmemGenericAllocationHandle handle = 0;
  DriverStatus status(entries.MemCreate(&handle, granularity, &properties, 0), "cuMemCreate");
  if (status.is_out_of_memory()) return {};
  if (!status.ok()) return status;

  CUdeviceptr address = 0;
  status = DriverStatus(entries.MemAddressReserve(&address, granularity, granularity, 0, 0),
                        "cuMemAddressReserve");
  if (status.ok()) {
    status = DriverStatus(entries.MemMap(address, granularity, 0, handle, 0), "cuMemMap");
    if (status.ok()) {
      CUmemAccessDesc access = {};
      access.location = properties.location;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      status =
          DriverStatus(entries.MemSetAccess(address, granularity, &access, 1), "cuMemSetAccess");
      const DriverStatus unmapped(entries.MemUnmap(address, granularity), "cuMemUnmap");
      if (status.ok()) status = unmapped;
    }
    const DriverStatus freed(entries.MemAddressFree(address, granularity), "cuMemAddressFree");
    if (status.ok()) status = freed;
  }
  const DriverStatus released(entries.MemRelease(handle), "cuMemRelease");
  if (status.ok()) status = released;
  return status.is_out_of_memory() ? DriverStatus() : status;
}

void ProbeMapping(const Driver& driver, int device, DeviceCaps* caps) {
  static constexpr const char* kEntries[] = {"cuMemAddressReserve",
                                             "cuMemAddressFree",
                                             "cuMemCreate",
                                             "cuMemRelease",
                                             "cuMemMap",
                                             "cuMemUnmap",
                                             "cuMemSetAccess",
                                             "cuMemGetAllocationGranularity"};
  caps->vmm =
      Attribute(driver, device, "vmm", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  if (caps->vmm.value == 0) return;
  for (const char* entry : kEntries) {
    const auto found = driver.missing().find(entry);
    if (found == driver.missing().end()) continue;
    caps->vmm = {"vmm", 0, found->first + ": " + found->second};
    return;
  }

  const DriverTable& entries = driver.entries();
  RelaxedCaptureScope relaxed(entries);
  bool extras = caps->posix_handles.value != 0 || caps->rdma.value != 0;
  while (true) {
    const CUmemAllocationProp properties =
        HandleProperties(device, caps->posix_handles.value != 0, caps->rdma.value != 0);
    size_t granularity = 0;
    DriverStatus status(entries.MemGetAllocationGranularity(&granularity, &properties,
                                                            CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                        "cuMemGetAllocationGranularity");
    if (status.ok()) status = TryMapping(entries, properties, granularity);
    if (status.ok()) {
      caps->vmm = {"vmm", static_cast<int64_t>(granularity),
                   "one granule of " + std::to_string(granularity) + " bytes was mapped"};
      return;
    }
    if (!extras) {
      caps->vmm = {"vmm", 0, status.ToString()};
      return;
    }
    // Once more without what containers are known to refuse.
    extras = false;
    const std::string reason = "mapping memory with these properties fails: " + status.ToString();
    if (caps->posix_handles.value != 0) caps->posix_handles = {"posix_handles", 0, reason};
    if (caps->rdma.value != 0) caps->rdma = {"rdma", 0, reason};
  }
}

}  // namespace

std::vector<const Capability*> DeviceCaps::All() const {
  return {&vmm,          &posix_handles, &rdma, &fabric_handles, &context_events,
          &memory_pools, &host_numa_vmm};
}

CUmemAllocationProp HandleProperties(int device, bool posix_handle, bool rdma) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  // Costs nothing until a handle is exported, and cannot be added later.
  properties.requestedHandleTypes =
      posix_handle ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  properties.allocFlags.gpuDirectRDMACapable = rdma ? 1 : 0;
  return properties;
}

DeviceCaps ProbeDevice(const Driver& driver, int ordinal, bool try_vmm) {
  const DriverTable& entries = driver.entries();
  const int device = driver.device(ordinal);
  DeviceCaps caps;
  char name[256] = {};
  if (entries.DeviceGetName(name, sizeof(name), device) == CUDA_SUCCESS) caps.device_name = name;
  size_t total = 0;
  if (entries.DeviceTotalMem(&total, device) == CUDA_SUCCESS) caps.total_bytes = total;

  const auto ask = [&](const char* what, CUdevice_attribute attribute) {
    return Attribute(driver, device, what, attribute);
  };
  caps.posix_handles =
      ask("posix_handles", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  caps.rdma = ask("rdma", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  caps.fabric_handles = ask("fabric_handles", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  caps.memory_pools = ask("memory_pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  caps.host_numa_vmm =
      ask("host_numa_vmm", CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);

  const auto missing = driver.missing().find("cuCtxRecordEvent");
  caps.context_events =
      missing == driver.missing().end()
          ? Capability{"context_events", 1, "the driver has cuCtxRecordEvent"}
          : Capability{"context_events", 0, "cuCtxRecordEvent: " + missing->second};

  if (try_vmm) {
    ProbeMapping(driver, device, &caps);
  } else {
    caps.vmm = {"vmm", 0, "switched off by the option vmm:off"};
  }
  return caps;
}

}  // namespace weir
