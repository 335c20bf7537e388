// ThreadCache: free small blocks of one thread and one stream, handed out and taken back without a
// lock that threads share.
//
// It holds objects of spans (requests up to 32 KiB, by size class) and blocks of up to 256 KiB (by
// exact size). For the arena and the spans these are in use; that no caller holds them is written
// in Span::held and Block::requested. All of it was freed on the cache's stream, so reuse on that
// stream is in order.
//
// Note [Rooms]. Peaks are exact although hits count for themselves. The heap counts what caches may
// still hand out without asking, their *rooms*, as if it were handed out already: what the heap's
// counters say is the truth plus all rooms, and it never exceeds the peaks. A hit takes from its
// room, a free adds to it. A thread whose room is used up asks the heap, which grants more below
// the peaks; at the peaks it takes all rooms back, and then knows the truth.
//
// Who may touch it: its thread after entering lock_, or whoever holds the heap lock and is its
// thread or has stopped it (base/owner_lock.h).
#ifndef WEIR_POOL_THREAD_CACHE_H_
#define WEIR_POOL_THREAD_CACHE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/base/owner_lock.h"
#include "allocator/block/block.h"
#include "allocator/block/pointer_index.h"
#include "allocator/block/size_classes.h"
#include "allocator/block/span.h"
#include "allocator/pool/stream_heap.h"
#include "allocator/pool/tags.h"

namespace weir {

class DeviceHeap;

// How many objects of each class a cache holds: 256 KiB of them, at most 64.
struct CacheClass {
  uint32_t size, capacity, first;  // entries [first, first + capacity)
};
inline constexpr auto kCacheClasses = [] {
  std::array<CacheClass, kNumSizeClasses> classes{};
  uint32_t first = 0;
  for (int c = 0; c < kNumSizeClasses; ++c) {
    const auto size = static_cast<uint32_t>(SizeOfClass(c));
    const uint32_t capacity = std::clamp<uint32_t>(256 * 1024 / size, 8, 64);
    classes[static_cast<size_t>(c)] = {size, capacity, first};
    first += capacity;
  }
  return classes;
}();

class ThreadCache {
 public:
  static constexpr uint64_t kMaxBytes = kMaxSmallArenaBytes;  // larger blocks are not cached

  // Bytes and blocks handed out, or that may be.
  struct Amounts {
    int64_t requested = 0;
    int64_t allocated = 0;
    int64_t blocks = 0;
  };

  // ---- The cache's thread, without a lock ----

  // 0 unless the cache is of that stream and device and has a block and room.
  uint64_t TryAllocate(uint64_t bytes, Stream stream, int device) {
    if (!lock_.TryEnter()) [[unlikely]]
      return 0;
    uint64_t address = 0;
    if (stream == allocates_on_ && device == device_) [[likely]]
      address = Pop(bytes);
    lock_.Exit();
    return address;
  }
  // `block`: what the pointer index says of the address. False, and nothing changed, unless the
  // address is held by a caller, has no uses on other streams, belongs to the cache's stream, and
  // there is space for it.
  bool TryFree(Block* block, uint64_t address, Stream stream) {
    if (!lock_.TryEnter()) [[unlikely]]
      return false;
    const bool done = stream == frees_on_.load() && block->owner == owner_ && Push(block, address);
    lock_.Exit();
    return done;
  }

  // The same whatever the stream is called, if it is the cache's.
  bool TryFreeOrdered(Block* block, uint64_t address) {
    if (!lock_.TryEnter()) [[unlikely]]
      return false;
    const bool done = block->owner == owner_ && Push(block, address);
    lock_.Exit();
    return done;
  }

  // ---- Under the rule above ----

  // As TryAllocate and TryFree.
  uint64_t Pop(uint64_t bytes);
  bool Push(Block* block, uint64_t address);
  // Whether Pop fails for want of room only.
  bool Has(uint64_t bytes) const;

  // How many more objects of a class there is space for.
  size_t SpaceFor(int size_class) const;
  // Adds an object that no caller holds; there must be space.
  void AddFree(int size_class, const SmallObject& object);

  // Takes out about the oldest half of what the cache has, or all of it, calling
  // fn(block, address) for each. Of one class, or of everything.
  template <typename Fn>
  void TakeOutOf(int size_class, bool all, Fn fn);
  template <typename Fn>
  void TakeOut(bool all, Fn fn);

  void Bind(DeviceHeap* heap, StreamHeap* owner, Stream stream, int device, uint64_t limit);
  // Must be empty, without room. Keeps the heap.
  void Unbind();
  // Whether hits may be served; frees are taken in any case.
  void EnableAllocation(bool enable) { allocates_on_ = enable ? frees_on_.load() : kNoStream; }

  // What it is bound to; from any thread.
  bool Serves(const DeviceHeap* heap, Stream stream) const {
    return frees_on_.load() == stream && heap_.load() == heap;
  }
  DeviceHeap* heap() const { return heap_.load(); }
  void set_heap(DeviceHeap* heap) { heap_.store(heap); }
  StreamHeap* owner() const { return owner_; }
  OwnerLock& lock() { return lock_; }
  // A number of the thread that has it; see ThreadNumber.
  uint64_t thread() const { return thread_; }
  void set_thread(uint64_t thread) { thread_ = thread; }
  uint64_t cached_bytes() const { return bytes_; }

  Amounts room;
  Amounts taken;  // handed out since the heap last added it to its totals

 private:
  static constexpr size_t kNumEntries = kCacheClasses.back().first + kCacheClasses.back().capacity;
  static constexpr size_t kNumBins = (kMaxBytes - kMaxSmallBytes) / kBlockAlignment;
  static size_t BinOf(uint64_t bytes) {  // of a block's bytes, or of a request
    return (bytes - kMaxSmallBytes - 1) / kBlockAlignment;
  }

  // False if there is no room. Counts nothing then.
  bool Charge(uint64_t requested, uint64_t allocated) {
    const Amounts left{room.requested - static_cast<int64_t>(requested),
                       room.allocated - static_cast<int64_t>(allocated), room.blocks - 1};
    if ((left.requested | left.allocated | left.blocks) < 0) return false;
    room = left;
    taken.requested += static_cast<int64_t>(requested);
    taken.allocated += static_cast<int64_t>(allocated);
    ++taken.blocks;
    bytes_ -= allocated;
    return true;
  }
  void Credit(uint64_t requested, uint64_t allocated) {
    room.requested += static_cast<int64_t>(requested);
    room.allocated += static_cast<int64_t>(allocated);
    ++room.blocks;
    bytes_ += allocated;
  }

  OwnerLock lock_;
  int device_ = -1;
  Stream allocates_on_ = kNoStream;
  Relaxed<Stream> frees_on_ = kNoStream;
  StreamHeap* owner_ = nullptr;
  uint64_t bytes_ = 0;  // in the cache
  uint64_t limit_ = 0;  // of bytes_
  Relaxed<DeviceHeap*> heap_ = nullptr;
  uint64_t thread_ = 0;
  std::array<uint32_t, kNumSizeClasses> counts_{};  // of entries, the newest last
  std::array<SmallObject, kNumEntries> entries_;
  std::array<Block*, kNumBins> blocks_{};  // lists through Block::bin_next, the newest first
};

inline uint64_t ThreadCache::Pop(uint64_t bytes) {
  if (bytes <= kMaxSmallBytes) {
    const auto c = static_cast<size_t>(SizeClassOf(bytes));
    const uint32_t count = counts_[c];
    const uint64_t size = kCacheClasses[c].size;
    if (count == 0 || !Charge(bytes, size)) return 0;
    counts_[c] = count - 1;
    const SmallObject& object = entries_[kCacheClasses[c].first + count - 1];
    object.held->store(static_cast<uint16_t>(size - bytes));
    return object.address;
  }
  if (bytes > kMaxBytes) return 0;
  Block*& head = blocks_[BinOf(bytes)];
  Block* block = head;
  if (block == nullptr || !Charge(bytes, block->bytes)) return 0;
  head = block->bin_next;
  block->bin_next = nullptr;
  block->requested.store(bytes);
  block->tag.store(Tags::current());
  return block->begin;
}

inline bool ThreadCache::Push(Block* block, uint64_t address) {
  if (Span* span = block->span) {
    uint32_t object = 0;
    if (!SpanLists::ObjectAt(*span, address, &object)) return false;
    Relaxed<uint16_t>& held = span->held[object];
    const uint16_t slack = held.load();
    const auto c = static_cast<size_t>(span->size_class);
    const uint64_t size = span->object_bytes;
    const uint32_t count = counts_[c];
    if (slack >= Span::kHasUses || count == kCacheClasses[c].capacity || bytes_ + size > limit_) {
      return false;
    }
    held.store(Span::kNotHeld);
    entries_[kCacheClasses[c].first + count] = {address, &held};
    counts_[c] = count + 1;
    Credit(size - slack, size);
    return true;
  }
  const uint64_t requested = block->requested.load();
  if (address != block->begin || requested >= Block::kHasUses || block->bytes > kMaxBytes ||
      bytes_ + block->bytes > limit_) {
    return false;
  }
  block->requested.store(Block::kNotHeld);
  Block*& head = blocks_[BinOf(block->bytes)];
  block->bin_next = head;
  head = block;
  Credit(requested, block->bytes);
  return true;
}

template <typename Fn>
void ThreadCache::TakeOutOf(int size_class, bool all, Fn fn) {
  const auto c = static_cast<size_t>(size_class);
  const uint32_t count = counts_[c], out = all ? count : (count + 1) / 2;
  SmallObject* const first = &entries_[kCacheClasses[c].first];
  for (uint32_t i = 0; i < out; ++i) {
    fn(PointerIndex::Get().Find(first[i].address), first[i].address);
  }
  std::copy(first + out, first + count, first);
  counts_[c] = count - out;
  bytes_ -= uint64_t{out} * kCacheClasses[c].size;
}

template <typename Fn>
void ThreadCache::TakeOut(bool all, Fn fn) {
  for (int c = 0; c < kNumSizeClasses; ++c) TakeOutOf(c, all, fn);
  for (Block*& head : blocks_) {
    if (head == nullptr) continue;
    // A list has no count: of several all but the newest are taken.
    Block*& rest = all || head->bin_next == nullptr ? head : head->bin_next;
    while (Block* block = rest) {
      rest = block->bin_next;
      block->bin_next = nullptr;
      bytes_ -= block->bytes;
      fn(block, block->begin);
    }
  }
}

}  // namespace weir

#endif  // WEIR_POOL_THREAD_CACHE_H_
