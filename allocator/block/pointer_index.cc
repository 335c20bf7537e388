#include "allocator/block/pointer_index.h"

#include <sys/mman.h>

#include <iterator>

#include "allocator/base/check.h"
#include "allocator/block/size_classes.h"

namespace weir {

PointerIndex PointerIndex::index_;

bool PointerIndex::Cover(uint64_t begin, uint64_t bytes) {
  if (bytes == 0) return true;
  const uint64_t first = begin >> kChunkLog2;
  const uint64_t last = (begin + bytes - 1) >> kChunkLog2;
  if (last >= kNumChunks) return false;
  for (uint64_t number = first; number <= last; ++number) {
    std::atomic_ref<Chunk*> entry(chunks_[number]);
    if (entry.load(std::memory_order_acquire) != nullptr) continue;
    void* memory = mmap(nullptr, sizeof(Chunk), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    Chunk* expected = nullptr;
    if (!entry.compare_exchange_strong(expected, static_cast<Chunk*>(memory),
                                       std::memory_order_acq_rel)) {
      munmap(memory, sizeof(Chunk));  // another device covered it meanwhile
    }
  }
  return true;
}

std::atomic<Block*>* PointerIndex::Slot(uint64_t address) const {
  Chunk* chunk = ChunkOf(address);
  if (chunk == nullptr) return nullptr;
  return &chunk->blocks[(address >> kSlotLog2) & (kSlotsPerChunk - 1)];
}

void PointerIndex::SetBlock(Block* block) {
  Slot(block->begin)->store(block, std::memory_order_release);
}

void PointerIndex::ClearBlock(uint64_t begin) {
  Slot(begin)->store(nullptr, std::memory_order_release);
}

void PointerIndex::SetMapping(Mapping* mapping, uint64_t at, uint64_t bytes) {
  for (uint64_t end = at + bytes; at < end; at += kGranule) {
    ChunkOf(at)->mappings[GranuleOf(at)].store(mapping, std::memory_order_release);
  }
}

void PointerIndex::AddBegin(Block* block) {
  Chunk* chunk = ChunkOf(block->begin);
  const uint64_t granule = GranuleOf(block->begin);
  Block*& first = chunk->first_begins[granule];
  if (first == nullptr || block->begin < first->begin) first = block;
  chunk->has_begin[granule / 64] |= uint64_t{1} << (granule % 64);
}

void PointerIndex::RemoveBegin(const Block* block) {
  Chunk* chunk = ChunkOf(block->begin);
  const uint64_t granule = GranuleOf(block->begin);
  Block*& first = chunk->first_begins[granule];
  if (first != block) return;
  const bool next_too = block->next != nullptr &&
                        (block->next->begin >> kGranuleLog2) == (block->begin >> kGranuleLog2);
  first = next_too ? block->next : nullptr;
  if (!next_too) chunk->has_begin[granule / 64] &= ~(uint64_t{1} << (granule % 64));
}

Block* PointerIndex::FindContaining(uint64_t address) const {
  const Chunk* chunk = ChunkOf(address);
  if (chunk == nullptr) return nullptr;
  const uint64_t granule = GranuleOf(address);
  Block* block = chunk->first_begins[granule];
  if (block == nullptr || block->begin > address) {
    // The last granule before it in which a block begins.
    uint64_t word = granule / 64;
    uint64_t bits = chunk->has_begin[word] & ((uint64_t{1} << (granule % 64)) - 1);
    for (uint64_t number = address >> kChunkLog2; bits == 0;) {
      if (word == 0) {
        if (number == 0) return nullptr;
        chunk = ChunkOf(--number << kChunkLog2);
        if (chunk == nullptr) return nullptr;
        word = std::size(chunk->has_begin);
      }
      bits = chunk->has_begin[--word];
    }
    block = chunk->first_begins[word * 64 + static_cast<uint64_t>(FloorLog2(bits))];
  }
  while (block->next != nullptr && block->next->begin <= address) block = block->next;
  return address < block->end() ? block : nullptr;
}

void PointerIndex::FillSpan(uint64_t begin, Block* block) {
  constexpr uint64_t kSlotBytes = uint64_t{1} << kSlotLog2;
  static_assert(kSpanAlignment == kSlotBytes && kSpanBytes % kSlotBytes == 0);
  for (uint64_t at = begin + kSlotBytes; at < begin + kSpanBytes; at += kSlotBytes) {
    Slot(at)->store(block, std::memory_order_release);
  }
}

Mapping* PointerIndex::FindMapping(uint64_t address) const {
  const Chunk* chunk = ChunkOf(address);
  if (chunk == nullptr) return nullptr;
  return chunk->mappings[GranuleOf(address)].load(std::memory_order_acquire);
}

}  // namespace weir
