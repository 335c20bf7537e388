#include "tools/simcuda/runtime/driver_table.h"

#include "tools/simcuda/entry_points.h"
#include "tools/simcuda/faces.h"

namespace weir::sim::runtime {
namespace {

// Entries that do not exist do not compile (kEntry_...). They are found by name and not through
// cuGetProcAddress, which would show up in the counters and depends on the driver's version.
#define WEIR_CHECK(name, version) static_assert(kEntry_##name >= 0);
WEIR_RUNTIME_DRIVER_FUNCTIONS(WEIR_CHECK)
#undef WEIR_CHECK

}  // namespace

const DriverTable& Driver() {
  // No macro between the list and this one: cuda.h defines many of the names as macros.
#define WEIR_FIND(name, version) \
  reinterpret_cast<PFN_##name##_v##version>(simcuda_find_entry(#name, version, 0)),
  static const DriverTable table = {WEIR_RUNTIME_DRIVER_FUNCTIONS(WEIR_FIND)};
#undef WEIR_FIND
  return table;
}

}  // namespace weir::sim::runtime
