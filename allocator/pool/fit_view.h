// DeviceHeap::FitView: what a heap would look like if a miss had done all that costs no memory:
// caches are empty, and every free has taken effect that it could wait for. It counts in its own
// records; nothing of the heap changes. See device_heap_would_fit.cc.
#ifndef WEIR_POOL_FIT_VIEW_H_
#define WEIR_POOL_FIT_VIEW_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "allocator/pool/device_heap.h"

namespace weir {

// Both locks are held for its whole life, and the thread caches are stopped.
class DeviceHeap::FitView {
 public:
  struct Circumstances {
    uint64_t driver_free = 0;
    bool moves = false;
    bool captured = false;                                // a stream of the context
    absl::flat_hash_set<const StreamHeap*> can_wait_for;  // all that was submitted to them
  };

  FitView(DeviceHeap& heap, const Circumstances& now) ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // Bytes that would have to become free; 0: the request would succeed. The owner may be unknown to
  // the heap.
  uint64_t Missing(StreamHeap* owner, const Request& request) ABSL_NO_THREAD_SAFETY_ANALYSIS;

 private:
  using Nodes = std::deque<Block>;  // copies, linked where their addresses touch

  // ---- What will be free ----
  bool CanWaitFor(const StreamHeap* s) const { return now_.can_wait_for.contains(s); }
  void FindStuck() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  bool WillBeFree(const Block& b) const ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void TakeFree(const Block& b);
  bool IsFreed(const Block& b) const { return freed_.contains(&b); }
  bool IsUsed(const Mapping& m) const {
    const auto freed = freed_users_.find(&m);
    return m.live > (freed == freed_users_.end() ? 0 : freed->second);
  }
  bool IsIdle(const Handle& h) const { return h.mappings == nullptr || !IsUsed(*h.mappings); }
  bool MayMove(const Handle& h) const ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // An address that DropAliases unmaps before a merge.
  bool IsDropped(const Mapping& m) const {
    return merging_ && &m != m.handle->mappings && !IsUsed(m) && MayMove(*m.handle);
  }
  void FindSupply() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  uint64_t SupplyOutside(uint64_t begin, uint64_t end) const;

  // ---- The blocks of an arena as they will be ----
  Nodes Describe(const Arena& arena) const ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void DescribeBlock(const Block& b, Nodes* nodes) const ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // Adds [begin, end) in the state, less what merges have taken.
  void Add(const Block& like, uint64_t begin, uint64_t end, BlockState state, Nodes* nodes) const;
  static void Append(const Block& like, uint64_t begin, uint64_t end, BlockState state,
                     Nodes* nodes);
  static std::vector<Block*> Link(Nodes* nodes);  // the first block of each run of free ones
  void AddAddresses(const Arena& arena, const Request& request,
                    Nodes* nodes) ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // ---- What a miss would find ----
  bool HasObject(const StreamHeap* owner, int size_class) const ABSL_NO_THREAD_SAFETY_ANALYSIS;
  static bool IsDistinct(uint64_t begin, uint64_t end);  // as Arena::IsDistinct
  uint64_t MissingInWindow(StreamHeap* owner,
                           const Request& request) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  uint64_t MissingInSegments(StreamHeap* owner,
                             const Request& request) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  bool CanBorrow(const StreamHeap* taker, const Request& request) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  bool IsOrdered(const StreamHeap* lender, const Block& ready) const;
  // may_share as in Rung.
  bool CanShare(StreamHeap* owner, const Request& request,
                bool may_share) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void Merge(uint64_t most) ABSL_NO_THREAD_SAFETY_ANALYSIS;

  DeviceHeap& heap_;
  const Circumstances& now_;
  const bool wait_;
  absl::flat_hash_set<uint64_t> stuck_;  // addresses of deferred frees that cannot be waited for
  absl::flat_hash_set<const StreamHeap*> stuck_returns_;
  absl::flat_hash_set<const Block*> freed_;
  absl::flat_hash_map<const Mapping*, uint32_t> freed_users_;  // how many of a mapping's users
  std::vector<const Handle*> supply_;
  uint64_t room_ = 0;  // that may be made new, in whole granules
  // Merges.
  bool merging_ = false;
  std::vector<AddressRange> taken_;  // not free any more
};

}  // namespace weir

#endif  // WEIR_POOL_FIT_VIEW_H_
