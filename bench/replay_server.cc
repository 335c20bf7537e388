#include "bench/replay_server.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/allocator.h"
#include "bench/device.h"
#include "bench/trace_ops.h"
#include "tools/replay/forked.h"
#include "tools/trace/trace.h"
#include "tools/trace/trace_io.h"

namespace weir::bench {
namespace {

using nlohmann::json;

std::map<std::string, uint64_t> CallsSince(const std::map<std::string, uint64_t>& before) {
  std::map<std::string, uint64_t> calls;
  for (const auto& [entry, count] : SimulatedCallsByEntry()) {
    const auto found = before.find(entry);
    const uint64_t new_ones = count - (found == before.end() ? 0 : found->second);
    if (new_ones > 0) calls[entry] = new_ones;
  }
  return calls;
}

// One pass. Like weir-replay/1's, its figures leave out the frees that close the trace.
json RunPass(const trace::Trace& trace, const std::vector<TraceOp>& ops, std::vector<void*>* live) {
  const std::map<std::string, uint64_t> calls_before = SimulatedCallsByEntry();
  const uint64_t time_before = SimulatedTimeNs();
  uint64_t peak_reserved = SimulatedUsedBytes();
  json run = {{"completed", true}, {"failed_event", nullptr}};
  size_t next = 0;
  for (; next < ops.size() && ops[next].event < trace.events.size(); ++next) {
    const TraceOp& op = ops[next];
    if (!RunTraceOp(op, live)) {
      run["completed"] = false;
      run["failed_event"] = op.event;
      run["error"] = absl::StrCat("an allocation of ", op.bytes, " bytes failed");
      break;
    }
    if (op.kind == trace::EventKind::kAlloc) {
      peak_reserved = std::max(peak_reserved, SimulatedUsedBytes());
    }
  }
  run["driver_time_us"] = static_cast<double>(SimulatedTimeNs() - time_before) / 1e3;
  run["driver_calls"] = CallsSince(calls_before);
  run["peak_reserved_bytes"] = peak_reserved;
  if (run["completed"] == true) {
    for (; next < ops.size(); ++next) RunTraceOp(ops[next], live);
  }
  return run;
}

// In a process of its own.
json Replay(const trace::Trace& trace, uint64_t bytes, uint64_t passes) {
  ConfigureSimulatedDevice(bytes);
  std::string error;
  json runs = json::array();
  if (!Start({}, &error)) {
    // Most often because the device is too small for what the allocator takes at its start.
    runs.push_back({{"pass", 1}, {"completed", false}, {"failed_event", 0}, {"error", error}});
    return runs;
  }
  StartThread();
  Reset();
  const std::vector<TraceOp> ops = MakeTraceOps(trace);
  std::vector<void*> live(trace.blocks);
  for (uint64_t pass = 1; pass <= passes; ++pass) {
    json run = RunPass(trace, ops, &live);
    run["pass"] = pass;
    runs.push_back(run);
    if (run["completed"] == false) break;
  }
  return runs;
}

// What is wrong with the trace for this program, "" if nothing is. Scales it.
std::string Prepare(uint64_t scale, trace::Trace* trace) {
  for (trace::TraceEvent& event : trace->events) {
    if (scale == 0 || event.bytes > trace::kMaxBlockBytes / scale) return "--scale is out of range";
    event.bytes *= scale;
    if (event.device != trace->events.front().device) {
      return "the trace uses several devices, which only Weir is replayed on";
    }
  }
  if (!Info().device) return Info().name + " allocates no device memory";
  return "";
}

}  // namespace

int ServeReplays(const std::string& trace_path, uint64_t scale) {
  absl::StatusOr<trace::Trace> trace = trace::ReadTrace(trace_path);
  const std::string wrong =
      trace.ok() ? Prepare(scale, &*trace) : std::string(trace.status().message());
  uint64_t bytes = 0, passes = 0;
  while (std::scanf("%" SCNu64 " %" SCNu64, &bytes, &passes) == 2) {
    json answer = {{"error", wrong}};
    if (wrong.empty()) {
      const replay::ForkOutcome outcome = replay::RunInFork([&] {
        return json({{"runs", Replay(*trace, bytes, passes)}}).dump();
      });
      answer = json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
      if (!answer.is_object() || !outcome.failure.empty()) {
        answer = {{"error", "the replay " + outcome.failure}};
      }
    }
    std::printf("%s\n", answer.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace weir::bench
