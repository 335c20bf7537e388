// `weir replay`.
#ifndef WEIR_TOOLS_REPLAY_REPLAY_COMMAND_H_
#define WEIR_TOOLS_REPLAY_REPLAY_COMMAND_H_

#include <string>
#include <vector>

#include "tools/replay/replay_options.h"

namespace weir::replay {

inline constexpr int kExitFailed = 1;  // a trace did not complete, or verification found something
inline constexpr int kExitBadInput = 2;  // a trace or option is wrong, or a file cannot be written

struct ReplayCommand {
  std::vector<std::string> traces;
  ReplayOptions options;
  size_t parallel = 1;
  std::string json_path;    // "" = none
  std::string report_path;  // "" = none
};

// False, with a line on stderr, if the file cannot be written.
bool WriteText(const std::string& path, const std::string& text);

// Replays, prints, writes the files. Returns the exit status.
int RunReplayCommand(const ReplayCommand& command);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPLAY_COMMAND_H_
