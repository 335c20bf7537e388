// Arena: the blocks of one stream and size range (small or large), over regions of address space.
//
// Pure bookkeeping: it makes no driver call. What it needs from the driver is planned by
// vmm/map_plan and done by vmm/map_executor; the result comes back through Settle. All methods
// need the heap lock of the device. The invariants are in block.h.
#ifndef WEIR_BLOCK_ARENA_H_
#define WEIR_BLOCK_ARENA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/base/bytes.h"
#include "allocator/block/block.h"
#include "allocator/block/heap_records.h"
#include "allocator/block/pointer_index.h"
#include "allocator/block/ready_bins.h"

namespace weir {

struct StreamHeap;  // pool/stream_heap.h

class Arena {
 public:
  Arena(uint64_t granule, StreamHeap* owner, HeapRecords* records, bool is_large = false);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  StreamHeap* owner() const { return owner_; }
  uint64_t granule() const { return granule_; }
  bool is_large() const { return is_large_; }  // for requests above kMaxSmallArenaBytes
  // Whether ready blocks, which are segments then, are only handed out whole.
  void set_no_split(bool no_split) { no_split_ = no_split; }

  // Adds address space without memory (whole granules); joined with the regions it touches.
  void AddHoles(uint64_t begin, uint64_t bytes);
  // Takes out whole aligned units of address space without memory, for other arenas.
  std::vector<AddressRange> TakeHoles(uint64_t unit);
  // Adds a classic segment, mapped for ever: a region of its own, wholly ready.
  void AddSegment(Handle* segment);
  // Makes sure that the next AddSegment needs no host memory for its region. May throw.
  void ReserveRegion() { regions_.reserve(regions_.size() + 1); }
  // Takes an idle classic segment out again, before the driver gets it back.
  void RemoveSegment(Handle* segment);

  // A live block of exactly `bytes` (a multiple of kBlockAlignment), or nullptr: nothing that is
  // ready fits. The kept block if its size is equal, else best fit, placed at the low end; without
  // splitting all of the best fit.
  Block* TryAllocate(uint64_t bytes, uint64_t alignment);
  // A live block of exactly these bytes at this address, or nullptr if they are not all ready.
  Block* TryAllocateAt(uint64_t begin, uint64_t bytes);

  // Frees a live, deferred or returning block whose stream may use it until `epoch` is complete.
  // With `keep` it becomes the kept block (and the one kept before is coalesced): a program that
  // frees and asks for the same size again then touches no list.
  void Free(Block* block, Epoch epoch, bool keep);
  // Frees what was freed while records->merging said so, which it no longer does.
  static void EndMerging(HeapRecords* records);
  // Coalesces the kept block, so that planners see all that is free.
  void FlushKept();

  // ---- For misses and trims, which change what is mapped ----

  // Makes one busy block of [begin, end), which must be free; `run` is a block at or before begin
  // in the same region. Needs one record per piece: Reserve them in the BlockPool first.
  Block* CarveBusy(Block* run, uint64_t begin, uint64_t end);
  // The same for a whole mapping in this arena, ready or a shadow.
  Block* CarveMapping(const Mapping& mapping);
  // After the mappings in its range have changed: ready where there is a mapping whose memory no
  // other address uses, a shadow or blocked where there is another mapping, hole elsewhere. Returns
  // the block that holds the address `at` afterwards.
  Block* Settle(Block* busy, uint64_t at);
  // Makes a live block of [begin, begin + bytes) inside one ready block. Needs block records: 4 +
  // CountFlips.
  Block* CarveLive(Block* ready, uint64_t begin, uint64_t bytes);
  // Block records that making [begin, end) live needs for the shadows it casts.
  static size_t CountFlips(uint64_t begin, uint64_t end);
  // Whether no physical memory is mapped twice in [begin, end).
  bool IsDistinct(uint64_t begin, uint64_t end) const;

  // ---- Guest mappings (block.h, Note [Aliases]) ----

  // Lends ready bytes of an owner's range to a guest mapping.
  void Lend(uint64_t begin, uint64_t bytes);
  // Makes a live block of [begin, begin + bytes) across what Settle left of a change that mapped
  // guests there; the guests' bytes have been lent.
  Block* CarveAcross(uint64_t begin, uint64_t bytes);
  // The blocks of a mapping that became a guest: what is busy becomes blocked. For each counted
  // block that touches a guest mapping the caller holds 2 block records, which its free gives back.
  void BecomeGuest(const Mapping& mapping);

  // Calls fn(first) for the first block of each maximal run of free blocks, in no order.
  template <typename Fn>
  void ForEachFreeRun(Fn fn) const {
    auto visit = [&fn](Block* b) {
      if (b->prev == nullptr || !b->prev->is_free()) fn(b);
    };
    ready_.ForEach(visit);
    for (Block* b = holes_; b != nullptr; b = b->bin_next) visit(b);
  }
  template <typename Fn>
  void ForEachReady(Fn fn) const {
    ready_.ForEach([&fn](const Block* b) { fn(*b); });
  }
  // Whether it has neither memory nor anything in use, only whole chunks of address space.
  bool IsEmpty() const;
  // The newest epoch in which memory was freed that shares a handle with the block, at any address.
  static Epoch NewestFree(const Block& block);
  Block* LargestHole() const;  // nullptr: there is none
  bool has_aliases() const { return records_->alias_bytes > 0; }
  // Where the region added last ends; 0 without one.
  uint64_t end_of_newest_region() const { return newest_end_; }
  // The block of this arena that contains the address. May walk all segments: for slow paths only.
  Block* FindContaining(uint64_t address) const;

  template <typename Fn>
  void ForEachBlock(Fn fn) const {
    for (Block* first : regions_) {
      for (Block* b = first; b != nullptr; b = b->next) fn(*b);
    }
  }
  // Checks the invariants of block.h for this arena's blocks. Empty, or what is broken.
  std::string Verify() const;

  // Calls fn(mapping) for each mapping in [begin, end); unmapped granules are passed over.
  template <typename Fn>
  static void ForEachMapping(uint64_t begin, uint64_t end, Handle* segment, Fn fn) {
    if (segment != nullptr) {
      fn(segment->mappings);
      return;
    }
    // Where handles are granules a large block has hundreds of mappings, each a line of its own.
    constexpr uint64_t kAhead = 3 * PointerIndex::kGranule;
    while (begin < end) {
      Mapping* mapping = PointerIndex::Get().FindMapping(begin);
      if (begin + kAhead < end) __builtin_prefetch(PointerIndex::Get().FindMapping(begin + kAhead));
      if (mapping != nullptr) {
        fn(mapping);
        begin = mapping->at + mapping->bytes;
      } else {
        begin = AlignDown(begin, PointerIndex::kGranule) + PointerIndex::kGranule;
      }
    }
  }

 private:
  void InsertFree(Block* block);  // into the bins or the list of holes
  void RemoveFree(Block* block);
  // Takes [begin, end) out of a ready block; what is left of it on either side stays ready.
  Block* CutOut(Block* ready, uint64_t begin, uint64_t end);
  // Cuts a block that is in no list at `at`; returns the new second part, in the same state.
  Block* SplitAt(Block* block, uint64_t at);
  // Makes a block in no list free: joins it with free neighbours of the same state and lists it.
  Block* MakeFree(Block* block, BlockState state);
  void Absorb(Block* left, Block* right);  // right's range joins left's, its record is deleted
  void Link(Block* left, Block* right);    // neighbours of two regions that touch
  // A block became a user of the mappings in its range, or ceased to be one. Uncount returns
  // whether one of them is shared.
  void CountLive(const Block& block);
  static bool UncountLive(const Block& block, Epoch epoch);
  // The other addresses of a mapping's memory cease to be ready, or are again.
  void TakeOver(Mapping* mapping);
  static void GiveUp(Mapping* mapping);
  void CastShadow(const Mapping& mapping);
  // Frees a block that is uncounted already and touches shared mappings.
  void FreeShared(Block* block, Epoch epoch);
  static void ReturnLent(const Mapping& guest, uint64_t begin, Epoch epoch);
  // The last block of a guest mapping was freed.
  void BecomeShadow(const Mapping& dead_guest);
  std::string VerifyBlock(const Block& block) const;
  std::string VerifyMappings(const Block& block) const;

  const uint64_t granule_;
  StreamHeap* const owner_;
  HeapRecords* const records_;
  const bool is_large_;
  bool no_split_ = false;
  ReadyBins ready_;
  Block* holes_ = nullptr;
  Block* kept_ = nullptr;
  Epoch kept_epoch_ = 0;
  uint64_t newest_end_ = 0;
  std::vector<Block*> regions_;  // the first block of each region
};

}  // namespace weir

#endif  // WEIR_BLOCK_ARENA_H_
