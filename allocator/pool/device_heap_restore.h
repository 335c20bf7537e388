// DeviceHeap::PoolRestore: makes the blocks in use of a pool what they were at an earlier time.
//
// Graphs of PyTorch's cudagraph trees return to states of their pool: the memory is still there,
// at the same addresses, because a pool keeps it; only which parts are blocks in use has changed.
// The wanted state is compared with what there is, all of it, before anything changes.
#ifndef WEIR_POOL_DEVICE_HEAP_RESTORE_H_
#define WEIR_POOL_DEVICE_HEAP_RESTORE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/pool/device_heap.h"

namespace weir {

class DeviceHeap::PoolRestore {
 public:
  // A block or object in use.
  struct Wanted {
    uint64_t address;
    uint64_t bytes;  // of the block, not of the request
    uint64_t requested;
    Stream stream;
  };

  PoolRestore(DeviceHeap& heap, uint64_t pool) : heap_(heap), pool_(pool) {}

  // WEIR_ERROR_INVALID_ARGUMENT, and nothing has changed, if it is not possible.
  HeapError Run(std::vector<Wanted> wanted);

 private:
  // A block of its own, or a span with the wanted objects.
  struct Target {
    uint64_t begin;
    uint64_t bytes;
    int size_class;          // of the objects; -1: a block
    size_t first, count;     // of wanted_
    Arena* arena = nullptr;  // in which it lies
    Block* there = nullptr;  // it is in use as what it shall be
    uint64_t end() const { return begin + bytes; }
  };

  HeapError GroupWanted();
  void CollectBlocks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.heap_mu_);
  HeapError Check(Target* target) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.heap_mu_);
  HeapError CheckBlock(const Target& target, const Block& block) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.heap_mu_);
  void ChooseFrees() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.heap_mu_);
  void ReserveRecords() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.heap_mu_);
  void Apply() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.heap_mu_);
  bool IsWanted(const Target& target, uint64_t address) const;
  // All that are held in a span, or all but those that a target wants.
  void FreeObjects(Block* block, const Target* but_wanted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.heap_mu_);
  void FreeOne(const Found& found, uint64_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.heap_mu_);
  // A live block, or an object in its span, becomes the caller's.
  void Hold(Block* block, const Wanted& wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.heap_mu_);
  HeapError Refuse(uint64_t address, uint64_t bytes, const char* why) const;

  DeviceHeap& heap_;
  const uint64_t pool_;
  std::vector<Wanted> wanted_;   // by address
  std::vector<Target> targets_;  // by address
  std::vector<Block*> blocks_;   // of the pool's arenas, by address
  std::vector<Block*> frees_;    // of them, those in use that shall not be
};

}  // namespace weir

#endif  // WEIR_POOL_DEVICE_HEAP_RESTORE_H_
