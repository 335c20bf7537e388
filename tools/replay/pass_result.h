// What one pass over a trace gave, and its form in the JSON result (weir-replay/1).
#ifndef WEIR_TOOLS_REPLAY_PASS_RESULT_H_
#define WEIR_TOOLS_REPLAY_PASS_RESULT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/replay/replay_options.h"
#include "tools/trace/trace.h"
#include "weir/weir.h"

namespace weir::replay {

// The event number of a failure that belongs to none.
inline constexpr uint64_t kNoEvent = UINT64_MAX;

struct PassResult {
  struct Batch {
    uint64_t events;
    double ns;  // in Weir's calls
  };
  struct TimelinePoint {
    uint64_t event;            // the last one it stands for
    uint64_t requested_bytes;  // most among them
    uint64_t reserved_bytes;   // most that was seen
  };

  uint64_t pass = 1;
  bool failed = false;
  uint64_t failed_event = kNoEvent;
  std::string error;
  uint64_t checker_reports = 0;
  uint64_t memory_bytes = 0;                     // of each device
  std::map<std::string, uint64_t> driver_calls;  // the allocator's
  uint64_t driver_time_ns = 0;
  uint64_t steady_driver_time_ns = 0;  // in the second half of the events
  uint64_t waits = 0;                  // of the host, for markers
  std::vector<Batch> batches;
  std::vector<TimelinePoint> timeline;
  std::vector<weir_stats_t> stats;  // by device

  // Keeps the timeline at `most` points by merging neighbours; maxima stay.
  void AddTimelinePoint(const TimelinePoint& point, size_t most);
};

nlohmann::json ToJson(const PassResult& result, const ReplayOptions& options,
                      const trace::Trace& trace);

// A pass of which nothing is known but that it failed, because the process died.
nlohmann::json DiedJson(const std::string& trace_name, const ReplayOptions& options, uint64_t pass,
                        uint64_t failed_event, const std::string& error);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_PASS_RESULT_H_
