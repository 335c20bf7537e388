// Arena: what misses and trims do to it, who change what is mapped.
#include <algorithm>

#include "allocator/base/check.h"
#include "allocator/block/arena.h"

namespace weir {

Block* Arena::CarveBusy(Block* run, uint64_t begin, uint64_t end) {
  Block* busy = run;
  while (busy->end() <= begin) busy = busy->next;
  RemoveFree(busy);
  if (begin > busy->begin) {
    Block* rest = SplitAt(busy, begin);
    InsertFree(busy);
    busy = rest;
  }
  auto cut_at_end = [&](Block* block) {
    if (block->end() > end) InsertFree(SplitAt(block, end));
  };
  cut_at_end(busy);
  while (busy->end() < end) {
    Block* next = busy->next;
    RemoveFree(next);
    cut_at_end(next);
    Absorb(busy, next);
  }
  busy->state = BlockState::kBusy;
  return busy;
}

Block* Arena::CarveMapping(const Mapping& mapping) {
  Block* block = PointerIndex::Get().FindContaining(mapping.at);
  WEIR_CHECK(block != nullptr && block->arena == this);
  if (block->state == BlockState::kReady)
    return CarveBusy(block, mapping.at, mapping.at + mapping.bytes);
  WEIR_CHECK(block->state == BlockState::kShadow && block->begin == mapping.at);
  block->state = BlockState::kBusy;
  return block;
}

Block* Arena::Settle(Block* busy, uint64_t at) {
  const PointerIndex& index = PointerIndex::Get();
  const auto state_at = [&](uint64_t address) {
    const Mapping* m = index.FindMapping(address);
    if (m == nullptr) return BlockState::kHole;
    if (m->guest) return m->live > 0 ? BlockState::kBlocked : BlockState::kShadow;
    const Mapping* owner = m->handle->mappings;
    return m == owner || owner->live == 0 ? BlockState::kReady : BlockState::kShadow;
  };
  Block* found = nullptr;
  for (Block* piece = busy; piece != nullptr;) {
    const bool classic = piece->segment != nullptr;
    const BlockState state = classic ? BlockState::kReady : state_at(piece->begin);
    uint64_t end = piece->end();
    if (state == BlockState::kShadow || state == BlockState::kBlocked) {
      const Mapping* m = index.FindMapping(piece->begin);
      end = std::min(end, m->at + m->bytes);
    } else if (!classic) {
      end = AlignDown(piece->begin, PointerIndex::kGranule) + PointerIndex::kGranule;
      while (end < piece->end() && state_at(end) == state) end += PointerIndex::kGranule;
    }
    Block* rest = end < piece->end() ? SplitAt(piece, end) : nullptr;
    Block* settled = piece;
    if (state == BlockState::kReady || state == BlockState::kHole) {
      settled = MakeFree(piece, state);
    } else {
      piece->state = state;
    }
    if (at >= settled->begin && at < settled->end()) found = settled;
    piece = rest;
  }
  return found;
}

}  // namespace weir
