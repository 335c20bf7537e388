#include "tools/replay/trace_commands.h"

#include <cstdio>

#include "tools/replay/replay_command.h"
#include "tools/replay/text.h"
#include "tools/trace/trace_io.h"

namespace weir::replay {
namespace {

void PrintError(const absl::Status& status) {
  std::fprintf(stderr, "weir: %s\n", std::string(status.message()).c_str());
}

}  // namespace

int ConvertTrace(const std::string& from, const std::string& to) {
  const absl::StatusOr<trace::Trace> read = trace::ReadTrace(from);
  if (!read.ok()) {
    PrintError(read.status());
    return kExitBadInput;
  }
  if (const absl::Status written = trace::WriteCompact(*read, to); !written.ok()) {
    PrintError(written);
    return kExitBadInput;
  }
  return 0;
}

int PrintTraceInfo(const std::vector<std::string>& paths) {
  int status = 0;
  for (const std::string& path : paths) {
    const absl::StatusOr<trace::Trace> read = trace::ReadTrace(path);
    if (!read.ok()) {
      PrintError(read.status());
      status = kExitBadInput;
      continue;
    }
    const trace::TraceSummary summary = trace::Summarize(*read);
    std::printf("%s (%s)\n", read->name.c_str(), read->source.c_str());
    std::printf("  %s allocations, %s frees, %s uses on other streams, %s live at the end\n",
                WithCommas(summary.allocations).c_str(), WithCommas(summary.frees).c_str(),
                WithCommas(summary.uses).c_str(), WithCommas(summary.live_at_end).c_str());
    std::printf("  %zu streams, %d devices, peak requested %s\n", read->streams.size(),
                summary.devices, Mebibytes(summary.peak_requested_bytes).c_str());
    for (const std::string& note : read->notes) std::printf("  note: %s\n", note.c_str());
  }
  return status;
}

}  // namespace weir::replay
