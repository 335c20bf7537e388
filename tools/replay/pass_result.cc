#include "tools/replay/pass_result.h"

#include <algorithm>

namespace weir::replay {
namespace {

using nlohmann::json;

json EventOrNull(uint64_t event) { return event == kNoEvent ? json() : json(event); }

// Null where there is nothing to divide by.
json Quotient(double dividend, double divisor) {
  return divisor > 0 ? json(dividend / divisor) : json();
}

void AddStats(const PassResult& result, json* run) {
  weir_stats_t sum = {};
  for (const weir_stats_t& stats : result.stats) {
    sum.peak_requested_bytes += stats.peak_requested_bytes;
    sum.peak_active_bytes += stats.peak_active_bytes;
    sum.peak_reserved_bytes += stats.peak_reserved_bytes;
    sum.misses += stats.misses;
    sum.remapped_bytes += stats.remapped_bytes;
    sum.deferred_frees += stats.deferred_frees;
  }
  const auto requested = static_cast<double>(sum.peak_requested_bytes);
  const auto active = static_cast<double>(sum.peak_active_bytes);
  const auto reserved = static_cast<double>(sum.peak_reserved_bytes);
  (*run)["peak_requested_bytes"] = sum.peak_requested_bytes;
  (*run)["peak_active_bytes"] = sum.peak_active_bytes;
  (*run)["peak_reserved_bytes"] = sum.peak_reserved_bytes;
  (*run)["ratio"] = Quotient(reserved, requested);
  (*run)["fragmentation"] = Quotient(reserved - active, reserved);
  // Since the first pass began.
  (*run)["total_misses"] = sum.misses;
  (*run)["total_remapped_bytes"] = sum.remapped_bytes;
  (*run)["total_deferred_frees"] = sum.deferred_frees;
}

void AddSpeed(const PassResult& result, json* run) {
  double ns = 0, events = 0;
  std::vector<double> per_event;
  for (const PassResult::Batch& batch : result.batches) {
    ns += batch.ns;
    events += static_cast<double>(batch.events);
    per_event.push_back(batch.ns / static_cast<double>(batch.events));
  }
  (*run)["ns_per_op"] = Quotient(ns, events);
  if (per_event.empty()) return;
  const auto middle = per_event.begin() + static_cast<std::ptrdiff_t>(per_event.size() / 2);
  std::nth_element(per_event.begin(), middle, per_event.end());
  (*run)["median_ns_per_op"] = *middle;
}

json Begin(const std::string& trace_name, const ReplayOptions& options, uint64_t pass) {
  return {
      {"trace", trace_name}, {"allocator", "weir"},        {"device", options.DeviceName()},
      {"pass", pass},        {"verified", options.verify}, {"streams_mode", options.StreamsMode()},
      {"lag", options.lag}};
}

}  // namespace

void PassResult::AddTimelinePoint(const TimelinePoint& point, size_t most) {
  timeline.push_back(point);
  if (timeline.size() < 2 * most) return;
  for (size_t i = 0; i + 1 < timeline.size(); i += 2) {
    const TimelinePoint &a = timeline[i], &b = timeline[i + 1];
    timeline[i / 2] = {b.event, std::max(a.requested_bytes, b.requested_bytes),
                       std::max(a.reserved_bytes, b.reserved_bytes)};
  }
  timeline.resize(timeline.size() / 2);
}

json ToJson(const PassResult& result, const ReplayOptions& options, const trace::Trace& trace) {
  const trace::TraceSummary summary = trace::Summarize(trace);
  json run = Begin(trace.name, options, result.pass);
  run["source"] = trace.source;
  run["notes"] = trace.notes;
  run["events"] = trace.events.size();
  run["streams"] = trace.streams.size();
  run["devices"] = result.stats.size();
  run["uses"] = summary.uses;
  run["memory_bytes"] = result.memory_bytes;
  run["allocations"] = summary.allocations;
  run["driver_calls"] = result.driver_calls;
  run["driver_time_us"] = static_cast<double>(result.driver_time_ns) / 1e3;
  run["steady_driver_time_us"] = static_cast<double>(result.steady_driver_time_ns) / 1e3;
  run["completed"] = !result.failed;
  run["failed_event"] = EventOrNull(result.failed_event);
  run["checker_reports"] = result.checker_reports;
  run["waits"] = result.waits;
  if (result.failed) run["error"] = result.error;
  AddStats(result, &run);
  AddSpeed(result, &run);
  if (options.timeline) {
    json& timeline = run["timeline"] = json::array();
    for (const PassResult::TimelinePoint& point : result.timeline) {
      timeline.push_back({{"event", point.event},
                          {"requested_bytes", point.requested_bytes},
                          {"reserved_bytes", point.reserved_bytes}});
    }
  }
  return run;
}

json DiedJson(const std::string& trace_name, const ReplayOptions& options, uint64_t pass,
              uint64_t failed_event, const std::string& error) {
  json run = Begin(trace_name, options, pass);
  for (const char* key : {"allocations", "peak_requested_bytes", "peak_reserved_bytes", "ratio",
                          "driver_time_us", "steady_driver_time_us", "ns_per_op"}) {
    run[key] = nullptr;
  }
  run["memory_bytes"] = options.memory_bytes;
  run["waits"] = nullptr;
  run["driver_calls"] = json::object();
  run["completed"] = false;
  run["failed_event"] = EventOrNull(failed_event);
  run["checker_reports"] = 0;
  run["error"] = error;
  return run;
}

}  // namespace weir::replay
