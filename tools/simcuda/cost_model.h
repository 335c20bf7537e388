// The modelled cost of driver calls, in virtual ns: a fixed part per call, one per physical handle
// touched and one per MiB. Under the simulator's lock.
//
// The defaults are ASSUMED, not measured (sources: cost_model.cc). They serve to compare numbers of
// calls in one unit, never as a claim about a real driver.
#ifndef WEIR_TOOLS_SIMCUDA_COST_MODEL_H_
#define WEIR_TOOLS_SIMCUDA_COST_MODEL_H_

#include <cstdint>
#include <string_view>

#include "tools/simcuda/entry_points.h"
#include "tools/simcuda/simcuda.h"

namespace weir::sim {

// The entry of this name, or -1.
int FindEntry(std::string_view name);

class CostModel {
 public:
  CostModel() { SetDefaults(); }

  void SetDefaults();
  // Unknown names are ignored: there is no such call to charge.
  void Set(std::string_view entry, Cost cost);
  uint64_t Price(EntryId entry, uint64_t handles, uint64_t bytes) const;

 private:
  Cost costs_[kEntryCount];
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_COST_MODEL_H_
