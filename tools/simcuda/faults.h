// Faults that tests inject into entry points. Under the simulator's lock.
#ifndef WEIR_TOOLS_SIMCUDA_FAULTS_H_
#define WEIR_TOOLS_SIMCUDA_FAULTS_H_

#include <cuda.h>

#include <string_view>
#include <vector>

#include "tools/simcuda/simcuda.h"

namespace weir::sim {

class Faults {
 public:
  void Add(const Fault& fault) { faults_.push_back({fault, fault.nth}); }
  void Clear() { faults_.clear(); }

  // Counts the call for every fault that names the entry. CUDA_SUCCESS, or what the call must
  // answer; *sticky then tells whether the context breaks with it. The first fault that is due
  // wins.
  CUresult Next(std::string_view entry, bool* sticky) {
    return faults_.empty() ? CUDA_SUCCESS : NextOfMany(entry, sticky);
  }

 private:
  struct Armed {
    Fault fault;
    uint64_t calls_left;  // until it fires; 0 afterwards
  };
  CUresult NextOfMany(std::string_view entry, bool* sticky);

  std::vector<Armed> faults_;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_FAULTS_H_
