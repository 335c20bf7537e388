#include "tools/replay/replay_child.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "tools/replay/progress.h"
#include "tools/replay/replay_options.h"
#include "tools/replay/replayer.h"
#include "tools/simcuda/simcuda.h"
#include "tools/trace/trace_io.h"
#include "weir/weir.h"

namespace weir::replay {
namespace {

using nlohmann::json;

// So far the simulated device lags behind: enough to have work pending, little enough that ratios
// can be compared with those of programs whose work was complete at once (the recorded baselines).
constexpr uint64_t kRunAhead = 16;

// The command's options win over those of WEIR_CONF, which may set others. If WEIR_CONF is wrong,
// the first call that needs a device says so.
void SetConfiguration(const ReplayOptions& options, int devices) {
  if (options.simulated) {
    sim::Config config;
    config.devices = devices;
    config.memory_bytes = options.memory_bytes;
    config.run_ahead = kRunAhead;
    sim::Reset(config);
  }
  weir_configure(options.simulated ? "device:sim" : "device:cuda");
}

int WriteResult(const json& result, int fd) {
  // Texts may come from a file: what is no UTF-8 is replaced.
  const std::string text = result.dump(-1, ' ', false, json::error_handler_t::replace);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return 1;
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  return 0;
}

}  // namespace

int RunReplayChild(const std::string& options_text, const std::string& trace_path, int result_fd,
                   int progress_fd) {
  const json parsed = json::parse(options_text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return 1;
  const auto options = parsed.get<ReplayOptions>();
  void* page = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, progress_fd, 0);
  Progress* progress = page == MAP_FAILED ? nullptr : static_cast<Progress*>(page);

  const absl::StatusOr<trace::Trace> trace = trace::ReadTrace(trace_path);
  if (!trace.ok()) {
    return WriteResult({{"input_error", std::string(trace.status().message())}}, result_fd);
  }
  // Lives until the process ends: queued work of the simulated device refers to it.
  static auto* const replayer = new Replayer(options, *trace, progress);
  SetConfiguration(options, replayer->devices());
  return WriteResult({{"runs", replayer->Run()}}, result_fd);
}

}  // namespace weir::replay
