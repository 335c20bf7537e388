// The parent's side: one child process per trace, some of them at a time.
#ifndef WEIR_TOOLS_REPLAY_REPLAY_JOBS_H_
#define WEIR_TOOLS_REPLAY_REPLAY_JOBS_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/replay/replay_options.h"

namespace weir::replay {

struct JobResult {
  std::string trace_path;
  std::string input_error;  // "" if the trace could be read
  nlohmann::json runs = nlohmann::json::array();
};

// Replays all traces, `parallel` at a time, and gives the results in the order of the paths.
// `on_done` is called as each ends. A child that dies gives a run that is not completed, with the
// event it died at. Shows a progress bar while stderr is a terminal.
std::vector<JobResult> ReplayAll(const ReplayOptions& options,
                                 const std::vector<std::string>& trace_paths, size_t parallel,
                                 const std::function<void(const JobResult&)>& on_done);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPLAY_JOBS_H_
