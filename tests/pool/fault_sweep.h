// Runs a scenario once for each position at which a driver call of it can fail.
#ifndef WEIR_TESTS_POOL_FAULT_SWEEP_H_
#define WEIR_TESTS_POOL_FAULT_SWEEP_H_

#include <string>
#include <utility>
#include <vector>

#include "tests/pool/heap_fixture.h"

namespace weir::test {

// What the heap calls when it maps, gives back, copies and proves that work is done.
inline std::vector<std::string> HeapEntries() {
  return {"cuMemCreate",        "cuMemRelease",
          "cuMemMap",           "cuMemUnmap",
          "cuMemSetAccess",     "cuMemAddressReserve",
          "cuMemAddressFree",   "cuMemAlloc",
          "cuMemFree",          "cuMemGetInfo",
          "cuMemcpyAsync",      "cuEventCreate",
          "cuEventRecord",      "cuEventQuery",
          "cuEventSynchronize", "cuStreamWaitEvent",
          "cuCtxRecordEvent",   "cuCtxSynchronize",
          "cuCtxPushCurrent",   "cuStreamIsCapturing",
          "cuCtxPopCurrent",    "cuThreadExchangeStreamCaptureMode"};
}

// One call that fails, or all from one on.
class FaultPoint {
 public:
  FaultPoint(std::string entry, uint64_t nth, CUresult result, bool for_ever)
      : entry_(std::move(entry)), nth_(nth), result_(result), for_ever_(for_ever) {}

  void Arm() {
    sim::ResetCallCounts();
    FailCall(entry_, nth_, result_, for_ever_);
    is_armed_ = true;
  }
  void Clear() {
    if (is_armed_) was_reached_ = sim::CallCount(entry_) >= nth_;
    is_armed_ = false;
    sim::ClearFaults();
  }
  bool for_ever() const { return for_ever_; }
  bool was_reached() const { return was_reached_; }

 private:
  const std::string entry_;
  const uint64_t nth_;
  const CUresult result_;
  const bool for_ever_;
  bool is_armed_ = false;
  bool was_reached_ = false;
};

// Calls run(point) with the first, second, ... call of each entry to fail, until a run does not
// reach it. The run arms the point and clears it. Returns how many runs reached it.
template <typename Run>
int ForEachFault(const std::vector<std::string>& entries, CUresult result, bool for_ever, Run run) {
  int reached = 0;
  for (const std::string& entry : entries) {
    for (uint64_t nth = 1;; ++nth) {
      INFO(entry << " call " << nth << " fails with " << result);
      FaultPoint point(entry, nth, result, for_ever);
      run(point);
      if (!point.was_reached()) break;
      ++reached;
    }
  }
  return reached;
}

}  // namespace weir::test

#endif  // WEIR_TESTS_POOL_FAULT_SWEEP_H_
