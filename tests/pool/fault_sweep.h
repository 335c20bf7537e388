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

// One call that fails, and what fails from then on.
class FaultPoint {
 public:
  // The nth call of `entry` fails, and from this moment on each call of `then`: "" if none does.
  FaultPoint(std::string entry, uint64_t nth, std::string then, CUresult result)
      : entry_(std::move(entry)), nth_(nth), then_(std::move(then)), result_(result) {}
  FaultPoint(const FaultPoint&) = delete;
  FaultPoint& operator=(const FaultPoint&) = delete;

  void Arm() {
    sim::ResetCallCounts();
    FailCall(entry_, nth_, result_, /*for_ever=*/then_ == entry_);
    is_armed_ = true;
    if (goes_on()) CountCall();
  }
  void Clear() {
    if (is_armed_) was_reached_ = sim::CallCount(entry_) >= nth_;
    is_armed_ = false;
    sim::ClearFaults();
  }
  bool goes_on() const { return !then_.empty(); }  // until it is cleared
  bool was_reached() const { return was_reached_; }

 private:
  void CountCall() {
    sim::OnNextCall(entry_, [this] {
      if (!is_armed_ || then_ == entry_) return;
      if (sim::CallCount(entry_) == nth_) {
        FailCall(then_, 1, result_, /*for_ever=*/true);
      } else {
        CountCall();
      }
    });
  }

  const std::string entry_;
  const uint64_t nth_;
  const std::string then_;
  const CUresult result_;
  bool is_armed_ = false;
  bool was_reached_ = false;
};

// Calls run(point) with the first, second, ... call of each entry to fail, until a run does not
// reach it. The run arms the point and clears it. Returns how many runs reached it.
template <typename Run>
int ForEachFault(const std::vector<std::string>& entries, const std::string& then, CUresult result,
                 Run run) {
  int reached = 0;
  for (const std::string& entry : entries) {
    for (uint64_t nth = 1;; ++nth) {
      INFO(entry << " call " << nth << " fails with " << result << ", then " << then);
      FaultPoint point(entry, nth, then, result);
      run(point);
      if (!point.was_reached()) break;
      ++reached;
    }
  }
  return reached;
}

}  // namespace weir::test

#endif  // WEIR_TESTS_POOL_FAULT_SWEEP_H_
