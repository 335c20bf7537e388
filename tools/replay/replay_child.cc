#include "tools/replay/replay_child.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "tools/replay/replayer.h"
#include "tools/replay/synthetic_streams.h"
#include "tools/simcuda/simcuda.h"
#include "tools/trace/trace_io.h"
#include "weir/weir.h"

namespace weir::replay {
namespace {

using nlohmann::json;

// So far the simulated device lags behind: enough to have work pending, little enough that ratios
// can be compared with those of programs whose work was complete at once (the recorded baselines).
constexpr uint64_t kRunAhead = 16;

// What the command says wins over WEIR_CONF, which may set other options. What is wrong with
// either, or "".
std::string SetConfiguration(const ReplayOptions& options, int devices) {
  std::string device = "device:cuda";
  if (options.simulated) {
    sim::Config config;
    config.devices = devices;
    config.memory_bytes = options.memory_bytes;
    config.run_ahead = kRunAhead;
    config.checker = options.verify;  // else nothing touches memory
    sim::Reset(config);
    const sim::Config made = sim::CurrentConfig();
    device =
        absl::StrCat("device:sim,sim_memory:", made.memory_bytes, ",sim_devices:", made.devices);
  }
  if (!options.weir_options.empty() && weir_configure(options.weir_options.c_str()) != WEIR_OK) {
    return absl::StrCat("--options: ", weir_last_error());
  }
  return weir_configure(device.c_str()) == WEIR_OK ? "" : weir_last_error();
}

}  // namespace

json ReplayHere(const ReplayOptions& options, const trace::Trace& trace, Progress* progress) {
  // Lives until the process ends: queued work of the simulated device refers to it.
  static Replayer* replayer = nullptr;
  replayer = new Replayer(options, trace, progress);
  if (const std::string wrong = SetConfiguration(options, replayer->devices()); !wrong.empty()) {
    return {{"input_error", wrong}};
  }
  return {{"runs", replayer->Run()}};
}

json ReplayFileHere(const ReplayOptions& options, const std::string& path, Progress* progress) {
  absl::StatusOr<trace::Trace> read = trace::ReadTrace(path);
  if (!read.ok()) return {{"input_error", std::string(read.status().message())}};
  static trace::Trace* trace = nullptr;
  trace = new trace::Trace(*std::move(read));
  UseSyntheticStreams(options.synthetic_streams, trace);
  return ReplayHere(options, *trace, progress);
}

std::string DumpJson(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

}  // namespace weir::replay
