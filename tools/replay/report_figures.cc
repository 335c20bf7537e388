#include "tools/replay/report_figures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>

#include "tools/replay/report.h"
#include "tools/replay/report_text.h"
#include "tools/replay/text.h"

namespace weir::replay {
namespace {

using nlohmann::json;

const json* Find(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() ? nullptr : &*at;
}

std::optional<double> Number(const json& object, const char* key) {
  const json* value = Find(object, key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->get<double>();
}

// An integer is written out: "device" may be "sim" or 0.
std::string Text(const json& object, const char* key) {
  const json* value = Find(object, key);
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  return value->is_number_integer() ? Fixed(value->get<double>(), 0) : "";
}

void ReadDriverCalls(const json& run, ReportRun& to) {
  const json* calls = Find(run, "driver_calls");
  if (calls == nullptr || !calls->is_object()) return;
  double sum = 0;
  for (const auto& [kind, count] : calls->items()) {
    if (!count.is_number()) continue;
    to.calls_by_kind.emplace_back(kind, count.get<double>());
    sum += count.get<double>();
  }
  to.driver_calls = sum;
  std::stable_sort(to.calls_by_kind.begin(), to.calls_by_kind.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
}

void ReadTimeline(const json& run, ReportRun& to) {
  const json* timeline = Find(run, "timeline");
  if (timeline == nullptr || !timeline->is_array()) return;
  for (const json& point : *timeline) {
    const auto event = Number(point, "event");
    const auto requested = Number(point, "requested_bytes");
    const auto reserved = Number(point, "reserved_bytes");
    if (!event || !requested || !reserved) continue;
    // A chart needs events in order; what is out of order is not drawn.
    if (!to.timeline.empty() && *event < to.timeline.back().event) continue;
    to.timeline.push_back({*event, std::max(*requested, 0.0), std::max(*reserved, 0.0)});
  }
}

std::string FailureOf(const json& run) {
  const auto event = Number(run, "failed_event");
  std::string failure = event ? "failed at event " + FormatCount(event) : "did not complete";
  const std::string error = Text(run, "error");
  return error.empty() ? failure : failure + ": " + error;
}

std::optional<double> CheckerReports(const json& run) {
  const json* reports = Find(run, "checker_reports");
  if (reports != nullptr && reports->is_array()) return static_cast<double>(reports->size());
  return Number(run, "checker_reports");
}

ReportRun ReadRun(const json& run, const json& baselines) {
  ReportRun to;
  to.name = TraceName(Text(run, "trace"));
  to.allocator = Text(run, "allocator");
  to.device = Text(run, "device");
  to.pass = static_cast<int>(std::clamp(Number(run, "pass").value_or(1), 0.0, 1e6));
  const json* completed = Find(run, "completed");
  to.completed = completed != nullptr && completed->is_boolean() && completed->get<bool>();
  if (!to.completed) to.failure = FailureOf(run);
  to.memory_bytes = Number(run, "memory_bytes");
  to.allocations = Number(run, "allocations");
  to.peak_requested = Number(run, "peak_requested_bytes");
  to.peak_reserved = Number(run, "peak_reserved_bytes");
  to.ratio = Number(run, "ratio");
  to.driver_time_us = Number(run, "driver_time_us");
  to.steady_driver_time_us = Number(run, "steady_driver_time_us");
  to.ns_per_op = Number(run, "ns_per_op");
  to.checker_reports = CheckerReports(run);
  if (const json* notes = Find(run, "notes"); notes != nullptr && notes->is_array()) {
    for (const json& note : *notes) {
      if (note.is_string()) to.notes.push_back(note.get<std::string>());
    }
  }
  ReadDriverCalls(run, to);
  ReadTimeline(run, to);
  if (const json* baseline = Find(baselines, to.name.c_str())) {
    to.what = Text(*baseline, "what");
    to.native_ratio = Number(*baseline, "native_ratio");
    to.expandable_ratio = Number(*baseline, "expandable_ratio");
  }
  return to;
}

}  // namespace

bool ReportRun::counts() const {
  return completed && pass <= 1 && ratio.value_or(0) > 0 &&
         peak_requested.value_or(0) >= kLeastCountedBytes;
}

std::vector<ReportRun> ReadRuns(const json& replay_result, const json& baselines) {
  std::vector<ReportRun> read;
  const json* runs = Find(replay_result, "runs");
  if (runs == nullptr || !runs->is_array()) return read;
  for (const json& run : *runs) read.push_back(ReadRun(run, baselines));
  return read;
}

std::optional<double> GeometricMean(const std::vector<ReportRun>& runs,
                                    std::optional<double> ReportRun::*figure) {
  double sum = 0;
  int count = 0;
  for (const ReportRun& run : runs) {
    const std::optional<double>& value = run.*figure;
    if (!run.counts() || value.value_or(0) <= 0) continue;
    sum += std::log(*value);
    ++count;
  }
  if (count == 0) return std::nullopt;
  return std::exp(sum / count);
}

std::string TraceName(const std::string& trace) {
  std::string name = trace.substr(trace.find_last_of('/') + 1);
  const auto drop_suffix = [&name](const auto& is_droppable) {
    const size_t dot = name.find_last_of('.');
    if (dot == std::string::npos || dot == 0 || !is_droppable(name.substr(dot + 1))) return;
    name.resize(dot);
  };
  drop_suffix([](const std::string& suffix) { return suffix == "gz"; });
  drop_suffix([](const std::string& suffix) {
    return std::all_of(suffix.begin(), suffix.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  });
  return name;
}

json ReadBaselines(const std::vector<std::string>& trace_paths) {
  json found = json::object();
  for (const std::string& trace : trace_paths) {
    const auto file = std::filesystem::path(trace).parent_path() / "baselines.json";
    std::ifstream stream(file);
    if (!stream) continue;
    const json content = json::parse(stream, nullptr, /*allow_exceptions=*/false);
    const std::string name = TraceName(trace);
    const json* traces = Find(content, "traces");
    const json* entry = traces == nullptr ? nullptr : Find(*traces, name.c_str());
    if (entry != nullptr) found[name] = *entry;
  }
  return found;
}

}  // namespace weir::replay
