#include "allocator/block/arena.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace weir {

Arena::Arena(uint64_t granule, StreamHeap* owner, HeapRecords* records, bool is_large)
    : granule_(granule), owner_(owner), records_(records), is_large_(is_large) {}

Arena::~Arena() {
  ForEachBlock([](const Block& block) {
    if (block.segment == nullptr) PointerIndex::Get().RemoveBegin(&block);
  });
}

// ---- Regions ------------------------------------------------------------------------------------

void Arena::AddHoles(uint64_t begin, uint64_t bytes) {
  Block* block = records_->blocks.New();
  block->begin = begin;
  block->bytes = bytes;
  block->arena = this;
  newest_end_ = begin + bytes;
  Block* after = nullptr;   // the region that begins where the new one ends
  Block* before = nullptr;  // the last block of the region that ends where the new one begins
  for (auto region = regions_.begin(); region != regions_.end();) {
    if ((*region)->segment == nullptr && (*region)->begin == begin + bytes) {
      after = *region;
      region = regions_.erase(region);
      continue;
    }
    if ((*region)->segment == nullptr && (*region)->begin < begin) {
      Block* last = *region;
      while (last->next != nullptr) last = last->next;
      if (last->end() == begin) before = last;
    }
    ++region;
  }
  if (before == nullptr) regions_.push_back(block);
  if (before != nullptr) Link(before, block);
  if (after != nullptr) Link(block, after);
  PointerIndex::Get().AddBegin(block);
  MakeFree(block, BlockState::kHole);
}

std::vector<AddressRange> Arena::TakeHoles(uint64_t unit) {
  std::vector<Block*> holes;
  for (Block* b = holes_; b != nullptr; b = b->bin_next) holes.push_back(b);
  std::vector<AddressRange> taken;
  taken.reserve(holes.size());  // all host memory before anything changes
  records_->blocks.Reserve(2 * holes.size());
  regions_.reserve(regions_.size() + 2 * holes.size());
  for (Block* hole : holes) {
    const uint64_t begin = AlignUp(hole->begin, unit), end = AlignDown(hole->end(), unit);
    if (begin >= end) continue;
    RemoveFree(hole);
    if (end < hole->end()) InsertFree(SplitAt(hole, end));
    if (begin > hole->begin) {
      Block* rest = SplitAt(hole, begin);
      InsertFree(hole);
      hole = rest;
    }
    taken.push_back({begin, end - begin});
    PointerIndex::Get().RemoveBegin(hole);
    // What lies on either side becomes a region of its own.
    if (hole->prev != nullptr) {
      hole->prev->next = nullptr;
    } else {
      std::erase(regions_, hole);
    }
    if (hole->next != nullptr) {
      hole->next->prev = nullptr;
      regions_.push_back(hole->next);
    }
    records_->blocks.Delete(hole);
  }
  newest_end_ = 0;
  return taken;
}

void Arena::AddSegment(Handle* segment) {
  if (segment->outer != nullptr) segment->outer->is_hidden = true;
  Block* block = records_->blocks.New();
  block->begin = segment->at();
  block->bytes = segment->bytes;
  block->arena = this;
  block->segment = segment;
  regions_.push_back(block);
  MakeFree(block, BlockState::kReady);
}

void Arena::RemoveSegment(Handle* segment) {
  auto region = std::find_if(regions_.begin(), regions_.end(),
                             [&](Block* b) { return b->segment == segment; });
  WEIR_CHECK(region != regions_.end());
  Block* block = *region;
  WEIR_CHECK(block->next == nullptr && block->state == BlockState::kReady);
  RemoveFree(block);
  records_->blocks.Delete(block);
  regions_.erase(region);
  if (segment->outer == nullptr) return;
  segment->outer->is_hidden = false;
  PointerIndex::Get().SetBlock(segment->outer);
}

void Arena::Link(Block* left, Block* right) {
  left->next = right;
  right->prev = left;
}

// ---- Lists of free blocks -----------------------------------------------------------------------

void Arena::InsertFree(Block* block) {
  if (block->state == BlockState::kReady) {
    ready_.Insert(block);
    return;
  }
  block->bin_prev = nullptr;
  block->bin_next = holes_;
  if (holes_ != nullptr) holes_->bin_prev = block;
  holes_ = block;
}

void Arena::RemoveFree(Block* block) {
  if (block->state == BlockState::kReady) {
    ready_.Remove(block);
    return;
  }
  if (block->bin_next != nullptr) block->bin_next->bin_prev = block->bin_prev;
  (block->bin_prev != nullptr ? block->bin_prev->bin_next : holes_) = block->bin_next;
  block->bin_prev = block->bin_next = nullptr;
}

Block* Arena::LargestHole() const {
  Block* largest = nullptr;
  for (Block* b = holes_; b != nullptr; b = b->bin_next) {
    if (largest == nullptr || b->bytes > largest->bytes ||
        (b->bytes == largest->bytes && b->begin < largest->begin)) {
      largest = b;
    }
  }
  return largest;
}

Block* Arena::FindContaining(uint64_t address) const {
  Block* block = PointerIndex::Get().FindContaining(address);
  if (block != nullptr && block->arena == this) return block;
  for (Block* first : regions_) {
    if (first->segment == nullptr) continue;
    for (Block* b = first; b != nullptr; b = b->next) {
      if (address >= b->begin && address < b->end()) return b;
    }
  }
  return nullptr;
}

// ---- Cutting and joining ------------------------------------------------------------------------

Block* Arena::SplitAt(Block* block, uint64_t at) {
  WEIR_DCHECK(at > block->begin && at < block->end());
  Block* rest = records_->blocks.New();
  rest->begin = at;
  rest->bytes = block->end() - at;
  rest->arena = this;
  rest->segment = block->segment;
  rest->state = block->state;
  rest->prev = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->prev = rest;
  block->next = rest;
  block->bytes = at - block->begin;
  if (rest->segment == nullptr) PointerIndex::Get().AddBegin(rest);
  return rest;
}

void Arena::Absorb(Block* left, Block* right) {
  if (right->segment == nullptr) PointerIndex::Get().RemoveBegin(right);
  left->bytes += right->bytes;
  left->next = right->next;
  if (left->next != nullptr) left->next->prev = left;
  records_->blocks.Delete(right);
}

Block* Arena::MakeFree(Block* block, BlockState state) {
  block->state = state;
  block->span = nullptr;
  block->requested.store(Block::kNotHeld);
  if (block->prev != nullptr && block->prev->state == state) {
    Block* left = block->prev;
    RemoveFree(left);
    Absorb(left, block);
    block = left;
  }
  if (block->next != nullptr && block->next->state == state) {
    RemoveFree(block->next);
    Absorb(block, block->next);
  }
  InsertFree(block);
  return block;
}

// ---- Users of mappings --------------------------------------------------------------------------

void Arena::CountLive(const Block& block) {
  ForEachMapping(block.begin, block.end(), block.segment, [this](Mapping* m) {
    m->used = true;
    if (m->live++ == 0 && m->shared && !m->guest) TakeOver(m);
  });
}

bool Arena::UncountLive(const Block& block, Epoch epoch) {
  bool shared = false;
  ForEachMapping(block.begin, block.end(), block.segment, [&](Mapping* m) {
    WEIR_DCHECK(m->live > 0);
    --m->live;
    shared |= m->shared;
    // Always, because blocks of one mapping are not uncounted in the order of their frees: the kept
    // block is uncounted late, with the epoch of its free.
    m->idle_epoch = std::max(m->idle_epoch, epoch);
  });
  return shared;
}

bool Arena::IsEmpty() const {
  return std::all_of(regions_.begin(), regions_.end(), [](const Block* first) {
    return first->state == BlockState::kHole && first->next == nullptr;
  });
}

Epoch Arena::NewestFree(const Block& block) {
  Epoch newest = 0;
  ForEachMapping(block.begin, block.end(), block.segment, [&newest](const Mapping* m) {
    for (const Mapping* o = m->handle->mappings; o != nullptr; o = o->next) {
      newest = std::max(newest, o->idle_epoch);
    }
  });
  return newest;
}

// ---- Allocation ---------------------------------------------------------------------------------

Block* Arena::TryAllocate(uint64_t bytes, uint64_t alignment) {
  records_->blocks.Reserve(4);
  if (kept_ != nullptr) {
    if (kept_->bytes == bytes && IsAligned(kept_->begin, alignment)) {
      Block* block = kept_;
      kept_ = nullptr;
      block->state = BlockState::kLive;
      block->owner = owner_;
      return block;
    }
    FlushKept();
  }
  Block* ready = nullptr;
  if (no_split_) {
    ready = ready_.FindBestFit(bytes, alignment,
                               [&](const Block& b) { return IsAligned(b.begin, alignment); });
    return ready != nullptr ? CarveLive(ready, ready->begin, ready->bytes) : nullptr;
  }
  if (records_->alias_bytes == 0) {
    ready = ready_.FindBestFit(bytes, alignment);
  } else {
    constexpr int kMaxTries = 16;
    int tries = 0;
    ready = ready_.FindBestFit(bytes, alignment, [&](const Block& b) {
      const uint64_t begin = AlignUp(b.begin, alignment);
      return tries++ < kMaxTries && IsDistinct(begin, begin + bytes);
    });
  }
  if (ready == nullptr) return nullptr;
  const uint64_t begin = AlignUp(ready->begin, alignment);
  if (records_->alias_bytes > 0) records_->blocks.Reserve(4 + CountFlips(begin, begin + bytes));
  return CarveLive(ready, begin, bytes);
}

Block* Arena::TryAllocateAt(uint64_t begin, uint64_t bytes) {
  Block* ready = PointerIndex::Get().FindContaining(begin);
  if (ready == nullptr || ready->arena != this || ready->state != BlockState::kReady ||
      ready->end() < begin + bytes) {
    return nullptr;
  }
  const bool has_aliases = records_->alias_bytes > 0;
  if (has_aliases && !IsDistinct(begin, begin + bytes)) return nullptr;
  records_->blocks.Reserve(4 + (has_aliases ? CountFlips(begin, begin + bytes) : 0));
  return CarveLive(ready, begin, bytes);
}

size_t Arena::CountFlips(uint64_t begin, uint64_t end) {
  size_t flips = 0;
  ForEachMapping(begin, end, nullptr, [&flips](const Mapping* m) {
    if (!m->shared || m->live > 0 || m->guest) return;
    for (const Mapping* o = m->handle->mappings; o != nullptr; o = o->next) flips += 2;
  });
  return flips;
}

bool Arena::IsDistinct(uint64_t begin, uint64_t end) const {
  const uint64_t stamp = ++records_->stamp;
  bool distinct = true;
  ForEachMapping(begin, end, nullptr, [&](const Mapping* m) {
    if (!m->shared) return;
    distinct &= m->handle->stamp != stamp;
    m->handle->stamp = stamp;
  });
  return distinct;
}

Block* Arena::CutOut(Block* ready, uint64_t begin, uint64_t end) {
  WEIR_DCHECK(ready->state == BlockState::kReady);
  RemoveFree(ready);
  Block* block = ready;
  if (begin > ready->begin) {
    block = SplitAt(ready, begin);
    InsertFree(ready);
  }
  if (block->end() > end) InsertFree(SplitAt(block, end));
  return block;
}

Block* Arena::CarveLive(Block* ready, uint64_t begin, uint64_t bytes) {
  Block* block = CutOut(ready, begin, begin + bytes);
  block->state = BlockState::kLive;
  block->owner = owner_;
  CountLive(*block);
  PointerIndex::Get().SetBlock(block);
  return block;
}

void Arena::Free(Block* block, Epoch epoch, bool keep) {
  if (records_->merging) {
    block->state = BlockState::kDeferred;
    block->return_epoch = epoch;
    block->bin_next = records_->parked;
    records_->parked = block;
    return;
  }
  if (keep && !records_->has_lost) {
    FlushKept();
    block->state = BlockState::kKept;
    block->span = nullptr;
    kept_ = block;
    kept_epoch_ = epoch;
    return;
  }
  if (block->state != BlockState::kLent) PointerIndex::Get().ClearBlock(block->begin);
  if (UncountLive(*block, epoch)) {
    FreeShared(block, epoch);
  } else {
    MakeFree(block, BlockState::kReady);
  }
}

void Arena::EndMerging(HeapRecords* records) {
  records->merging = false;
  while (Block* block = records->parked) {
    records->parked = block->bin_next;
    block->bin_next = nullptr;
    block->arena->Free(block, block->return_epoch, /*keep=*/false);
  }
}

void Arena::FlushKept() {
  if (kept_ == nullptr) return;
  Block* block = kept_;
  kept_ = nullptr;
  Free(block, kept_epoch_, /*keep=*/false);
}

}  // namespace weir
