// Replayer: makes a trace's calls of Weir's C API in this process, pass after pass, and measures.
// Not thread-safe.
#ifndef WEIR_TOOLS_REPLAY_REPLAYER_H_
#define WEIR_TOOLS_REPLAY_REPLAYER_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/replay/driver_calls.h"
#include "tools/replay/lag.h"
#include "tools/replay/pass_result.h"
#include "tools/replay/progress.h"
#include "tools/replay/replay_options.h"
#include "tools/replay/verifier.h"
#include "tools/trace/trace.h"

namespace weir::replay {

class Replayer {
 public:
  // `progress` may be null. It and the trace outlive the object.
  Replayer(const ReplayOptions& options, const trace::Trace& trace, Progress* progress);

  // How many devices the trace needs: its ordinals are numbered anew, without gaps.
  int devices() const { return devices_; }

  // All passes, or up to the first that fails: the "runs" of weir-replay/1. What a pass leaves live
  // is freed before the next. Not to be called again.
  nlohmann::json Run();

 private:
  struct Live {
    void* pointer = nullptr;
    uint64_t bytes = 0;
    uint16_t stream = 0;
  };

  bool Prepare();  // driver, streams, limits
  bool CreateStreams();
  void BeginPass(uint64_t pass);
  bool RunEvents();
  void EndPass();
  // One event, and the same with its verification. False if it failed.
  bool Plain(uint64_t index);
  bool Verified(uint64_t index);
  bool VerifiedAlloc(uint64_t index, const trace::TraceEvent& event);
  bool VerifiedFree(uint64_t index, const trace::TraceEvent& event);
  bool VerifiedUse(uint64_t index, const trace::TraceEvent& event);
  bool CheckPass();                                // what verification found
  bool FreeRest();                                 // what is live at a pass's end
  bool LagBehind(const trace::TraceEvent& event);  // work of the event's stream, if it may end late
  uint64_t Waits() const;                          // of Weir so far
  bool Fail(uint64_t index, const std::string& what);
  bool FailFromWeir(uint64_t index, const char* call);
  bool FailFromDriver(uint64_t index) { return Fail(index, driver_.error()); }
  template <typename Call>
  auto Timed(Call call);

  void SampleTimeline(uint64_t first, uint64_t end);
  int DeviceOf(const trace::TraceEvent& event) const { return device_map_[event.device]; }
  // As Weir numbers it.
  int OrdinalOf(int device) const { return options_.simulated ? device : options_.device + device; }
  Verifier::Block BlockOf(const trace::TraceEvent& event) const;
  uint64_t DriverTimeNs() const;  // the allocator's alone

  const ReplayOptions options_;
  const trace::Trace& trace_;
  Progress* const progress_;
  int devices_ = 0;
  std::vector<int> device_map_;  // by the trace's ordinal
  DriverCalls driver_;
  Verifier verifier_;
  Lag lag_;
  std::vector<CUstream> streams_;     // by the trace's index
  std::vector<uint16_t> stream_map_;  // --streams one: the device's first
  std::vector<Live> live_;            // by block; bytes stay after the free

  // Of the pass under way.
  PassResult result_;
  std::map<std::string, uint64_t> own_calls_before_;
  uint64_t start_time_ns_ = 0;  // DriverTimeNs
  uint64_t half_time_ns_ = 0;
  uint64_t start_waits_ = 0;
  double timed_ns_ = 0;           // of the batch under way
  uint64_t requested_bytes_ = 0;  // live, for the timeline
};

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPLAYER_H_
