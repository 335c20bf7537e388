// Functions that run in processes of their own, forked from this one: each begins with what this
// process has read and with a fresh heap, and a crash costs nobody else anything. For a process
// without threads that has used neither Weir nor the simulated device itself.
#ifndef WEIR_TOOLS_REPLAY_FORKED_H_
#define WEIR_TOOLS_REPLAY_FORKED_H_

#include <functional>
#include <string>
#include <vector>

namespace weir::replay {

struct ForkOutcome {
  std::string output;   // what the body returned
  std::string failure;  // "" or what came instead, e.g. "died of signal 9 (Killed)"
};

using ForkBody = std::function<std::string()>;

ForkOutcome RunInFork(const ForkBody& body);

// Runs body(i) for each i below `count`, `parallel` at a time. `on_done` is called as each ends,
// `on_wait` with those that run, at least every tenth of a second.
void RunInForks(size_t count, size_t parallel, const std::function<std::string(size_t)>& body,
                const std::function<void(size_t, const ForkOutcome&)>& on_done,
                const std::function<void(const std::vector<size_t>&)>& on_wait);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_FORKED_H_
