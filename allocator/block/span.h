// Span: a block of 128 KiB cut into objects of one size class; and the lists of spans of one
// stream.
//
// Guarded by the heap lock, except `held`. An object is free, deferred (freed, but a stream still
// uses it), or taken: by a caller, or by a thread cache.
#ifndef WEIR_BLOCK_SPAN_H_
#define WEIR_BLOCK_SPAN_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "allocator/block/block.h"
#include "allocator/block/size_classes.h"

namespace weir {

struct Span {
  static constexpr int kMaxObjects = static_cast<int>(kSpanBytes / 512);

  Block* block = nullptr;
  uint64_t begin = 0;
  int size_class = 0;
  uint32_t object_bytes = 0;
  uint32_t objects = 0;
  uint32_t free_count = 0;
  bool is_withdrawn = false;  // in no list: its free objects are not handed out
  Span* prev = nullptr;       // in the list of spans with a free object
  Span* next = nullptr;
  std::array<uint64_t, kMaxObjects / 64> free{};  // bit i: object i is free
  std::array<uint64_t, kMaxObjects / 64> deferred{};
  // Of each object that a caller holds: the bytes that it did not ask for (class size - requested);
  // kHasUses may be added. kNotHeld for the others. Changed without the heap lock by the caller's
  // own calls (pool/thread_cache.h).
  std::array<Relaxed<uint16_t>, kMaxObjects> held;

  static constexpr uint16_t kNotHeld = 0xffff;
  static constexpr uint16_t kHasUses = 0x4000;  // on other streams, recorded

  // Objects that a caller holds or a stream still uses.
  uint32_t CountActive() const;
  uint32_t CountDeferred() const;  // of them, those that the caller has freed

  bool Test(const std::array<uint64_t, kMaxObjects / 64>& bits, uint32_t i) const {
    return (bits[i / 64] >> (i % 64)) & 1;
  }
};

struct SmallObject {
  uint64_t address = 0;
  Relaxed<uint16_t>* held = nullptr;  // Span::held of the object
};

// The spans of one stream, by size class.
class SpanLists {
 public:
  // An object of the class from a span that has one, or no address. The caller sets `held`. Spans
  // with the most recently freed object come first.
  SmallObject TryTake(int size_class);

  // Takes a certain object, which must be free. The caller sets `held`.
  SmallObject TakeAt(Span* span, uint32_t object);

  // Makes sure that the next `count` calls of AddSpan cannot fail. May throw std::bad_alloc.
  void Reserve(size_t count = 1);
  // Cuts a live block of kSpanBytes into objects.
  void AddSpan(Block* block, int size_class);

  // Makes an object free. Returns the span if it has no live object any more: it is then out of the
  // lists, its block no longer refers to it, and the block is the caller's to free.
  Block* Free(Span* span, uint32_t object);

  // Hands out none of its objects any more: their memory is lost.
  void Withdraw(Span* span);

  // The object at the address, or false if none begins there.
  static bool ObjectAt(const Span& span, uint64_t address, uint32_t* object) {
    const uint64_t offset = address - span.begin;
    if (offset >= kSpanBytes) return false;
    *object = ObjectOfOffset(span.size_class, offset);
    return *object * span.object_bytes == offset && *object < span.objects;
  }

  // Empty, or what is broken.
  std::string Verify() const;

 private:
  void PushFront(Span* span);
  void Remove(Span* span);

  std::array<Span*, kNumSizeClasses> partial_{};
  std::vector<std::unique_ptr<Span>> all_;
  std::vector<Span*> unused_;  // records without a block
};

}  // namespace weir

#endif  // WEIR_BLOCK_SPAN_H_
