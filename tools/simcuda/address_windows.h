// The virtual addresses of simulated devices: taken from windows of the process's address space
// that are reserved without access, so that they are real and unique, never equal to a host
// allocation, and fault when the host dereferences them. A window stays reserved when its addresses
// are freed, so that a stale device address is never taken for host memory. Under the simulator's
// lock.
#ifndef WEIR_TOOLS_SIMCUDA_ADDRESS_WINDOWS_H_
#define WEIR_TOOLS_SIMCUDA_ADDRESS_WINDOWS_H_

#include <cuda.h>

#include <cstdint>

#include "absl/container/btree_map.h"

namespace weir::sim {

class AddressWindows {
 public:
  // Addresses are handed out in units of this many bytes, so that pages line up.
  static constexpr uint64_t kUnit = uint64_t{2} << 20;

  AddressWindows() = default;
  ~AddressWindows() { Clear(); }
  AddressWindows(const AddressWindows&) = delete;
  AddressWindows& operator=(const AddressWindows&) = delete;

  void Clear();
  // 0 if the system has no such range. alignment: power of two, or 0. The hint is taken where it is
  // free.
  CUdeviceptr Allocate(uint64_t bytes, uint64_t alignment, CUdeviceptr hint);
  void Free(CUdeviceptr base, uint64_t bytes);
  bool Contains(CUdeviceptr address) const;

 private:
  bool TakeAt(CUdeviceptr base, uint64_t bytes);
  bool AddWindow(CUdeviceptr at, uint64_t bytes);

  absl::btree_map<CUdeviceptr, uint64_t> windows_;  // base -> bytes
  absl::btree_map<CUdeviceptr, uint64_t> free_;     // base -> bytes, coalesced inside a window
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_ADDRESS_WINDOWS_H_
