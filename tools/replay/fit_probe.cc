#include "tools/replay/fit_probe.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/replay/bench_program.h"
#include "tools/replay/forked.h"
#include "tools/replay/replay_child.h"

namespace weir::replay {
namespace {

using nlohmann::json;

template <typename Number>
std::optional<Number> Figure(const json& run, const char* key) {
  const auto found = run.find(key);
  if (found == run.end() || !found->is_number()) return std::nullopt;
  return found->get<Number>();
}

ProbeResult Broken(const std::string& why) {
  ProbeResult result;
  result.broken = true;
  result.error = why;
  return result;
}

}  // namespace

ProbeResult ReadProbe(const json& runs) {
  ProbeResult result;
  for (const json& run : runs) {
    FitPass pass;
    pass.completed = run.value("completed", false);
    pass.driver_time_us = Figure<double>(run, "driver_time_us");
    pass.waits = Figure<uint64_t>(run, "waits");
    pass.peak_reserved_bytes = Figure<uint64_t>(run, "peak_reserved_bytes");
    uint64_t calls = 0;
    const json by_entry = run.value("driver_calls", json::object());
    for (const auto& [entry, count] : by_entry.items()) {
      calls += count.get<uint64_t>();
    }
    pass.driver_calls = calls;
    result.passes.push_back(pass);
    if (pass.completed) continue;
    const std::string error = run.value("error", "");
    const std::optional<uint64_t> event = Figure<uint64_t>(run, "failed_event");
    result.broken = !event;  // the replay never began
    result.error = event ? absl::StrCat("event ", *event, ": ", error) : error;
  }
  return result;
}

Probe WeirProbe(const trace::Trace& trace, const std::string& weir_options) {
  return [&trace, weir_options](uint64_t bytes, uint64_t passes) {
    ReplayOptions options;
    options.memory_bytes = bytes;
    options.passes = passes;
    options.weir_options = weir_options;
    const ForkOutcome outcome =
        RunInFork([&] { return DumpJson(ReplayHere(options, trace, /*progress=*/nullptr)); });
    if (!outcome.failure.empty()) {
      return Broken(absl::StrCat("on a device of ", bytes, " bytes the replay ", outcome.failure));
    }
    const json result = json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
    if (!result.is_object()) return Broken("the replay ended without a result");
    if (result.contains("input_error")) return Broken(result["input_error"]);
    return ReadProbe(result["runs"]);
  };
}

Probe ProgramProbe(const std::string& allocator, const std::string& trace_path, uint64_t scale) {
  const auto program = std::make_shared<BenchProgram>(allocator, trace_path, scale);
  return [program](uint64_t bytes, uint64_t passes) {
    const json answer = program->Replay(bytes, passes);
    if (answer.contains("error")) return Broken(answer["error"]);
    return ReadProbe(answer["runs"]);
  };
}

uint64_t PeakOfOneDevice(const trace::Trace& trace) {
  std::vector<uint64_t> live(trace::kMaxDevices), bytes(trace.blocks);
  uint64_t peak = 0;
  for (const trace::TraceEvent& event : trace.events) {
    uint64_t& of_device = live[event.device];
    if (event.kind == trace::EventKind::kAlloc) {
      bytes[event.block] = event.bytes;
      peak = std::max(peak, of_device += event.bytes);
    } else if (event.kind == trace::EventKind::kFree) {
      of_device -= bytes[event.block];
    }
  }
  return peak;
}

}  // namespace weir::replay
