// Names and function types of all entry points, made from entry_points.inc: the enumeration that
// counters, faults and costs are indexed by, and the prototypes of the functions behind the
// entries.
//
// Each implementation is called with the simulator's lock held, after the checks of entry.h passed.
#ifndef WEIR_TOOLS_SIMCUDA_ENTRY_POINTS_H_
#define WEIR_TOOLS_SIMCUDA_ENTRY_POINTS_H_

#include <cuda.h>
#include <cudaTypedefs.h>

#include <type_traits>

#include "tools/simcuda/time.h"

namespace weir::sim {

// One per driver function, whatever its ABIs.
enum EntryId : int {
#define ENTRY(name, needs, capture) kEntry_##name,
#include "tools/simcuda/entry_points.inc"
  kEntryCount
};

enum class Needs { kNothing, kInit, kHealthy, kContext };  // see entry_points.inc

struct EntryInfo {
  const char* name;
  Needs needs;
  CaptureClass capture;
};

inline constexpr EntryInfo kEntries[] = {
#define ENTRY(name, needs, capture) {#name, Needs::needs, CaptureClass::capture},
#include "tools/simcuda/entry_points.inc"
};

// The implementations, with the types of cudaTypedefs.h.
#define ABI(name, version, elf_name, implementation) \
  std::remove_pointer_t<PFN_##name##_v##version> implementation;
#define ABI_PTSZ(name, version, elf_name, implementation) \
  std::remove_pointer_t<PFN_##name##_v##version##_ptsz> implementation;
#define ABI_PTDS(name, version, elf_name, implementation) \
  std::remove_pointer_t<PFN_##name##_v##version##_ptds> implementation;
#include "tools/simcuda/entry_points.inc"

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_ENTRY_POINTS_H_
