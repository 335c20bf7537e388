#include "allocator/block/arena.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace weir {

Arena::Arena(uint64_t granule, StreamHeap* owner, BlockPool* blocks)
    : granule_(granule), owner_(owner), blocks_(blocks) {}

// ---- Regions ------------------------------------------------------------------------------------

void Arena::AddHoles(uint64_t begin, uint64_t bytes) {
  Block* block = blocks_->New();
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
  MakeFree(block, BlockState::kHole);
}

std::vector<AddressRange> Arena::TakeHoles(uint64_t unit) {
  std::vector<Block*> holes;
  for (Block* b = holes_; b != nullptr; b = b->bin_next) holes.push_back(b);
  std::vector<AddressRange> taken;
  taken.reserve(holes.size());  // all host memory before anything changes
  blocks_->Reserve(2 * holes.size());
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
    blocks_->Delete(hole);
  }
  newest_end_ = 0;
  return taken;
}

void Arena::AddSegment(Handle* segment) {
  Block* block = blocks_->New();
  block->begin = segment->at;
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
  blocks_->Delete(block);
  regions_.erase(region);
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

uint64_t Arena::LargestHole() const {
  uint64_t largest = 0;
  for (Block* b = holes_; b != nullptr; b = b->bin_next) largest = std::max(largest, b->bytes);
  return largest;
}

const Block* Arena::FindContaining(uint64_t address) const {
  for (const Block* first : regions_) {
    if (address < first->begin) continue;
    for (const Block* b = first; b != nullptr; b = b->next) {
      if (address < b->end()) return b;
    }
  }
  return nullptr;
}

// ---- Cutting and joining ------------------------------------------------------------------------

Block* Arena::SplitAt(Block* block, uint64_t at) {
  WEIR_DCHECK(at > block->begin && at < block->end());
  Block* rest = blocks_->New();
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
  return rest;
}

void Arena::Absorb(Block* left, Block* right) {
  left->bytes += right->bytes;
  left->next = right->next;
  if (left->next != nullptr) left->next->prev = left;
  blocks_->Delete(right);
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

// ---- Users of handles ---------------------------------------------------------------------------

void Arena::CountLive(const Block& block) {
  ForEachHandle(block.begin, block.end(), block.segment, [](Handle* h) { ++h->live; });
}

void Arena::UncountLive(const Block& block, Epoch epoch) {
  ForEachHandle(block.begin, block.end(), block.segment, [epoch](Handle* h) {
    WEIR_DCHECK(h->live > 0);
    --h->live;
    // Always, because blocks of one handle are not uncounted in the order of their frees: the kept
    // block is uncounted late, with the epoch of its free.
    h->idle_epoch = std::max(h->idle_epoch, epoch);
  });
}

bool Arena::IsEmpty() const {
  return std::all_of(regions_.begin(), regions_.end(), [](const Block* first) {
    return first->state == BlockState::kHole && first->next == nullptr;
  });
}

Epoch Arena::NewestFree(const Block& block) {
  Epoch newest = 0;
  ForEachHandle(block.begin, block.end(), block.segment,
                [&newest](Handle* h) { newest = std::max(newest, h->idle_epoch); });
  return newest;
}

// ---- Allocation ---------------------------------------------------------------------------------

Block* Arena::TryAllocate(uint64_t bytes, uint64_t alignment) {
  blocks_->Reserve(4);
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
  Block* ready = ready_.FindBestFit(bytes, alignment);
  if (ready == nullptr) return nullptr;
  return CarveLive(ready, AlignUp(ready->begin, alignment), bytes);
}

Block* Arena::CarveLive(Block* ready, uint64_t begin, uint64_t bytes) {
  WEIR_DCHECK(ready->state == BlockState::kReady);
  RemoveFree(ready);
  Block* block = ready;
  if (begin > ready->begin) {
    block = SplitAt(ready, begin);
    InsertFree(ready);
  }
  if (block->bytes > bytes) InsertFree(SplitAt(block, begin + bytes));
  block->state = BlockState::kLive;
  block->owner = owner_;
  CountLive(*block);
  PointerIndex::Get().SetBlock(block);
  return block;
}

void Arena::Free(Block* block, Epoch epoch, bool keep) {
  if (keep) {
    FlushKept();
    block->state = BlockState::kKept;
    block->span = nullptr;
    kept_ = block;
    kept_epoch_ = epoch;
    return;
  }
  PointerIndex::Get().ClearBlock(block->begin);
  UncountLive(*block, epoch);
  MakeFree(block, BlockState::kReady);
}

void Arena::FlushKept() {
  if (kept_ == nullptr) return;
  Block* block = kept_;
  kept_ = nullptr;
  Free(block, kept_epoch_, /*keep=*/false);
}

// ---- Changes of what is mapped ------------------------------------------------------------------

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

void Arena::CarveHandles(const std::vector<Handle*>& handles, std::vector<Block*>* busy) {
  std::vector<Block*> ready;
  ready_.ForEach([&ready](Block* b) { ready.push_back(b); });
  for (Block* block : ready) {
    auto handle = std::lower_bound(handles.begin(), handles.end(), block->begin,
                                   [](Handle* h, uint64_t at) { return h->at < at; });
    while (handle != handles.end() && (*handle)->at < block->end()) {
      const uint64_t end = (*handle)->at + (*handle)->bytes;
      Block* carved = CarveBusy(block, (*handle)->at, end);
      busy->push_back(carved);
      block = carved->next;
      if (block == nullptr || block->begin != end) break;
      ++handle;
    }
  }
}

Block* Arena::Settle(Block* busy, uint64_t at) {
  Block* found = nullptr;
  for (Block* piece = busy; piece != nullptr;) {
    const PointerIndex& index = PointerIndex::Get();
    const bool mapped = piece->segment != nullptr || index.FindHandle(piece->begin) != nullptr;
    uint64_t end = AlignDown(piece->begin, PointerIndex::kGranule) + PointerIndex::kGranule;
    while (end < piece->end() && (index.FindHandle(end) != nullptr) == mapped) {
      end += PointerIndex::kGranule;
    }
    Block* rest = end < piece->end() ? SplitAt(piece, end) : nullptr;
    Block* settled = MakeFree(piece, mapped ? BlockState::kReady : BlockState::kHole);
    if (at >= settled->begin && at < settled->end()) found = settled;
    piece = rest;
  }
  return found;
}

}  // namespace weir
