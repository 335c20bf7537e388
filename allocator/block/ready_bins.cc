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

}  // namespace weir
