// The child's side of a replay: each trace is replayed in a process of its own, so that every one
// starts with a fresh heap, and a crash of one costs the others nothing.
#ifndef WEIR_TOOLS_REPLAY_REPLAY_CHILD_H_
#define WEIR_TOOLS_REPLAY_REPLAY_CHILD_H_

#include <string>

namespace weir::replay {

// The hidden command that runs RunReplayChild.
inline constexpr const char* kChildCommand = "replay-child";

// `options` is ReplayOptions as JSON. Writes one JSON object to result_fd: {"runs": [...]}, or
// {"input_error": TEXT} if the trace cannot be read. Keeps the Progress behind progress_fd up to
// date. Returns the exit status.
int RunReplayChild(const std::string& options, const std::string& trace_path, int result_fd,
                   int progress_fd);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPLAY_CHILD_H_
