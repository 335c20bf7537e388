#include "allocator/block/ready_bins.h"

#include <bit>
#include <cstddef>

#include "allocator/base/check.h"

namespace weir {

int ReadyBins::BinOf(uint64_t bytes) {
  const int log2 = FloorLog2(bytes);
  WEIR_DCHECK(log2 >= kMinLog2 && log2 <= kMaxLog2);
  return (log2 - kMinLog2) * 16 + static_cast<int>((bytes >> (log2 - 4)) & 15);
}

void ReadyBins::Insert(Block* block) {
  const int bin = BinOf(block->bytes);
  Block*& head = heads_[static_cast<size_t>(bin)];
  block->bin_prev = nullptr;
  block->bin_next = head;
  if (head != nullptr) head->bin_prev = block;
  head = block;
  const auto word = static_cast<size_t>(bin / 64);
  words_[word] |= uint64_t{1} << (bin % 64);
  summary_ |= uint64_t{1} << word;
}

void ReadyBins::Remove(Block* block) {
  if (block->bin_next != nullptr) block->bin_next->bin_prev = block->bin_prev;
  if (block->bin_prev != nullptr) {
    block->bin_prev->bin_next = block->bin_next;
  } else {
    const int bin = BinOf(block->bytes);
    Block*& head = heads_[static_cast<size_t>(bin)];
    WEIR_DCHECK(head == block);
    head = block->bin_next;
    if (head == nullptr) {
      const auto word = static_cast<size_t>(bin / 64);
      words_[word] &= ~(uint64_t{1} << (bin % 64));
      if (words_[word] == 0) summary_ &= ~(uint64_t{1} << word);
    }
  }
  block->bin_prev = block->bin_next = nullptr;
}

int ReadyBins::NextNonEmpty(int bin) const {
  if (bin >= kNumBins) return -1;
  auto word = static_cast<size_t>(bin / 64);
  uint64_t bits = words_[word] & (~uint64_t{0} << (bin % 64));
  if (bits == 0) {
    const uint64_t later = word + 1 < 64 ? summary_ & (~uint64_t{0} << (word + 1)) : 0;
    if (later == 0) return -1;
    word = static_cast<size_t>(std::countr_zero(later));
    bits = words_[word];
  }
  return static_cast<int>(word) * 64 + std::countr_zero(bits);
}

Block* ReadyBins::BestInBin(int bin, uint64_t bytes, uint64_t alignment) const {
  Block* best = nullptr;
  int scanned = 0;
  for (Block* b = heads_[static_cast<size_t>(bin)]; b != nullptr; b = b->bin_next) {
    if (Fits(*b, bytes, alignment) && (best == nullptr || b->bytes < best->bytes ||
                                       (b->bytes == best->bytes && b->begin < best->begin))) {
      best = b;
    }
    if (++scanned >= kMaxScan && best != nullptr) break;
  }
  return best;
}

Block* ReadyBins::FindBestFit(uint64_t bytes, uint64_t alignment) const {
  for (int bin = NextNonEmpty(BinOf(bytes)); bin >= 0; bin = NextNonEmpty(bin + 1)) {
    if (Block* block = BestInBin(bin, bytes, alignment)) return block;
  }
  return nullptr;
}

}  // namespace weir
