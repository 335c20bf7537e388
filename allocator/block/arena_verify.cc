// Arena::Verify: the invariants of block.h, read back from the blocks.
#include <set>

#include "absl/strings/str_cat.h"
#include "allocator/block/arena.h"

namespace weir {
namespace {

std::string Describe(const Block& block) {
  return absl::StrCat("block 0x", absl::Hex(block.begin), " of ", block.bytes, " bytes");
}

}  // namespace

std::string Arena::VerifyMappings(const Block& b) const {
  const bool hole = b.state == BlockState::kHole;
  if (hole && (!IsAligned(b.begin, granule_) || !IsAligned(b.bytes, granule_)))
    return absl::StrCat(Describe(b), " is a hole that is not made of granules");
  for (uint64_t at = b.begin; at < b.end();
       at = AlignDown(at, PointerIndex::kGranule) + PointerIndex::kGranule) {
    const Mapping* m = PointerIndex::Get().FindMapping(at);
    if ((m == nullptr) != hole)
      return absl::StrCat(Describe(b), hole ? " is a hole with memory" : " lacks memory");
    if (hole) continue;
    if (m->arena != this || at < m->at || at >= m->at + m->bytes)
      return absl::StrCat(Describe(b), " lies in a mapping of other addresses");
    const Mapping* owner = m->handle->mappings;
    const bool usable = m == owner || owner->live == 0;
    if (b.state == BlockState::kReady && (m->guest || !usable))
      return absl::StrCat(Describe(b), " is ready, but its memory is in use at 0x",
                          absl::Hex(owner->at));
    if (b.state == BlockState::kShadow &&
        (b.begin != m->at || b.bytes != m->bytes || m->live != 0 || (!m->guest && usable)))
      return absl::StrCat(Describe(b), " is a shadow of memory that is not in use elsewhere");
    if (b.state == BlockState::kBlocked && (!m->guest || m->live == 0))
      return absl::StrCat(Describe(b), " is blocked, but in no guest mapping that is used");
    if (b.state == BlockState::kLent && m != owner)
      return absl::StrCat(Describe(b), " is lent by a mapping that does not own its memory");
  }
  return "";
}

std::string Arena::VerifyBlock(const Block& b) const {
  if (b.arena != this) return absl::StrCat(Describe(b), " belongs to another arena");
  if (b.bytes == 0 || !IsAligned(b.begin, kBlockAlignment) || !IsAligned(b.bytes, kBlockAlignment))
    return absl::StrCat(Describe(b), " is empty or not aligned");
  if (b.next != nullptr) {
    if (b.next->begin != b.end() || b.next->prev != &b)
      return absl::StrCat(Describe(b), " and its next neighbour do not touch");
    if (b.is_free() && b.next->state == b.state)
      return absl::StrCat(Describe(b), " is free and not joined with its next neighbour");
  }
  const PointerIndex& index = PointerIndex::Get();
  if (b.segment == nullptr && b.state != BlockState::kBusy) {
    if (index.FindContaining(b.begin) != &b || index.FindContaining(b.end() - 1) != &b)
      return absl::StrCat(Describe(b), " is not found by its addresses");
    if (std::string broken = VerifyMappings(b); !broken.empty()) return broken;
  }
  const bool indexed = index.Find(b.begin) == &b;
  const bool should_be = b.is_counted() && b.state != BlockState::kLent && !b.is_hidden;
  if (indexed != should_be)
    return absl::StrCat(Describe(b), indexed ? " is indexed" : " is not indexed");
  const uint64_t requested = b.requested.load();
  if (requested != Block::kNotHeld && (requested & ~Block::kHasUses) > b.bytes)
    return absl::StrCat(Describe(b), " is smaller than its request");
  if (requested != Block::kNotHeld && b.state != BlockState::kLive)
    return absl::StrCat(Describe(b), " is held by a caller, but not live");
  return "";
}

std::string Arena::Verify() const {
  std::set<const Block*> listed;
  ready_.ForEach([&](Block* b) { listed.insert(b); });
  for (Block* b = holes_; b != nullptr; b = b->bin_next) listed.insert(b);
  size_t free_blocks = 0;
  for (const Block* first : regions_) {
    if (first->prev != nullptr) return absl::StrCat(Describe(*first), " is not a region's first");
    for (const Block* b = first; b != nullptr; b = b->next) {
      if (std::string broken = VerifyBlock(*b); !broken.empty()) return broken;
      if (b->is_free()) {
        ++free_blocks;
        if (listed.count(b) == 0) return absl::StrCat(Describe(*b), " is free but in no list");
      }
      if ((b == kept_) != (b->state == BlockState::kKept))
        return absl::StrCat(Describe(*b), " is in the wrong state for the kept block");
    }
  }
  if (free_blocks != listed.size()) return "a list of free blocks has a block of no region";
  return "";
}

}  // namespace weir
