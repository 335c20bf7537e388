// Arena: memory that is mapped at several addresses (block.h, Note [Aliases]).
#include <algorithm>

#include "allocator/base/check.h"
#include "allocator/block/arena.h"

namespace weir {

// ---- Stitched mappings: one of them is used at a time -------------------------------------------

void Arena::TakeOver(Mapping* mapping) {
  records_->MakeFirst(mapping);
  for (const Mapping* o = mapping->next; o != nullptr; o = o->next) {
    if (!o->guest) o->arena->CastShadow(*o);
  }
}

void Arena::CastShadow(const Mapping& mapping) {
  Block* block = PointerIndex::Get().FindContaining(mapping.at);
  if (block->state == BlockState::kBusy) return;  // Settle finds out
  WEIR_CHECK(block->state == BlockState::kReady);
  CutOut(block, mapping.at, mapping.at + mapping.bytes)->state = BlockState::kShadow;
}

void Arena::GiveUp(Mapping* mapping) {
  for (const Mapping* o = mapping->handle->mappings; o != nullptr; o = o->next) {
    if (o == mapping || o->guest) continue;
    Block* block = PointerIndex::Get().FindContaining(o->at);
    if (block->state == BlockState::kShadow) o->arena->MakeFree(block, BlockState::kReady);
  }
}

void Arena::FreeShared(Block* block, Epoch epoch) {
  const uint64_t begin = block->begin, end = block->end();
  Block* piece = block;  // what is left of it, in no list
  ForEachMapping(begin, end, nullptr, [&](Mapping* m) {
    if (!m->guest && m->mapped) return;
    const uint64_t low = std::max(begin, m->at), high = std::min(end, m->at + m->bytes);
    records_->blocks.Unhold(2);  // for the cuts at low and high
    if (low > piece->begin) {
      Block* rest = SplitAt(piece, low);
      MakeFree(piece, BlockState::kReady);
      piece = rest;
    }
    Block* blocked = piece;
    piece = high < piece->end() ? SplitAt(piece, high) : nullptr;
    blocked->state = m->guest ? BlockState::kBlocked : BlockState::kBusy;
    blocked->span = nullptr;
    blocked->requested.store(Block::kNotHeld);
    if (!m->guest) return;  // lost (DeviceHeap::CommitMerge): nobody may have it again
    ReturnLent(*m, low, epoch);
    if (m->live == 0) BecomeShadow(*m);
  });
  if (piece != nullptr) MakeFree(piece, BlockState::kReady);
  ForEachMapping(begin, end, nullptr, [&](Mapping* m) {
    if (m->shared && !m->guest && m->live == 0) GiveUp(m);  // if it is stuck there is no other
  });
}

// ---- Guest mappings: each uses what the others leave --------------------------------------------

void Arena::Lend(uint64_t begin, uint64_t bytes) {
  Block* block = PointerIndex::Get().FindContaining(begin);
  WEIR_CHECK(block->state == BlockState::kReady && block->end() >= begin + bytes);
  block = CutOut(block, begin, begin + bytes);
  block->state = BlockState::kLent;
  block->owner = owner_;
  CountLive(*block);
}

void Arena::ReturnLent(const Mapping& guest, uint64_t begin, Epoch epoch) {
  const Mapping* owner = guest.handle->mappings;
  Block* lent = PointerIndex::Get().FindContaining(owner->at + (begin - guest.at));
  WEIR_CHECK(lent->state == BlockState::kLent);
  lent->arena->Free(lent, epoch, /*keep=*/false);
}

void Arena::BecomeShadow(const Mapping& dead_guest) {
  Block* first = PointerIndex::Get().FindContaining(dead_guest.at);
  WEIR_CHECK(first->begin == dead_guest.at);
  while (first->bytes < dead_guest.bytes) {
    WEIR_DCHECK(first->next->state == BlockState::kBlocked);
    Absorb(first, first->next);
  }
  first->state = BlockState::kShadow;
  ++records_->dead_guests;
}

Block* Arena::CarveAcross(uint64_t begin, uint64_t bytes) {
  const auto take = [this](Block* block) {
    if (block->is_free()) RemoveFree(block);
    if (block->state == BlockState::kShadow) block->state = BlockState::kBlocked;  // a new guest's
  };
  const auto put_back = [this](Block* block) {
    if (block->is_free()) InsertFree(block);
  };
  Block* block = PointerIndex::Get().FindContaining(begin);
  take(block);
  if (begin > block->begin) {
    Block* rest = SplitAt(block, begin);
    put_back(block);
    block = rest;
  }
  const uint64_t end = begin + bytes;
  if (block->end() > end) put_back(SplitAt(block, end));
  while (block->end() < end) {
    Block* next = block->next;
    take(next);
    if (next->end() > end) put_back(SplitAt(next, end));
    Absorb(block, next);
  }
  block->state = BlockState::kLive;
  block->owner = owner_;
  CountLive(*block);
  PointerIndex::Get().SetBlock(block);
  return block;
}

void Arena::BecomeGuest(const Mapping& mapping) {
  const uint64_t end = mapping.at + mapping.bytes;
  for (Block* b = PointerIndex::Get().FindContaining(mapping.at); b != nullptr && b->begin < end;
       b = b->next) {
    if (b->is_counted()) continue;
    WEIR_CHECK(b->state == BlockState::kBusy);
    b->state = BlockState::kBlocked;
  }
}

}  // namespace weir
