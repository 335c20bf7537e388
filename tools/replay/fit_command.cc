#include "tools/replay/fit_command.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/replay/fit_print.h"
#include "tools/replay/fit_probe.h"
#include "tools/replay/forked.h"
#include "tools/replay/replay_child.h"
#include "tools/replay/replay_command.h"
#include "tools/trace/trace_io.h"
#include "weir/weir.h"

namespace weir::replay {
namespace {

using nlohmann::json;

// What one process does.
struct Job {
  std::string path;
  std::string allocator;
  std::string weir_options;
};

template <typename Figure>
json OrNull(const Figure& figure) {
  return figure ? json(*figure) : json();
}

void AddPoints(const FitPoint& point, json* curve) {
  const std::pair<int, const FitPass*> passes[] = {{1, &point.first},
                                                   {int{kFitPasses}, &point.fifth}};
  for (const auto& [number, pass] : passes) {
    json entry = {{"capacity_bytes", point.capacity_bytes},
                  {"factor", OrNull(point.factor)},
                  {"pass", number},
                  {"completed", pass->completed},
                  {"driver_calls", OrNull(pass->driver_calls)},
                  {"driver_time_us", OrNull(pass->driver_time_us)},
                  {"waits", OrNull(pass->waits)},
                  {"peak_reserved_bytes", OrNull(pass->peak_reserved_bytes)}};
    if (!pass->completed) entry["error"] = point.error;
    curve->push_back(std::move(entry));
  }
}

json Search(const Job& job, uint64_t scale) {
  absl::StatusOr<trace::Trace> trace = trace::ReadTrace(job.path);
  if (!trace.ok()) return {{"input_error", std::string(trace.status().message())}};
  for (trace::TraceEvent& event : trace->events) {
    if (event.bytes > trace::kMaxBlockBytes / scale) {
      return {{"input_error", job.path + ": --scale makes blocks that are too large"}};
    }
    event.bytes *= scale;
  }
  const uint64_t peak = PeakOfOneDevice(*trace);
  if (peak == 0) return {{"input_error", job.path + ": the trace allocates nothing"}};
  const Fit fit = SearchFit(peak, WeirProbe(*trace, job.weir_options));
  json run = {{"trace", trace->name},         {"allocator", job.allocator},
              {"options", job.weir_options},  {"scale", scale},
              {"peak_requested_bytes", peak}, {"fits_in_bytes", OrNull(fit.fits_in_bytes)},
              {"fits_in_ratio", nullptr},     {"resolution_bytes", fit.resolution_bytes},
              {"curve", json::array()}};
  if (fit.fits_in_bytes) {
    run["fits_in_ratio"] = static_cast<double>(*fit.fits_in_bytes) / static_cast<double>(peak);
  }
  for (const FitPoint& point : fit.curve) AddPoints(point, &run["curve"]);
  if (!fit.error.empty()) run["error"] = fit.error;
  return run;
}

// Whether Weir reads the options: asked in another process, because this one must not use Weir.
bool CheckOptions(const std::string& options) {
  const ForkOutcome outcome = RunInFork([&] {
    return std::string(weir_configure(options.c_str()) == WEIR_OK ? "" : weir_last_error());
  });
  if (outcome.output.empty()) return true;
  std::fprintf(stderr, "weir: --options: %s\n", outcome.output.c_str());
  return false;
}

}  // namespace

int RunFitCommand(const FitCommand& command) {
  std::vector<std::string> variants = command.weir_options;
  if (variants.empty()) variants.emplace_back();
  for (const std::string& options : command.weir_options) {
    if (!CheckOptions(options)) return kExitBadInput;
  }
  std::vector<Job> jobs;
  for (const std::string& allocator : command.allocators) {
    for (const std::string& options : variants) {
      for (const std::string& path : command.traces) jobs.push_back({path, allocator, options});
    }
  }

  int status = 0;
  std::vector<json> runs(jobs.size());
  const auto on_done = [&](size_t i, const ForkOutcome& outcome) {
    json run = json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
    if (!run.is_object() || !outcome.failure.empty()) {
      run = {{"input_error", jobs[i].path + ": the search " + outcome.failure}};
    }
    if (run.contains("input_error")) {
      std::fprintf(stderr, "weir: %s\n", run["input_error"].get<std::string>().c_str());
      status = kExitBadInput;
      return;
    }
    if (!run["fits_in_bytes"].is_number() && status == 0) status = kExitFailed;
    PrintFit(ReadFits(json::array({run})).front());
    runs[i] = std::move(run);
  };
  RunInForks(
      jobs.size(), command.parallel,
      [&](size_t i) { return DumpJson(Search(jobs[i], command.scale)); }, on_done,
      [](const std::vector<size_t>&) {});

  json result = {{"schema", "weir-fit/1"}, {"runs", json::array()}};
  for (json& run : runs) {
    if (run.is_object()) result["runs"].push_back(std::move(run));
  }
  PrintFitSummary(ReadFits(result["runs"]));
  if (!command.json_path.empty() && !WriteText(command.json_path, DumpJson(result, 1) + "\n")) {
    status = kExitBadInput;
  }
  return status;
}

}  // namespace weir::replay
