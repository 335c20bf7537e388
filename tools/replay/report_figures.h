// What the report shows of a "weir-replay/1" result: its runs as plain values, and the figures that
// are computed from several runs. Accepts results of any shape; what is missing stays empty.
#ifndef WEIR_TOOLS_REPLAY_REPORT_FIGURES_H_
#define WEIR_TOOLS_REPLAY_REPORT_FIGURES_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/replay/report_chart.h"

namespace weir::replay {

struct ReportRun {
  std::string name;  // TraceName of the run's "trace"
  std::string allocator;
  std::string device;  // "sim", or a GPU, "cuda:0"
  int pass = 1;
  bool completed = false;
  std::string failure;  // empty if completed
  std::optional<double> memory_bytes, allocations, peak_requested, peak_reserved, ratio;
  std::optional<double> driver_calls, driver_time_us, steady_driver_time_us, ns_per_op;
  std::optional<double> checker_reports;
  std::vector<std::pair<std::string, double>> calls_by_kind;  // most frequent first
  std::vector<std::string> notes;                             // what the replay says of the trace
  std::vector<TimelinePoint> timeline;

  // PyTorch's allocators on the program that the trace was recorded from.
  std::string what;
  std::optional<double> native_ratio, expandable_ratio;

  bool simulated() const { return device == "sim"; }

  // Whether the ratio is part of means: a first pass that completed, of a trace that is more than
  // a few granules (there the ratio says nothing but how small the trace is).
  bool counts() const;
};

// Traces with a lower peak are shown, but not part of means.
inline constexpr double kLeastCountedBytes = 64.0 * 1024 * 1024;

std::vector<ReportRun> ReadRuns(const nlohmann::json& replay_result,
                                const nlohmann::json& baselines);

// Geometric mean of what `figure` points to, over the runs that count and carry it; nothing if
// none.
std::optional<double> GeometricMean(const std::vector<ReportRun>& runs,
                                    std::optional<double> ReportRun::*figure);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPORT_FIGURES_H_
