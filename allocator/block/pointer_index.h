// PointerIndex: from an address to the block that begins there, from any thread, without a lock;
// and, under the heap lock, from an address to what is mapped there and to the block around it.
//
// Two levels: a table of 1 GiB chunks over the 48-bit address space, and in each chunk one entry
// per 32 KiB slot and one per 2 MiB granule. A slot holds at most one begin, because every indexed
// block is larger than 32 KiB (small requests are objects inside spans). A span of 128 KiB begins
// on a slot and fills four, which all name it, so that any object is found with one look. One index
// serves all devices: unified addressing gives every device its own addresses. Chunk tables are
// made when first needed (268 KiB each, touched lazily) and never freed.
#ifndef WEIR_BLOCK_POINTER_INDEX_H_
#define WEIR_BLOCK_POINTER_INDEX_H_

#include <atomic>
#include <cstdint>

#include "allocator/base/bytes.h"
#include "allocator/block/block.h"

namespace weir {

class PointerIndex {
 public:
  // The unit in which mappings are indexed; the heap's granule is a multiple of it.
  static constexpr uint64_t kGranule = 2 * kMiB;

  static PointerIndex& Get() { return index_; }

  // Makes the tables for a range of addresses. False if the host has no memory for them or the
  // range lies beyond 48 bits. Called before anything in the range is indexed.
  bool Cover(uint64_t begin, uint64_t bytes);

  // Writers hold the heap lock of the device that owns the address.
  void SetBlock(Block* block);
  void ClearBlock(uint64_t begin);
  // The further slots of a block that is, or was, cut into a span.
  void SetSpan(Block* block) { FillSpan(block->begin, block); }
  void ClearSpan(const Block* block) { FillSpan(block->begin, nullptr); }
  // What is mapped in a range of whole granules; nullptr for nothing.
  void SetMapping(Mapping* mapping, uint64_t at, uint64_t bytes);
  // Blocks of all states, of reservations: where they begin. Remove comes before the block is
  // unlinked from its neighbours, Add after it was linked.
  void AddBegin(Block* block);
  void RemoveBegin(const Block* block);

  // The indexed block that begins in the slot of the address, or the span that fills it; nullptr if
  // the address lies before or behind it. Takes no lock; what it returns is stable under the heap
  // lock, or while the caller holds a block or object at the address.
  Block* Find(uint64_t address) const {
    Chunk* chunk = ChunkOf(address);
    if (chunk == nullptr) return nullptr;
    Block* block = chunk->blocks[(address >> kSlotLog2) & (kSlotsPerChunk - 1)].load(
        std::memory_order_acquire);
    return block != nullptr && address - block->begin < block->bytes ? block : nullptr;
  }

  // Heap lock held: what is mapped at the address, and the block of a reservation that contains it.
  Mapping* FindMapping(uint64_t address) const;
  Block* FindContaining(uint64_t address) const;

 private:
  static constexpr int kChunkLog2 = 30;
  static constexpr int kSlotLog2 = 15;
  static constexpr int kGranuleLog2 = 21;
  static constexpr uint64_t kNumChunks = uint64_t{1} << (48 - kChunkLog2);
  static constexpr uint64_t kSlotsPerChunk = uint64_t{1} << (kChunkLog2 - kSlotLog2);
  static constexpr uint64_t kGranulesPerChunk = uint64_t{1} << (kChunkLog2 - kGranuleLog2);

  struct Chunk {
    std::atomic<Block*> blocks[kSlotsPerChunk];
    std::atomic<Mapping*> mappings[kGranulesPerChunk];
    // Heap lock. The first block that begins in each granule, and for which granules there is one.
    // A chunk belongs to one reservation, so to one device.
    Block* first_begins[kGranulesPerChunk];
    uint64_t has_begin[kGranulesPerChunk / 64];
  };

  PointerIndex() = default;
  Chunk* ChunkOf(uint64_t address) const {
    const uint64_t number = address >> kChunkLog2;
    if (number >= kNumChunks) return nullptr;
    return std::atomic_ref<Chunk*>(chunks_[number]).load(std::memory_order_acquire);
  }
  static uint64_t GranuleOf(uint64_t address) {
    return (address >> kGranuleLog2) & (kGranulesPerChunk - 1);
  }
  std::atomic<Block*>* Slot(uint64_t address) const;
  void FillSpan(uint64_t begin, Block* block);

  // Plain pointers behind atomic_ref, so that the static index is zero-initialized: no constructor
  // runs and untouched pages cost nothing.
  mutable Chunk* chunks_[kNumChunks];

  static PointerIndex index_;  // trivial: usable before main and at exit
};

}  // namespace weir

#endif  // WEIR_BLOCK_POINTER_INDEX_H_
