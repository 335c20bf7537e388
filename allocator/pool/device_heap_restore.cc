#include "allocator/pool/device_heap_restore.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"

namespace weir {

HeapError DeviceHeap::PoolRestore::Refuse(uint64_t address, uint64_t bytes, const char* why) const {
  return {WEIR_ERROR_INVALID_ARGUMENT,
          absl::StrCat("pool 0x", absl::Hex(pool_), " cannot be restored: the block of ", bytes,
                       " bytes at 0x", absl::Hex(address), " ", why)};
}

HeapError DeviceHeap::PoolRestore::Run(std::vector<Wanted> wanted) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  wanted_ = std::move(wanted);
  if (HeapError error = GroupWanted(); !error.ok()) return error;
  MutexLock space(heap_.space_mu_);  // no change of the mapping is under way
  const CallSeries series(*heap_.driver_);
  heap_.context_is_captured_.reset();
  {
    MutexLock lock(heap_.heap_mu_);
    if (HeapError error; heap_.FindPool(pool_, &error) == nullptr) return error;
  }
  if (const DriverStatus status = heap_.CompleteDeferred(/*wait=*/true); status.is_fatal())
    return heap_.DriverFailure(status);
  MutexLock lock(heap_.heap_mu_);
  if (HeapError error; heap_.FindPool(pool_, &error) == nullptr) return error;
  heap_.FlushKept();
  CollectBlocks();
  for (const Block* block : blocks_) {
    const bool waits = block->state == BlockState::kDeferred ||
                       (block->span != nullptr && block->span->CountDeferred() > 0);
    if (waits) return Refuse(block->begin, block->bytes, "was freed, but a stream still uses it");
  }
  for (Target& target : targets_) {
    if (HeapError error = Check(&target); !error.ok()) return error;
  }
  ChooseFrees();
  ReserveRecords();
  Apply();
  return {};
}

HeapError DeviceHeap::PoolRestore::GroupWanted() {
  std::sort(wanted_.begin(), wanted_.end(),
            [](const Wanted& a, const Wanted& b) { return a.address < b.address; });
  targets_.reserve(wanted_.size());
  uint64_t end = 0;  // of the block or object before
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const Wanted& w = wanted_[i];
    const bool is_object = w.bytes <= kMaxSmallBytes;
    if (w.bytes == 0 || !IsAligned(w.address | w.bytes, kBlockAlignment) || w.requested > w.bytes ||
        w.address > UINT64_MAX / 2 || w.bytes > UINT64_MAX / 2) {
      return Refuse(w.address, w.bytes, "is none that a pool has ever had");
    }
    if (w.address < end) return Refuse(w.address, w.bytes, "overlaps another one");
    end = w.address + w.bytes;
    if (!is_object) {
      if (!targets_.empty() && targets_.back().end() > w.address)
        return Refuse(w.address, w.bytes, "overlaps a span of small blocks");
      targets_.push_back({w.address, w.bytes, -1, i, 1});
      continue;
    }
    const int size_class = SizeClassOf(w.bytes);
    const uint64_t begin = AlignDown(w.address, kSpanBytes), offset = w.address - begin;
    if (SizeOfClass(size_class) != w.bytes || w.bytes - w.requested >= Span::kHasUses ||
        offset % w.bytes != 0 || offset / w.bytes >= ObjectsPerSpan(size_class)) {
      return Refuse(w.address, w.bytes, "is none that a pool has ever had");
    }
    if (!targets_.empty() && targets_.back().end() > begin) {
      Target& last = targets_.back();
      if (last.begin != begin || last.size_class != size_class ||
          wanted_[last.first].stream != w.stream) {
        return Refuse(w.address, w.bytes, "lies in a span of blocks of other sizes or streams");
      }
      ++last.count;
      continue;
    }
    targets_.push_back({begin, kSpanBytes, size_class, i, 1});
  }
  return {};
}

void DeviceHeap::PoolRestore::CollectBlocks() {
  for (const auto& stream : heap_.streams_) {
    if (stream->key.pool != pool_) continue;
    for (const Arena* arena : {&stream->small, &stream->large}) {
      arena->ForEachBlock([this](Block& b) { blocks_.push_back(&b); });
    }
  }
  std::sort(blocks_.begin(), blocks_.end(),
            [](const Block* a, const Block* b) { return a->begin < b->begin; });
}

HeapError DeviceHeap::PoolRestore::Check(Target* target) const {
  auto at =
      std::upper_bound(blocks_.begin(), blocks_.end(), target->begin,
                       [](uint64_t address, const Block* block) { return address < block->end(); });
  const Wanted& w = wanted_[target->first];
  const auto refuse = [&](const char* why) { return Refuse(w.address, w.bytes, why); };
  uint64_t covered = target->begin;
  for (; covered < target->end(); ++at) {
    if (at == blocks_.end() || (*at)->begin > covered)
      return refuse("lies outside of the pool's memory");
    if (target->arena == nullptr) target->arena = (*at)->arena;
    if ((*at)->arena != target->arena) return refuse("lies in memory of two kinds");
    if (HeapError error = CheckBlock(*target, **at); !error.ok()) return error;
    covered = (*at)->end();
  }
  const Block* block = *std::prev(at);
  const bool is_same = block->begin == target->begin && block->bytes == target->bytes;
  StreamHeap* owner = target->arena->owner();
  const uint64_t kind = target->size_class < 0 ? target->bytes : kSpanBytes;
  if (owner->no_split() ? !is_same : &owner->ArenaFor(kind) != target->arena)
    return refuse("is none that this pool has ever had");
  if (owner->key.stream != KeyOf(w.stream).stream && owner->key.stream != kNoStream)
    return refuse("belongs to another stream");
  const int is_class = block->span != nullptr ? block->span->size_class : -1;
  if (!is_same || block->state != BlockState::kLive || is_class != target->size_class) return {};
  // A span stays only with one of its objects, else it is made again.
  bool stays = is_class < 0;
  for (uint32_t i = 0; is_class >= 0 && i < block->span->objects && !stays; ++i) {
    stays = block->span->held[i].load() != Span::kNotHeld &&
            IsWanted(*target, block->begin + uint64_t{i} * block->span->object_bytes);
  }
  if (stays) target->there = *std::prev(at);
  return {};
}

HeapError DeviceHeap::PoolRestore::CheckBlock(const Target& target, const Block& block) const {
  const Wanted& w = wanted_[target.first];
  switch (block.state) {
    case BlockState::kReady:
      return {};
    case BlockState::kLive:
      if (block.owner == block.arena->owner()) return {};
      return Refuse(w.address, w.bytes, "is lent to a request outside of the pool (use_on_oom)");
    case BlockState::kHole:
      return Refuse(w.address, w.bytes, "has no memory any more: it was given back");
    default:
      return Refuse(w.address, w.bytes, "is in other use");
  }
}

void DeviceHeap::PoolRestore::ReserveRecords() {
  heap_.records_.blocks.Reserve(2 * targets_.size());
  for (const auto& stream : heap_.streams_) {
    const auto spans = std::count_if(targets_.begin(), targets_.end(), [&](const Target& t) {
      return t.size_class >= 0 && t.arena->owner() == stream.get();
    });
    if (spans > 0) stream->spans.Reserve(static_cast<size_t>(spans));
  }
}

void DeviceHeap::PoolRestore::ChooseFrees() {
  auto target = targets_.begin();
  for (Block* block : blocks_) {
    while (target != targets_.end() && target->end() <= block->begin) ++target;
    const bool stays = target != targets_.end() && target->there == block;
    if (block->state == BlockState::kLive && block->owner == block->arena->owner() && !stays)
      frees_.push_back(block);
  }
}

void DeviceHeap::PoolRestore::Apply() {
  // Frees first, so that peaks are not above what was ever in use.
  for (const Target& target : targets_) {
    if (target.there != nullptr && target.size_class >= 0) FreeObjects(target.there, &target);
  }
  for (Block* block : frees_) {
    if (block->span != nullptr) {
      FreeObjects(block, nullptr);
    } else {
      FreeOne({block}, block->begin);
    }
  }
  for (const Target& t : targets_) {
    Block* block = t.there;
    if (block == nullptr) {
      block = t.arena->CarveLive(t.arena->FindContaining(t.begin), t.begin, t.bytes);
      if (t.size_class >= 0) t.arena->owner()->spans.AddSpan(block, t.size_class);
    }
    for (size_t i = t.first; i < t.first + t.count; ++i) Hold(block, wanted_[i]);
  }
}

bool DeviceHeap::PoolRestore::IsWanted(const Target& target, uint64_t address) const {
  const auto first = wanted_.begin() + static_cast<std::ptrdiff_t>(target.first);
  const auto last = first + static_cast<std::ptrdiff_t>(target.count);
  const auto at = std::lower_bound(first, last, address,
                                   [](const Wanted& w, uint64_t a) { return w.address < a; });
  return at != last && at->address == address;
}

void DeviceHeap::PoolRestore::FreeObjects(Block* block, const Target* but_wanted) {
  // The span may be gone with its last object.
  const uint64_t begin = block->begin, bytes = block->span->object_bytes;
  const uint32_t objects = block->span->objects;
  uint32_t held = 0;
  for (uint32_t i = 0; i < objects; ++i) {
    if (block->span->held[i].load() != Span::kNotHeld) ++held;
  }
  for (uint32_t i = 0; i < objects && held > 0; ++i) {
    if (block->span->held[i].load() == Span::kNotHeld) continue;
    --held;
    const uint64_t address = begin + i * bytes;
    if (but_wanted == nullptr || !IsWanted(*but_wanted, address)) FreeOne({block, i}, address);
  }
}

void DeviceHeap::PoolRestore::FreeOne(const Found& found, uint64_t address) {
  heap_.stacks_.erase(address);
  heap_.uses_.erase(address);
  heap_.CountFree(heap_.OwnCache(), found.requested(), found.bytes(), IsLarge(*found.block));
  found.MarkNotHeld();
  heap_.PutBack(found, /*keep=*/false);
}

void DeviceHeap::PoolRestore::Hold(Block* block, const Wanted& wanted) {
  Found found{block};
  const bool is_object = block->span != nullptr;
  if (is_object) WEIR_CHECK(SpanLists::ObjectAt(*block->span, wanted.address, &found.object));
  const bool is_held = is_object ? block->span->held[found.object].load() != Span::kNotHeld
                                 : block->requested.load() != Block::kNotHeld;
  const bool has_uses = is_held && found.has_uses();
  if (is_held && found.requested() == wanted.requested) return;
  ThreadCache* own = heap_.OwnCache();
  if (is_held) heap_.CountFree(own, found.requested(), found.bytes(), IsLarge(*block));
  heap_.CountAllocation(own, wanted.requested, found.bytes(), IsLarge(*block));
  if (is_object) {
    if (!is_held) block->arena->owner()->spans.TakeAt(block->span, found.object);
    block->span->held[found.object].store(static_cast<uint16_t>(wanted.bytes - wanted.requested));
  } else {
    block->requested.store(wanted.requested);
  }
  if (has_uses) found.MarkUses();
}

}  // namespace weir
