// HeapCounts: how a DeviceHeap counts what callers hold, exactly, although hits count for
// themselves (thread_cache.h, Note [Rooms]). Everything under the heap lock.
#ifndef WEIR_POOL_HEAP_COUNTS_H_
#define WEIR_POOL_HEAP_COUNTS_H_

#include <cstdint>
#include <memory>

#include "allocator/pool/heap_state.h"

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

  // Counts blocks that callers get from the heap itself or give back to it: against the room of a
  // cache of the calling thread (`own`, may be null) where that suffices, so that a thread seldom
  // has to take the others' rooms back.
  void CountAllocation(ThreadCache* own, uint64_t requested, uint64_t allocated)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  void CountFree(ThreadCache* own, uint64_t requested, uint64_t allocated)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
};

}  // namespace weir

#endif  // WEIR_POOL_HEAP_COUNTS_H_
