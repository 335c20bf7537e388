// Planning of merges: which partly used granules can be emptied into others.
//
// Two granules whose used bytes do not overlap fit into one. The one with fewer used bytes becomes
// a *guest*: its bytes are copied to the same offsets of the other, the *host*, and its addresses
// are mapped there (block.h, Note [Aliases]). No pointer changes, and a whole granule becomes free.
// As Mesh does for the CPU's heap (Powers et al., PLDI 2019). Pure functions; heap lock held.
#ifndef WEIR_VMM_MESH_PLAN_H_
#define WEIR_VMM_MESH_PLAN_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "allocator/block/block.h"
#include "allocator/block/pointer_index.h"

namespace weir {

// A granule that blocks use in part, mapped by a handle of its own.
struct PartGranule {
  static constexpr size_t kUnits = 512;

  Mapping* mapping = nullptr;
  uint64_t used_bytes = 0;
  std::array<uint64_t, kUnits / 64> used{};  // bit i: something in the i-th 1/512 is in use
  bool may_move = true;                      // it can be a guest
};

// What is known of the owner of a handle of one granule; nothing if it cannot be part of a merge:
// it is idle, used whole, pinned, mapped at several addresses, or a change has taken it.
std::optional<PartGranule> DescribeGranule(const Handle& handle, uint64_t granule);
// The same for what will be: with blocks that will be free, and mappings that will be gone.
using IsFreeFn = std::function<bool(const Block&)>;
using IsGoneFn = std::function<bool(const Mapping&)>;
std::optional<PartGranule> DescribeGranule(const Handle& handle, uint64_t granule,
                                           const IsFreeFn& is_free, const IsGoneFn& is_gone);

inline bool IsReady(const Block& block) { return block.state == BlockState::kReady; }
// Calls fn(range) for what blocks that are not free use of the mapping, in address order. False,
// and it has stopped, at a block that is in the hands of a change.
template <typename IsFree, typename Fn>
bool ForEachUsed(const Mapping& mapping, const IsFree& is_free, Fn fn) {
  const uint64_t end = mapping.at + mapping.bytes;
  for (const Block* b = PointerIndex::Get().FindContaining(mapping.at);
       b != nullptr && b->begin < end; b = b->next) {
    if (is_free(*b)) continue;
    if (!b->is_counted()) return false;
    const uint64_t from = std::max(b->begin, mapping.at);
    fn(AddressRange{from, std::min(b->end(), end) - from});
  }
  return true;
}

struct Merge {
  Mapping* guest;
  Mapping* host;
};
// Up to `most` merges; each granule is part of one at most. Guests are those with the fewest used
// bytes, hosts the fullest that fit. Only granules of one stream are merged, whose order then
// protects what is freed in either.
std::vector<Merge> PlanMerges(std::vector<PartGranule> granules, size_t most);

}  // namespace weir

#endif  // WEIR_VMM_MESH_PLAN_H_
