// BlockPool: records of type Block, recycled without going through malloc each time.
//
// Records are never returned to the system, so that a stale pointer to one still points to a Block.
// Guarded by the heap lock.
#ifndef WEIR_BLOCK_BLOCK_POOL_H_
#define WEIR_BLOCK_BLOCK_POOL_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "allocator/block/block.h"

namespace weir {

class BlockPool {
 public:
  // May throw std::bad_alloc.
  Block* New() {
    Reserve(1);
    Block* block = free_;
    free_ = block->next;
    --free_count_;
    *block = Block{};
    return block;
  }
  void Delete(Block* block) {
    block->next = free_;
    free_ = block;
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
    slabs_.push_back(std::make_unique<Block[]>(kPerSlab));
    for (size_t i = 0; i < kPerSlab; ++i) Delete(&slabs_.back()[i]);
  }

  Block* free_ = nullptr;
  size_t free_count_ = 0;
  size_t held_ = 0;
  std::vector<std::unique_ptr<Block[]>> slabs_;
};

}  // namespace weir

#endif  // WEIR_BLOCK_BLOCK_POOL_H_
