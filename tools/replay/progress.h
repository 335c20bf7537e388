// How far a replay is: shared memory that the replaying child writes and its parent reads, also
// after the child has died.
#ifndef WEIR_TOOLS_REPLAY_PROGRESS_H_
#define WEIR_TOOLS_REPLAY_PROGRESS_H_

#include <atomic>
#include <cstdint>

namespace weir::replay {

struct Progress {
  std::atomic<uint64_t> event;   // under way; kNoEvent before the first
  std::atomic<uint64_t> events;  // of one pass
  std::atomic<uint64_t> pass;    // from 1
  std::atomic<uint64_t> passes;
};

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_PROGRESS_H_
