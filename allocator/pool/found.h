// Found: what a caller holds at an address, a block or an object; and what its records say of it.
//
// Guarded by the heap lock, or used by the caller that holds it.
#ifndef WEIR_POOL_FOUND_H_
#define WEIR_POOL_FOUND_H_

#include <cstdint>

#include "allocator/block/block.h"
#include "allocator/block/span.h"

namespace weir {

struct Found {
  Block* block = nullptr;  // nullptr: the caller holds nothing at the address
  uint32_t object = 0;     // if block->span

  // Of the block or object.
  uint64_t bytes() const {
    return block->span != nullptr ? SizeOfClass(block->span->size_class) : block->bytes;
  }
  // What the caller asked for.
  uint64_t requested() const {
    const Span* span = block->span;
    if (span == nullptr) return block->requested.load() & ~Block::kHasUses;
    const uint16_t held = span->held[object].load();
    return SizeOfClass(span->size_class) - (held & ~Span::kHasUses & 0xffff);
  }
  // Whether uses on other streams are recorded.
  bool has_uses() const {
    const Span* span = block->span;
    return span != nullptr ? (span->held[object].load() & Span::kHasUses) != 0
                           : (block->requested.load() & Block::kHasUses) != 0;
  }
  void MarkUses() const {
    if (Span* span = block->span) {
      Relaxed<uint16_t>& held = span->held[object];
      held.store(held.load() | Span::kHasUses);
    } else {
      block->requested.store(block->requested.load() | Block::kHasUses);
    }
  }
  void MarkNotHeld() const {
    if (Span* span = block->span) {
      span->held[object].store(Span::kNotHeld);
    } else {
      block->requested.store(Block::kNotHeld);
    }
  }
};

}  // namespace weir

#endif  // WEIR_POOL_FOUND_H_
