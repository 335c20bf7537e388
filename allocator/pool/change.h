// Change: a mapping under way, from its plan to its commit (device_heap_map.cc).
#ifndef WEIR_POOL_CHANGE_H_
#define WEIR_POOL_CHANGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/pool/device_heap.h"
#include "allocator/vmm/map_plan.h"

namespace weir {

struct DeviceHeap::Change {
  MapPlan plan;

  // The window in which a block is to be made; run == nullptr: there is none.
  Arena* arena = nullptr;
  Block* run = nullptr;
  uint64_t busy_begin = 0, busy_end = 0;
  uint64_t begin = 0, bytes = 0;  // of the block

  std::vector<Handle*> taken;       // nobody else may use or change them meanwhile
  std::vector<Mapping*> disturbed;  // ready ones outside the window that must not be used meanwhile
  std::vector<AddressRange> lent;   // to guest mappings at the ends of the block
  bool is_move = false;             // charge the guard

  // Set by Mark.
  Block* window = nullptr;
  std::vector<Block*> busy;  // of what is unmapped or disturbed
  size_t held_records = 0;   // of blocks, for Commit
  // Set by CarryAndCommit.
  Block* block = nullptr;
};

}  // namespace weir

#endif  // WEIR_POOL_CHANGE_H_
