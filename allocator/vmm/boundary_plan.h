// Planning of shared boundaries: a large block that begins in the free end of one granule and ends
// in the free begin of another, both partly used by others.
//
// Blocks that are rounded to granules at neither end leave free ends at both. A new block can use
// two of them through guest mappings (block.h, Note [Aliases]), with whole granules between:
//
//   |used  tail| |  whole granules  | |head  used|      one address range, no copy
//
// Pure functions; heap lock held.
#ifndef WEIR_VMM_BOUNDARY_PLAN_H_
#define WEIR_VMM_BOUNDARY_PLAN_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "allocator/block/arena.h"

namespace weir {

// Ready bytes at an end of a granule that blocks use in part, mapped by a handle of its own.
struct FreeEnd {
  Mapping* mapping = nullptr;
  uint64_t begin = 0;
  uint64_t bytes = 0;
};
struct FreeEnds {
  std::vector<FreeEnd> tails;  // up to the granule's end
  std::vector<FreeEnd> heads;  // from the granule's begin
};
// Adds those of an arena.
void CollectFreeEnds(const Arena& arena, FreeEnds* ends);
// Adds those of one ready block. is_used(mapping): whether blocks use it.
void AddFreeEnds(const Block& ready, uint64_t granule,
                 const std::function<bool(const Mapping&)>& is_used, FreeEnds* ends);

// Whether so little lies wholly idle that whole granules should be spared for a request: before
// that moving them is cheaper, and when nothing is idle any more it is too late. `most`: what may
// be reserved. Bytes.
bool IsTimeToShare(uint64_t idle, uint64_t most, uint64_t request);

struct SharedBoundaries {
  FreeEnd tail;        // its last bytes are used; bytes == 0: none
  FreeEnd head;        // its first bytes are used; bytes == 0: none
  uint64_t whole = 0;  // granules between
};
// Ends for a block of `bytes` with as few whole granules as possible, at most `most_whole`; of
// those the pair that leaves the least. False if there is none.
bool PlanBoundaries(FreeEnds ends, uint64_t bytes, uint64_t granule, uint64_t most_whole,
                    SharedBoundaries* plan);

}  // namespace weir

#endif  // WEIR_VMM_BOUNDARY_PLAN_H_
