// What a device, its driver and this container can do, asked once. Each answer comes with the
// reason, so that "why is X off" has a place to look it up.
#ifndef WEIR_DRIVER_DEVICE_CAPS_H_
#define WEIR_DRIVER_DEVICE_CAPS_H_

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weir {

class Driver;

struct Capability {
  std::string name;
  int64_t value = 0;   // 0 = absent
  std::string reason;  // where the value comes from, or why it is absent
};

struct DeviceCaps {
  std::string device_name;
  uint64_t total_bytes = 0;

  Capability vmm;             // physical memory can be mapped; value: granularity in bytes
  Capability posix_handles;   // handles can be exported as file descriptors
  Capability rdma;            // handles can be read and written by other PCIe devices
  Capability fabric_handles;  // handles can be exported over NVLink fabrics
  Capability context_events;  // one event for a whole context
  Capability memory_pools;    // stream-ordered allocation
  Capability host_numa_vmm;   // pinned host memory through the mapping calls

  std::vector<const Capability*> All() const;
};

// The properties of the physical memory that Weir creates on a device.
CUmemAllocationProp HandleProperties(int device, bool posix_handle, bool rdma);

// Asks. The device's primary context need not exist, except that with `try_vmm` one granule is
// created, mapped and released again: containers exist where the attributes promise what the calls
// refuse. If file descriptors or RDMA are what is refused, they are given up and mapping is kept.
DeviceCaps ProbeDevice(const Driver& driver, int ordinal, bool try_vmm);

}  // namespace weir

#endif  // WEIR_DRIVER_DEVICE_CAPS_H_
