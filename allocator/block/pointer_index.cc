#include "allocator/block/pointer_index.h"

#include <sys/mman.h>

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

void PointerIndex::SetHandle(Handle* handle, uint64_t at, uint64_t bytes) {
  for (uint64_t end = at + bytes; at < end; at += kGranule) {
    ChunkOf(at)->handles[(at >> kGranuleLog2) & (kGranulesPerChunk - 1)].store(
        handle, std::memory_order_release);
  }
}

void PointerIndex::FillSpan(uint64_t begin, Block* block) {
  constexpr uint64_t kSlotBytes = uint64_t{1} << kSlotLog2;
  static_assert(kSpanAlignment == kSlotBytes && kSpanBytes % kSlotBytes == 0);
  for (uint64_t at = begin + kSlotBytes; at < begin + kSpanBytes; at += kSlotBytes) {
    Slot(at)->store(block, std::memory_order_release);
  }
}

Handle* PointerIndex::FindHandle(uint64_t address) const {
  Chunk* chunk = ChunkOf(address);
  if (chunk == nullptr) return nullptr;
  return chunk->handles[(address >> kGranuleLog2) & (kGranulesPerChunk - 1)].load(
      std::memory_order_acquire);
}

}  // namespace weir
