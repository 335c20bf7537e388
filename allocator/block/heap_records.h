// RecordPool: records of one type, recycled without going through malloc each time; and
// HeapRecords, what the arenas of one device share.
//
// Records are never returned to the system, so that a stale pointer to one still points to a
// record. Guarded by the heap lock.
#ifndef WEIR_BLOCK_HEAP_RECORDS_H_
#define WEIR_BLOCK_HEAP_RECORDS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "allocator/block/block.h"

namespace weir {

// T has a member `next`, free for use while the record is in the pool.
template <typename T>
class RecordPool {
 public:
  // May throw std::bad_alloc.
  T* New() {
    Reserve(1);
    T* record = free_;
    free_ = record->next;
    --free_count_;
    *record = T{};
    return record;
  }
  void Delete(T* record) {
    record->next = free_;
    free_ = record;
    ++free_count_;
  }
  // Makes sure that the next `count` calls of New cannot fail. May throw std::bad_alloc.
  void Reserve(size_t count) {
    while (free_count_ < held_ + count) Refill();
  }
  // Keeps `count` records back for a change that goes on after the heap lock was given up: others
  // cannot use them up. May throw std::bad_alloc.
  void Hold(size_t count) {
    Reserve(count);
    held_ += count;
  }
  void Unhold(size_t count) { held_ -= count; }

 private:
  static constexpr size_t kPerSlab = 256;
  void Refill() {
    slabs_.push_back(std::make_unique<T[]>(kPerSlab));
    for (size_t i = 0; i < kPerSlab; ++i) Delete(&slabs_.back()[i]);
  }

  T* free_ = nullptr;
  size_t free_count_ = 0;
  size_t held_ = 0;
  std::vector<std::unique_ptr<T[]>> slabs_;
};

// Physical memory that the arenas of one size range have, with its peaks; totals count what came to
// them, also from the other range. Memory belongs to the arena of its first mapping.
struct HeldMemory {
  uint64_t bytes = 0, peak_bytes = 0, total_bytes = 0;
  uint64_t handles = 0, peak_handles = 0, total_handles = 0;

  void Gain(uint64_t amount);
  void Lose(uint64_t amount);
  void ResetPeaks();
};

struct HeapRecords {
  RecordPool<Block> blocks;
  RecordPool<Mapping> mappings;
  uint64_t alias_bytes = 0;  // of all mappings but owners and guests
  HeldMemory held_small, held_large;
  uint64_t guests = 0;       // guest mappings
  uint64_t dead_guests = 0;  // those of them that no block uses any more
  // While granules are merged, what is freed stays as it is: Arena::Free only lists it here, by
  // Block::bin_next, and EndMerging (arena.h) frees it.
  bool merging = false;
  // Memory that blocks use is mapped nowhere: nothing that is freed is handed out again before
  // Arena::Free has looked where it lies, so no block is kept or cached.
  bool has_lost = false;
  Block* parked = nullptr;
  uint64_t stamp = 0;  // for Handle::stamp
  uint64_t clock = 0;  // large requests so far, for Mapping::last_use

  // Adds a mapping to its handle's list, last but for the owner; takes it out again.
  void Attach(Mapping* mapping, Handle* handle);
  void Detach(Mapping* mapping);
  // The mapping becomes its handle's owner.
  void MakeFirst(Mapping* mapping);

 private:
  void CountAgain(Handle* handle, uint64_t alias_bytes_before);
  HeldMemory& HeldBy(const Arena& arena);
  // The handle's first mapping was in `before` (nullptr: it had none).
  void CountHeld(const Handle& handle, const Arena* before);
};

}  // namespace weir

#endif  // WEIR_BLOCK_HEAP_RECORDS_H_
