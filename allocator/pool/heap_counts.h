// HeapCounts: how a DeviceHeap counts what callers hold, exactly, although hits count for
// themselves (thread_cache.h, Note [Rooms]). Everything under the heap lock.
//
// Two counters move when a block comes or goes: stats_, of all blocks, and large_, of those that no
// cache hands out. Small ones are what is left, stats_ - large_, rooms included. So a room must
// stay below the peaks of small blocks as it must stay below those of all blocks; and where it
// does, the peaks of small blocks are exact too.
#ifndef WEIR_POOL_HEAP_COUNTS_H_
#define WEIR_POOL_HEAP_COUNTS_H_

#include <cstdint>
#include <memory>

#include "allocator/pool/heap_state.h"
#include "weir/inspect.h"

namespace weir {

class HeapCounts : protected HeapState {
 protected:
  using HeapState::HeapState;

  // Gives the cache room for a request, and some more where that raises no peak.
  void GrantRoom(ThreadCache* cache, uint64_t requested, uint64_t allocated)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Takes all rooms back: the counters are the truth then.
  void ReclaimRooms() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  void ReclaimRoom(ThreadCache* cache) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  // Whether the block counts as large. Small blocks in borrowed parts of large segments do not:
  // caches may hand them out.
  static bool IsLarge(const Block& block) {
    return block.bytes > kMaxSmallArenaBytes && block.arena->is_large();
  }
  // Counts blocks that callers get from the heap itself or give back to it: against the room of a
  // cache of the calling thread (`own`, may be null) where that suffices, so that a thread seldom
  // has to take the others' rooms back.
  void CountAllocation(ThreadCache* own, uint64_t requested, uint64_t allocated, bool is_large)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  void CountFree(ThreadCache* own, uint64_t requested, uint64_t allocated, bool is_large)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // A free that waits: the block stays active until it is released.
  void CountDeferred(uint64_t requested, uint64_t allocated, bool is_large)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  void CountReleased(uint64_t allocated, bool is_large) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  void CountBySize(weir_size_stats_t* small, weir_size_stats_t* large)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // All peaks become the current values.
  void LowerPeaks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

 private:
  // Of small blocks, with the peaks so far.
  const weir_size_stats_t& Small() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  void RaisePeaks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  // Without reserved_bytes and handles, which records_ counts.
  weir_size_stats_t large_ ABSL_GUARDED_BY(heap_mu_){};
  weir_size_stats_t small_ ABSL_GUARDED_BY(heap_mu_){};  // current values as of the last Small()
};

}  // namespace weir

#endif  // WEIR_POOL_HEAP_COUNTS_H_
