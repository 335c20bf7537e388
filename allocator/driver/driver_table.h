// DriverTable: the CUDA driver's entry points as typed pointers. Which ones there are, in which
// ABI, and the contract of each: entry_points.inc. Filled once by loader.h and then read only.
#ifndef WEIR_DRIVER_DRIVER_TABLE_H_
#define WEIR_DRIVER_DRIVER_TABLE_H_

#include <cuda.h>
#include <cudaTypedefs.h>

namespace weir {

struct DriverTable {
  // Optional entries may be null.
#define WEIR_DRIVER_ENTRY(Name, version, need) PFN_cu##Name##_v##version Name = nullptr;
#include "allocator/driver/entry_points.inc"
};

}  // namespace weir

#endif  // WEIR_DRIVER_DRIVER_TABLE_H_
