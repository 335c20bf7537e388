// Carries out what map_plan decided: the only code that maps and unmaps memory.
//
// Each function is a transaction: it completes, or it puts back what was there before, whichever
// driver call fails. It works on handles that the caller has taken (Handle::taken), so it needs no
// heap lock and must not hold it; the caller holds the space lock, has proved that no work uses the
// victims, and afterwards tells the heap what every handle's `at` is now.
#ifndef WEIR_VMM_MAP_EXECUTOR_H_
#define WEIR_VMM_MAP_EXECUTOR_H_

#include <cstdint>
#include <vector>

#include "allocator/driver/device_driver.h"
#include "allocator/vmm/map_plan.h"

namespace weir {

// Unmaps the victims, releases those that do not tile, creates, maps, gives access. After success
// every piece's handle has its new `at`, released handles have id == 0. After a failure victims are
// back at their old address or, where the driver refused even that, are spares (at == 0) or gone
// (id == 0); created handles are gone (id == 0). A handle that is left mapped without access
// because the driver refused to unmap it is marked stuck: its range must never be handed out.
DriverStatus ExecuteMapPlan(const DeviceDriver& driver, MapPlan* plan);

// Unmaps (if mapped) and releases a handle. On failure it is where it was, or a spare.
DriverStatus UnmapAndRelease(const DeviceDriver& driver, Handle* handle);

}  // namespace weir

#endif  // WEIR_VMM_MAP_EXECUTOR_H_
