// Carries out what map_plan decided: the only code that maps and unmaps memory.
//
// Each function is a transaction: it completes, or it puts back what was there before, whichever
// driver call fails. It works on handles that the caller has taken (Handle::taken), so it needs no
// heap lock and must not hold it; the caller holds the space lock, has proved that no work uses
// what is unmapped, and afterwards tells the heap what is mapped now.
//
// Observers (remap_observers.h) are told before each unmapping, of each mapping for itself, and
// when the memory is accessible at its address. Where the driver refuses to unmap what is
// accessible they are told that it is there again.
#ifndef WEIR_VMM_MAP_EXECUTOR_H_
#define WEIR_VMM_MAP_EXECUTOR_H_

#include <cstdint>
#include <vector>

#include "allocator/driver/device_driver.h"
#include "allocator/vmm/map_plan.h"

namespace weir {

// Unmaps, releases, creates, maps, gives access. The outcome is in the records: Mapping::mapped of
// every `unmapped` mapping and every piece, Handle::id of every released or created handle. After
// success all is as planned. After a failure what was unmapped is mapped again or, where the driver
// refused even that, is not, or its handle is gone (id == 0); pieces are not mapped and created
// handles are gone. A mapping without access that the driver refused to unmap is `mapped` and its
// handle is marked stuck: its range must never be handed out.
DriverStatus ExecuteMapPlan(const DeviceDriver& driver, MapPlan* plan);

// One mapping's addresses, from one handle to another of the same size.
struct Remapping {
  Mapping* mapping;
  Handle* from;
  Handle* to;
  bool done = false;
};
// Sets `done` if the addresses lead to `to` now; else they lead to `from` as before. Where the
// driver refused to map them back `from` is marked stuck: what blocks had there is lost. `to` is
// marked stuck if the driver mapped it without access and refused to unmap it.
DriverStatus ExecuteRemapping(const DeviceDriver& driver, Remapping* remapping);

// A segment by cuMemAlloc, and back. The caller has proved that nothing uses what is freed.
DriverStatus AllocateClassic(const DeviceDriver& driver, uint64_t bytes, DeviceAddress* at);
DriverStatus FreeClassic(const DeviceDriver& driver, DeviceAddress at, uint64_t bytes);

}  // namespace weir

#endif  // WEIR_VMM_MAP_EXECUTOR_H_
