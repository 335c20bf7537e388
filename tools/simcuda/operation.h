// Operation: one entry of a simulated stream, and what it may touch. The seam between the half that
// knows space (address_space, physical_memory, entry points) and the half that knows time (streams,
// events, executors, captures, the happens-before checker).
#ifndef WEIR_TOOLS_SIMCUDA_OPERATION_H_
#define WEIR_TOOLS_SIMCUDA_OPERATION_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/simcuda/simcuda.h"

namespace weir::sim {

// Contiguous physical bytes behind part of an address range. `store` names the physical object (a
// handle, a classic allocation, a host allocation) and is never used again, so two addresses that
// alias have the same (store, offset), and memory that was released and re-created never has.
struct PhysicalSpan {
  uint64_t store;
  uint64_t offset;
  uint64_t bytes;
  std::byte* host;  // where the simulator keeps these bytes; valid while the store lives
};

// Translates at the time of execution, so that memory unmapped under a queued operation is found.
class AddressTranslator {
 public:
  virtual ~AddressTranslator() = default;
  // Appends the spans of [address, address + bytes) as seen by the device. CUDA_SUCCESS, or
  // CUDA_ERROR_ILLEGAL_ADDRESS where a byte is unmapped or the access right is missing.
  virtual CUresult Translate(int device, CUdeviceptr address, uint64_t bytes, bool write,
                             std::vector<PhysicalSpan>* spans) = 0;
  // Whether the address is the simulator's business: device memory, a reservation (mapped or not,
  // freed ones included as far as known) or pinned host memory. Any other address is plain pageable
  // host memory, which copies may dereference.
  virtual bool Owns(CUdeviceptr address) const = 0;
};

enum class OperationKind {
  kKernel,
  kCopy,
  kFill,
  kHostFunction,
  kEventRecord,
  kEventWait,
  kFreeAsync,
  kGraphLaunch,
};

// Copyable, because graphs keep operations and run them again.
struct Operation {
  OperationKind kind = OperationKind::kKernel;
  std::string label;                // as in checker reports, e.g. "cuMemsetD8Async #12"
  std::vector<Access> accesses;     // device (or pinned host) ranges; translated and checked at run
  std::vector<int> access_devices;  // whose view each access takes; empty: the stream's device
  // Runs when the operation's turn has come, after its accesses were checked. A non-zero result
  // makes the context sticky-broken. Makes no API call. Called with the simulator lock held (by
  // both executors), except kHostFunction, which is user code and runs without it.
  std::function<CUresult()> body;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_OPERATION_H_
