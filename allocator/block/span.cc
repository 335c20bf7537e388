#include "allocator/block/span.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/block/pointer_index.h"

namespace weir {

void SpanLists::PushFront(Span* span) {
  Span*& head = partial_[static_cast<size_t>(span->size_class)];
  span->prev = nullptr;
  span->next = head;
  if (head != nullptr) head->prev = span;
  head = span;
}

void SpanLists::Remove(Span* span) {
  if (span->next != nullptr) span->next->prev = span->prev;
  (span->prev != nullptr ? span->prev->next : partial_[static_cast<size_t>(span->size_class)]) =
      span->next;
  span->prev = span->next = nullptr;
}

SmallObject SpanLists::TryTake(int size_class) {
  Span* span = partial_[static_cast<size_t>(size_class)];
  if (span == nullptr) return {};
  size_t word = 0;
  while (span->free[word] == 0) ++word;
  const size_t object = word * 64 + static_cast<size_t>(std::countr_zero(span->free[word]));
  span->free[word] &= span->free[word] - 1;
  if (--span->free_count == 0) Remove(span);
  return {span->begin + object * span->object_bytes, &span->held[object]};
}

SmallObject SpanLists::TakeAt(Span* span, uint32_t object) {
  WEIR_DCHECK(span->Test(span->free, object));
  span->free[object / 64] &= ~(uint64_t{1} << (object % 64));
  if (--span->free_count == 0 && !span->is_withdrawn) Remove(span);
  return {span->begin + uint64_t{object} * span->object_bytes, &span->held[object]};
}

void SpanLists::Reserve(size_t count) {
  while (unused_.size() < count) {
    unused_.reserve(all_.size() + 1);  // room for all, so that Free cannot fail
    all_.push_back(std::make_unique<Span>());
    unused_.push_back(all_.back().get());
  }
}

void SpanLists::AddSpan(Block* block, int size_class) {
  Reserve();
  Span* span = unused_.back();
  unused_.pop_back();
  span->block = block;
  span->begin = block->begin;
  span->size_class = size_class;
  span->object_bytes = static_cast<uint32_t>(SizeOfClass(size_class));
  span->objects = span->free_count = ObjectsPerSpan(size_class);
  span->is_withdrawn = false;
  span->deferred.fill(0);
  span->held.fill(Span::kNotHeld);
  for (size_t word = 0; word < span->free.size(); ++word) {
    const uint32_t first = static_cast<uint32_t>(word * 64);
    const uint32_t left = span->free_count > first ? span->free_count - first : 0;
    span->free[word] = left >= 64 ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
  }
  block->span = span;
  PointerIndex::Get().SetSpan(block);
  PushFront(span);
}

Block* SpanLists::Free(Span* span, uint32_t object) {
  WEIR_DCHECK(!span->Test(span->free, object));
  span->free[object / 64] |= uint64_t{1} << (object % 64);
  span->deferred[object / 64] &= ~(uint64_t{1} << (object % 64));
  if (++span->free_count == 1 && !span->is_withdrawn) PushFront(span);
  if (span->free_count < span->objects) return nullptr;
  if (!span->is_withdrawn) Remove(span);
  Block* block = span->block;
  PointerIndex::Get().ClearSpan(block);
  block->span = nullptr;
  span->block = nullptr;
  unused_.push_back(span);
  return block;
}

void SpanLists::Withdraw(Span* span) {
  if (span->free_count > 0 && !span->is_withdrawn) Remove(span);
  span->is_withdrawn = true;
}

uint32_t Span::CountActive() const {
  uint32_t count = 0;
  for (uint32_t i = 0; i < objects; ++i) {
    if (held[i].load() != kNotHeld || Test(deferred, i)) ++count;
  }
  return count;
}

uint32_t Span::CountDeferred() const {
  int count = 0;
  for (const uint64_t word : deferred) count += std::popcount(word);
  return static_cast<uint32_t>(count);
}

std::string SpanLists::Verify() const {
  for (const auto& span : all_) {
    if (span->block == nullptr) continue;
    if (span->block->span != span.get() || span->block->state != BlockState::kLive)
      return absl::StrCat("span at 0x", absl::Hex(span->block->begin), " does not own its block");
    uint32_t free = 0;
    for (uint32_t i = 0; i < span->objects; ++i) {
      if (span->held[i].load() != Span::kNotHeld &&
          (span->Test(span->free, i) || span->Test(span->deferred, i)))
        return absl::StrCat("span at 0x", absl::Hex(span->begin),
                            " has an object that is held and free");
    }
    for (size_t word = 0; word < span->free.size(); ++word) {
      free += static_cast<uint32_t>(std::popcount(span->free[word]));
      if ((span->free[word] & span->deferred[word]) != 0)
        return absl::StrCat("span at 0x", absl::Hex(span->block->begin),
                            " has an object that is free and deferred");
    }
    if (free != span->free_count)
      return absl::StrCat("span at 0x", absl::Hex(span->block->begin), " miscounts free objects");
    bool listed = false;
    for (Span* s = partial_[static_cast<size_t>(span->size_class)]; s != nullptr; s = s->next)
      listed |= s == span.get();
    if (listed != (span->free_count > 0 && !span->is_withdrawn))
      return absl::StrCat("span at 0x", absl::Hex(span->block->begin), " is in the wrong list");
  }
  return "";
}

}  // namespace weir
