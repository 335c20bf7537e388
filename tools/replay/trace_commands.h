// `weir trace convert` and `weir trace info`.
#ifndef WEIR_TOOLS_REPLAY_TRACE_COMMANDS_H_
#define WEIR_TOOLS_REPLAY_TRACE_COMMANDS_H_

#include <string>
#include <vector>

namespace weir::replay {

// Each returns the exit status. What is wrong goes to stderr as one line per trace.
int ConvertTrace(const std::string& from, const std::string& to);
int PrintTraceInfo(const std::vector<std::string>& paths);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_TRACE_COMMANDS_H_
