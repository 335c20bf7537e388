// The data structure everyone needs to know: how device memory is cut up, and what must always
// hold.
//
// A *region* is contiguous address space that belongs to one arena. It is tiled exactly, without
// gaps, by its blocks in address order (Block::prev, Block::next). A block is in one state:
//
//   kHole      address space without physical memory
//   kReady     mapped and free: in the arena's ReadyBins
//   kLive      handed to the caller, in a thread cache, or (span set) cut into small objects
//   kDeferred  freed by the caller, but a stream may still use it: waits behind markers; or freed
//              while a merge is under way: waits for its end
//   kReturning borrowed by another stream than the arena's, freed there: waits for that stream
//   kKept      freed, complete in its stream's order, not yet coalesced: the arena's last freed
//              block
//   kBusy      in the hands of a miss that has given up the heap lock to call the driver
//   kShadow    a whole mapping whose physical memory is in use at another address
//   kLent      free here, but its bytes are in use at a guest mapping of the same memory
//   kBlocked   a part of a guest mapping that no block of this address uses
//
//            Allocate              Free, uses pending            markers complete
//   kReady ------------> kLive ------------------> kDeferred ----------------> kReady
//      ^                   |  Free      kept block displaced                      |
//      |                   +--------> kKept ------------------> kReady            |
//      |   settle: mapped                                                         |
//   kBusy <------------ kReady, kHole  (a miss plans a mapping, a trim an unmapping)
//      +--- settle: unmapped ---> kHole
//
// Note [Aliases]. A handle is mapped at one address, or at several:
//   - *Stitched* mappings (mode:tight) are kept so that a repeated sequence of requests finds its
//     addresses again. All belong to arenas of one stream, whose order protects them. While no
//     block uses the handle all of them are ready; as soon as a block uses one, that one becomes
//     the *owner*, and the others are shadows until the handle is idle again.
//   - *Guest* mappings (merged granules, shared boundaries) use bytes of one granule that its owner
//     leaves free. There those bytes are lent; what the guest does not use is blocked. Every byte
//     is reachable through one address only. When the last block of a guest mapping is freed it is
//     a shadow that only waits for being unmapped.
//
// Invariants (Arena::Verify and DeviceHeap::Verify check them):
//   1. next->begin == begin + bytes, next->prev == this; regions begin and end with nullptr.
//   2. Two neighbours are never both kReady, nor both kHole (eager coalescing).
//   3. kHole begins and ends on a granule and has no mapping; every granule of the other states,
//      kBusy excepted, is mapped. kShadow is one whole mapping; kBlocked lies in a guest mapping.
//   4. Mapping::live is the number of blocks that touch it and are kLive, kDeferred, kReturning,
//      kKept or kLent. Only the owner, Handle::mappings, and guests have live > 0. A handle whose
//      owner has live == 0 is *idle*: all its mappings but dead guests lie inside ready blocks.
//   5. requested <= allocated <= active <= reserved; reserved is the sum of all handles' bytes.
//   6. The pointer index knows exactly the blocks that count for mappings, kLent and hidden ones
//      excepted, by their begin; and of every block the granule in which it begins (segments
//      excepted).
//
// Everything here is guarded by the heap lock of the device. What a hit reads without that lock,
// begin, bytes, owner, span and requested, does not change while the caller holds the block, except
// for `requested` by the caller's own calls. Sizes and addresses are bytes.
#ifndef WEIR_BLOCK_BLOCK_H_
#define WEIR_BLOCK_BLOCK_H_

#include <cstdint>

#include "allocator/base/relaxed.h"

namespace weir {

class Arena;
struct Block;
struct Span;
struct StreamHeap;  // pool/stream_heap.h

// A stream's counter; see stream/timeline.h.
using Epoch = uint64_t;

struct Mapping;

// Physical memory: one or more granules (or one classic segment), made by the driver in one call.
struct Handle {
  uint64_t id = 0;  // the driver's handle; 0 for a classic segment
  uint64_t bytes = 0;
  // Where it is mapped, the owner first; nullptr: nowhere, a spare.
  Mapping* mappings = nullptr;
  uint32_t index = 0;  // its place in HandleTable
  uint32_t pins = 0;   // ranges that pin it: somebody else holds its pages (device_heap_pins.cc)
  bool taken = false;  // a miss or a trim has chosen it: nobody else may
  // Lost: the driver refused to unmap it, or memory beside it. Written without the heap lock.
  Relaxed<bool> stuck{false};
  uint64_t stamp = 0;         // of the last look for duplicates that came across it
  uint64_t last_used_ns = 0;  // when the heap last saw that it was used
  // A segment in memory that a pool's source has allocated with Weir: the block whose place in the
  // pointer index the segment's blocks have meanwhile.
  Block* outer = nullptr;

  inline bool is_idle() const;
  inline bool IsMappedIn(uint64_t begin, uint64_t end) const;  // in part, at any address
  inline uint64_t at() const;                                  // of the owner; 0 for a spare
  inline Arena* arena() const;                                 // of the owner; nullptr for a spare
};

// A whole handle at one address. One line of the cache: a large block touches many of them.
struct alignas(64) Mapping {
  uint64_t at = 0;
  uint64_t bytes = 0;  // the handle's
  uint32_t live = 0;
  bool guest = false;
  // A guest, or another mapping of the handle exists: frees and allocations have more to do.
  bool shared = false;
  bool mapped = false;  // the driver has mapped it
  bool used = false;    // since the heap last looked (DeviceHeap::ReleaseByPolicy)
  // The arena's stream may use the memory at this address until this epoch is complete: the newest
  // epoch in which a block of it was freed.
  Epoch idle_epoch = 0;
  Arena* arena = nullptr;  // of the region it lies in
  Handle* handle = nullptr;
  Mapping* next = nullptr;  // of the same handle
  uint64_t last_use = 0;    // shared ones: HeapRecords::clock when it became the owner
};

inline bool Handle::is_idle() const { return mappings == nullptr || mappings->live == 0; }
inline bool Handle::IsMappedIn(uint64_t begin, uint64_t end) const {
  for (const Mapping* m = mappings; m != nullptr; m = m->next) {
    if (m->at < end && m->at + m->bytes > begin) return true;
  }
  return false;
}
inline uint64_t Handle::at() const { return mappings != nullptr ? mappings->at : 0; }
inline Arena* Handle::arena() const { return mappings != nullptr ? mappings->arena : nullptr; }

enum class BlockState : uint8_t {
  kHole,
  kReady,
  kLive,
  kDeferred,
  kReturning,
  kKept,
  kBusy,
  kShadow,
  kLent,
  kBlocked,
};

// Laid out for the cache: a hit touches the first line only, and so does the search of a bin.
struct alignas(128) Block {
  uint64_t begin = 0;
  uint64_t bytes = 0;
  // kLive, kLent: in whose stream order it is used; not the arena's owner if that stream has
  // borrowed it.
  StreamHeap* owner = nullptr;
  Span* span = nullptr;  // kLive: the block is cut into objects of one size class
  // kLive, not cut into objects: what the caller asked for, or kNotHeld; kHasUses may be added.
  // Changed without the heap lock by the caller's own calls (pool/thread_cache.h).
  Relaxed<uint64_t> requested{kNotHeld};
  BlockState state = BlockState::kHole;
  Relaxed<uint16_t> tag{0};  // kLive: what the caller's thread had pushed (pool/tags.h)
  // kReady: its bin; kHole: the arena's list of holes; kReturning: StreamHeap::returning.
  Block* bin_prev = nullptr;
  Block* bin_next = nullptr;

  Block* prev = nullptr;  // neighbours in the region, by address
  Block* next = nullptr;
  Arena* arena = nullptr;
  Handle* segment = nullptr;  // classic segment that holds the whole region; nullptr with VMM
  // kReturning: of the borrower's timeline; freed during a merge (HeapRecords::parked): the free's.
  Epoch return_epoch = 0;
  bool is_hidden = false;  // not in the pointer index: Handle::outer

  // Values of `requested`.
  static constexpr uint64_t kNotHeld = ~uint64_t{0};       // by the caller: freed, or cached
  static constexpr uint64_t kHasUses = uint64_t{1} << 62;  // on other streams, recorded

  uint64_t end() const { return begin + bytes; }
  bool is_free() const { return state == BlockState::kReady || state == BlockState::kHole; }
  // Whether it counts for the mappings it touches.
  bool is_counted() const {
    return state == BlockState::kLive || state == BlockState::kDeferred ||
           state == BlockState::kReturning || state == BlockState::kKept ||
           state == BlockState::kLent;
  }
};

struct AddressRange {
  uint64_t begin;
  uint64_t bytes;
};

// Alignment of every block, and the unit large requests are rounded to.
inline constexpr uint64_t kBlockAlignment = 512;

}  // namespace weir

#endif  // WEIR_BLOCK_BLOCK_H_
