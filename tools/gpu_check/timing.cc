#include "tools/gpu_check/timing.h"

#include "tools/simcuda/cost_model.h"

namespace weir::gpu_check {

double AssumedNs(const char* entry, uint64_t handles, uint64_t bytes) {
  static const sim::CostModel model;
  const int id = sim::FindEntry(entry);
  if (id < 0) throw DriverFailure(DriverStatus(CUDA_ERROR_NOT_FOUND, entry));
  return static_cast<double>(model.Price(static_cast<sim::EntryId>(id), handles, bytes));
}

}  // namespace weir::gpu_check
