#include "tools/replay/fit_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/replay/bench_program.h"
#include "tools/replay/fit_print.h"
#include "tools/replay/fit_probe.h"
#include "tools/replay/fit_report.h"
#include "tools/replay/forked.h"
#include "tools/replay/replay_child.h"
#include "tools/replay/replay_command.h"
#include "tools/trace/trace_io.h"
#include "weir/weir.h"

namespace weir::replay {
namespace {

using nlohmann::json;

constexpr const char* kWeir = "weir";
// Those of bench/run that allocate device memory.
constexpr const char* kOthers[] = {"torch", "torch_expandable", "rmm_pool", "rmm_arena", "cub",
                                   "cuda",  "cuda_async"};

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
  const Fit fit =
      SearchFit(peak, job.allocator == kWeir ? WeirProbe(*trace, job.weir_options)
                                             : ProgramProbe(job.allocator, job.path, scale));
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

// "" if Weir reads the options: asked in another process, because this one must not use Weir.
std::string WrongOptions(const std::string& options) {
  const ForkOutcome outcome = RunInFork([&] {
    return std::string(weir_configure(options.c_str()) == WEIR_OK ? "" : weir_last_error());
  });
  return outcome.failure.empty() ? outcome.output : outcome.failure;
}

std::string WrongAllocator(const std::string& name) {
  if (name == kWeir) return "";
  if (std::find(std::begin(kOthers), std::end(kOthers), name) == std::end(kOthers)) {
    return absl::StrCat("there are weir, ", absl::StrJoin(kOthers, ", "));
  }
  const std::string program = BenchProgram::PathOf(name);
  if (access(program.c_str(), X_OK) == 0) return "";
  return program + " is not built: run bench/run first";
}

bool CheckCommand(const FitCommand& command) {
  if (const std::string wrong = WrongOptions(""); !wrong.empty()) {  // WEIR_CONF
    std::fprintf(stderr, "weir: %s\n", wrong.c_str());
    return false;
  }
  for (const std::string& options : command.weir_options) {
    if (const std::string wrong = WrongOptions(options); !wrong.empty()) {
      std::fprintf(stderr, "weir: --options: %s\n", wrong.c_str());
      return false;
    }
  }
  for (const std::string& name : command.allocators) {
    if (const std::string wrong = WrongAllocator(name); !wrong.empty()) {
      std::fprintf(stderr, "weir: --allocator %s: %s\n", name.c_str(), wrong.c_str());
      return false;
    }
  }
  return true;
}

std::vector<Job> JobsOf(const FitCommand& command) {
  std::vector<Job> jobs;
  for (const std::string& allocator : command.allocators) {
    std::vector<std::string> variants = {""};
    if (allocator == kWeir && !command.weir_options.empty()) variants = command.weir_options;
    for (const std::string& options : variants) {
      for (const std::string& path : command.traces) jobs.push_back({path, allocator, options});
    }
  }
  return jobs;
}

}  // namespace

int RunFitCommand(const FitCommand& command) {
  if (!CheckCommand(command)) return kExitBadInput;
  const std::vector<Job> jobs = JobsOf(command);
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
  const std::vector<FitRun> fits = ReadFits(result["runs"]);
  PrintFitSummary(fits);
  if (!command.json_path.empty() && !WriteText(command.json_path, DumpJson(result, 1) + "\n")) {
    status = kExitBadInput;
  }
  if (!command.report_path.empty() && !WriteText(command.report_path, RenderFitReport(fits))) {
    status = kExitBadInput;
  }
  return status;
}

}  // namespace weir::replay
