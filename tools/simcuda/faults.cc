#include "tools/simcuda/faults.h"

namespace weir::sim {

CUresult Faults::NextOfMany(std::string_view entry, bool* sticky) {
  CUresult result = CUDA_SUCCESS;
  for (Armed& armed : faults_) {
    if (armed.fault.entry != "*" && armed.fault.entry != entry) continue;
    bool due = armed.calls_left == 0 && armed.fault.every_later_too;
    if (armed.calls_left > 0) due = --armed.calls_left == 0;
    if (!due || result != CUDA_SUCCESS) continue;
    result = armed.fault.result;
    *sticky = armed.fault.sticky;
  }
  return result;
}

}  // namespace weir::sim
