// The child's side of a replay: each trace is replayed in a process of its own (forked.h), so that
// every one starts with a fresh heap, and a crash of one costs the others nothing.
#ifndef WEIR_TOOLS_REPLAY_REPLAY_CHILD_H_
#define WEIR_TOOLS_REPLAY_REPLAY_CHILD_H_

#include <nlohmann/json.hpp>
#include <string>

#include "tools/replay/progress.h"
#include "tools/replay/replay_options.h"
#include "tools/trace/trace.h"

namespace weir::replay {

// Replays in this process, which has used neither Weir nor the simulated device, and ends with it.
// {"runs": [...]}, or {"input_error": TEXT} if the options are wrong. Keeps `progress` up to date
// unless it is null. The trace outlives the process' use of the device.
nlohmann::json ReplayHere(const ReplayOptions& options, const trace::Trace& trace,
                          Progress* progress);

// The same for a trace file, which may be unreadable: {"input_error": TEXT}.
nlohmann::json ReplayFileHere(const ReplayOptions& options, const std::string& path,
                              Progress* progress);

// Text that may come from a file is replaced where it is no UTF-8.
std::string DumpJson(const nlohmann::json& value, int indent = -1);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPLAY_CHILD_H_
