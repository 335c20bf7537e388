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
#include "allocator/block/block_pool.h"
#include "allocator/block/pointer_index.h"
#include "allocator/block/ready_bins.h"

namespace weir {

struct StreamHeap;  // pool/stream_heap.h

class Arena {
 public:
  Arena(uint64_t granule, StreamHeap* owner, BlockPool* blocks);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  StreamHeap* owner() const { return owner_; }
  uint64_t granule() const { return granule_; }

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
  // ready fits. The kept block if its size is equal, else best fit, placed at the low end.
  Block* TryAllocate(uint64_t bytes, uint64_t alignment);

  // Frees a live, deferred or returning block whose stream may use it until `epoch` is complete.
  // With `keep` it becomes the kept block (and the one kept before is coalesced): a program that
  // frees and asks for the same size again then touches no list.
  void Free(Block* block, Epoch epoch, bool keep);
  // Coalesces the kept block, so that planners see all that is free.
  void FlushKept();

  // ---- For misses and trims, which change what is mapped ----

  // Makes one busy block of [begin, end), which must be free; `run` is a block at or before begin
  // in the same region. Needs one record per piece: Reserve them in the BlockPool first.
  Block* CarveBusy(Block* run, uint64_t begin, uint64_t end);
  // The same for idle handles mapped in this arena, given in address order: one busy block each.
  void CarveHandles(const std::vector<Handle*>& handles, std::vector<Block*>* busy);
  // After the mappings in its range have changed: ready where the pointer index has a handle, hole
  // elsewhere. Returns the block that holds the address `at` afterwards.
  Block* Settle(Block* busy, uint64_t at);
  // Makes a live block of [begin, begin + bytes) inside one ready block.
  Block* CarveLive(Block* ready, uint64_t begin, uint64_t bytes);

  // Calls fn(first) for the first block of each maximal run of free blocks, in no order.
  template <typename Fn>
  void ForEachFreeRun(Fn fn) const {
    auto visit = [&fn](Block* b) {
      if (b->prev == nullptr || !b->prev->is_free()) fn(b);
    };
    ready_.ForEach(visit);
    for (Block* b = holes_; b != nullptr; b = b->bin_next) visit(b);
  }
  // Whether it has neither memory nor anything in use, only whole chunks of address space.
  bool IsEmpty() const;
  // The newest epoch in which memory was freed that shares a handle with the block.
  static Epoch NewestFree(const Block& block);
  uint64_t LargestHole() const;
  // Where the region added last ends; 0 without one.
  uint64_t end_of_newest_region() const { return newest_end_; }
  // The block of this arena that contains the address. Walks the blocks: for error messages only.
  const Block* FindContaining(uint64_t address) const;

  template <typename Fn>
  void ForEachBlock(Fn fn) const {
    for (const Block* first : regions_) {
      for (const Block* b = first; b != nullptr; b = b->next) fn(*b);
    }
  }
  // Checks the invariants of block.h for this arena's blocks. Empty, or what is broken.
  std::string Verify() const;

  // Calls fn(handle) for each handle mapped in [begin, end); unmapped granules are passed over.
  template <typename Fn>
  static void ForEachHandle(uint64_t begin, uint64_t end, Handle* segment, Fn fn) {
    if (segment != nullptr) {
      fn(segment);
      return;
    }
    while (begin < end) {
      Handle* handle = PointerIndex::Get().FindHandle(begin);
      if (handle != nullptr) {
        fn(handle);
        begin = handle->at + handle->bytes;
      } else {
        begin = AlignDown(begin, PointerIndex::kGranule) + PointerIndex::kGranule;
      }
    }
  }

 private:
  void InsertFree(Block* block);  // into the bins or the list of holes
  void RemoveFree(Block* block);
  // Cuts a block that is in no list at `at`; returns the new second part, in the same state.
  Block* SplitAt(Block* block, uint64_t at);
  // Makes a block in no list free: joins it with free neighbours of the same state and lists it.
  Block* MakeFree(Block* block, BlockState state);
  void Absorb(Block* left, Block* right);  // right's range joins left's, its record is deleted
  void Link(Block* left, Block* right);    // neighbours of two regions that touch
  // A block became a user of the handles in its range, or ceased to be one.
  void CountLive(const Block& block);
  void UncountLive(const Block& block, Epoch epoch);
  std::string VerifyBlock(const Block& block) const;

  const uint64_t granule_;
  StreamHeap* const owner_;
  BlockPool* const blocks_;
  ReadyBins ready_;
  Block* holes_ = nullptr;
  Block* kept_ = nullptr;
  Epoch kept_epoch_ = 0;
  uint64_t newest_end_ = 0;
  std::vector<Block*> regions_;  // the first block of each region
};

}  // namespace weir

#endif  // WEIR_BLOCK_ARENA_H_
