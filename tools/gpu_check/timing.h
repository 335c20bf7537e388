// What checks of durations share: samples in the clock that slow driver calls are charged by (the
// monotonic clock on a GPU, virtual time on the simulated device), and what the cost model of
// tools/simcuda says of the same calls.
#ifndef WEIR_TOOLS_GPU_CHECK_TIMING_H_
#define WEIR_TOOLS_GPU_CHECK_TIMING_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "allocator/base/bytes.h"
#include "tools/gpu_check/check.h"
#include "tools/gpu_check/gpu.h"

namespace weir::gpu_check {

class Samples {
 public:
  // Times `calls` calls, which must succeed: one sample, of a call.
  template <typename Call>
  void Time(const Gpu& gpu, const char* name, Call call, int calls = 1) {
    CUresult result = CUDA_SUCCESS;
    const uint64_t begin = gpu.NowNs();
    for (int i = 0; i < calls && result == CUDA_SUCCESS; ++i) result = call();
    const uint64_t end = gpu.NowNs();
    Must(result, name);
    ns_.push_back(static_cast<double>(end - begin) / calls);
  }
  // 0 if there is none.
  double Median() {
    if (ns_.empty()) return 0;
    const auto middle = ns_.begin() + static_cast<ptrdiff_t>(ns_.size() / 2);
    std::nth_element(ns_.begin(), middle, ns_.end());
    return *middle;
  }

 private:
  std::vector<double> ns_;
};

// What the cost model assumes of one call that touches so many handles and bytes. Always the
// defaults: what a test gave to sim::SetCost is no assumption.
double AssumedNs(const char* entry, uint64_t handles = 0, uint64_t bytes = 0);

// Text of a time, in us: "0.05 us", "20.0 us".
inline std::string Us(double ns) {
  char text[32];
  std::snprintf(text, sizeof(text), ns < 1000 ? "%.2f us" : "%.1f us", ns / 1000);
  return text;
}
// "20.0 us (model 20.0)"
inline std::string UsBesideModel(double ns, double assumed_ns) {
  const std::string model = Us(assumed_ns);
  return Us(ns) + " (model " + model.substr(0, model.size() - 3) + ")";
}

inline bool IsWithin3x(double measured, double assumed) {
  return measured <= 3 * assumed && measured * 3 >= assumed;
}

inline void LabelClock(const Gpu& gpu, Answer* answer) {
  answer->detail["clock"] =
      gpu.simulated() ? "virtual: modelled costs, not measured" : "monotonic clock";
  if (gpu.simulated()) answer->observed += " (modelled)";
}

}  // namespace weir::gpu_check

#endif  // WEIR_TOOLS_GPU_CHECK_TIMING_H_
