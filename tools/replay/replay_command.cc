#include "tools/replay/replay_command.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/replay/replay_child.h"
#include "tools/replay/replay_jobs.h"
#include "tools/replay/replay_print.h"
#include "tools/replay/report.h"

namespace weir::replay {

using nlohmann::json;

bool WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return true;
  std::fprintf(stderr, "weir: %s cannot be written\n", path.c_str());
  return false;
}

int RunReplayCommand(const ReplayCommand& command) {
  ReplayOptions options = command.options;
  if (options.verify && !options.simulated) {
    std::fprintf(stderr, "weir: --verify needs the simulated device (--device sim)\n");
    return kExitBadInput;
  }
  if (options.lag > 0 && !options.simulated) {
    std::fprintf(stderr, "weir: --lag needs the simulated device (--device sim)\n");
    return kExitBadInput;
  }
  options.timeline = options.timeline || !command.report_path.empty();

  int status = 0;
  const auto on_done = [&](const JobResult& job) {
    if (!job.input_error.empty()) {
      std::fprintf(stderr, "weir: %s\n", job.input_error.c_str());
      status = kExitBadInput;
    }
    for (const json& run : job.runs) {
      PrintRun(run);
      if (!run.value("completed", false) && status == 0) status = kExitFailed;
    }
  };
  const std::vector<JobResult> results =
      ReplayAll(options, command.traces, command.parallel, on_done);

  json result = {{"schema", "weir-replay/1"}, {"runs", json::array()}};
  for (const JobResult& job : results) {
    for (const json& run : job.runs) result["runs"].push_back(run);
  }
  if (result["runs"].size() > 1) PrintSummary(result["runs"]);
  if (!command.json_path.empty() && !WriteText(command.json_path, DumpJson(result, 1) + "\n")) {
    status = kExitBadInput;
  }
  if (!command.report_path.empty() &&
      !WriteText(command.report_path, RenderReport(result, ReadBaselines(command.traces)))) {
    status = kExitBadInput;
  }
  return status;
}

}  // namespace weir::replay
