// Planning of a miss: where the block goes, which physical memory goes there, where it comes from.
//
// Pure functions from a view of the heap to a list of steps, so that the rules can be tested
// without a device. The caller holds the heap lock. Two placements:
//   In place: the *window* is the place in the arena's free runs that lacks the fewest bytes of
//     memory. What is there stays, its holes are filled.
//   Stitched: at fresh addresses, behind everything; idle handles are mapped there as well as where
//     they are.
// New memory is made within the limit; what is missing beyond it comes from *victims*: spares
// first, then idle handles whose work is complete, highest address first, then, if waiting is
// allowed, those whose work is not complete. Victims that are not needed are dropped again. In
// place, victims that tile a hole exactly are mapped there; the others are released, and memory of
// the right size is created instead.
#ifndef WEIR_VMM_MAP_PLAN_H_
#define WEIR_VMM_MAP_PLAN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "allocator/block/arena.h"
#include "allocator/block/block.h"

namespace weir {

// Where a block of `bytes` could be placed.
struct Window {
  Block* run;                     // first block of the free run
  uint64_t begin;                 // of the block to be
  uint64_t busy_begin, busy_end;  // what the change touches: the block and whole granules of holes
  std::vector<AddressRange> holes;  // whole granules without memory
  uint64_t missing;                 // their sum
};
std::optional<Window> FindWindow(const Arena& arena, uint64_t bytes, uint64_t alignment);
// The same among free runs that are given by their first blocks. is_distinct(begin, end): whether
// no memory is mapped twice there.
using IsDistinctFn = std::function<bool(uint64_t begin, uint64_t end)>;
std::optional<Window> FindWindow(const std::vector<Block*>& runs, uint64_t granule, uint64_t bytes,
                                 uint64_t alignment, const IsDistinctFn& is_distinct);
// At the low end of the arena's largest hole, with the ready block before it if that is shorter
// than the request. The window has one hole, which may be made longer by TileRow.
std::optional<Window> FindFreshPlace(const Arena& arena, uint64_t bytes, uint64_t alignment);

// Handles to take for `bytes` that may not be created. Fewer bytes than asked if there are not
// more.
struct VictimRules {
  // Handles with a mapping there are part of the window and stay.
  uint64_t keep_begin = 0, keep_end = 0;
  // Whether a handle can be taken without a wait.
  std::function<bool(const Handle&)> is_complete;
  bool take_incomplete = false;
};
std::vector<Handle*> ChooseVictims(const std::vector<Handle*>& handles, uint64_t bytes,
                                   const VictimRules& rules);

// One handle to be mapped.
struct Piece {
  uint64_t at;
  uint64_t bytes;
  Handle* handle;  // a victim, or a record whose memory is to be created (created)
  bool created;
  bool guest = false;          // block.h, Note [Aliases]
  Mapping* mapping = nullptr;  // the record of it, made by who carries the plan out
};

struct MapPlan {
  std::vector<Mapping*> unmapped;   // first
  std::vector<Handle*> released;    // then: victims that do not tile
  std::vector<Piece> pieces;        // then mapped; in address order per hole
  std::vector<AddressRange> holes;  // one SetAccess each
};

// Tiles the holes with victims and, where these do not fit, with new handles of at most
// `max_handle_bytes`. New pieces have handle == nullptr.
MapPlan TileHoles(const std::vector<AddressRange>& holes, const std::vector<Handle*>& victims,
                  uint64_t max_handle_bytes);
// The victims side by side from the begin of the hole, then new handles. The plan's hole is as long
// as they are together, which may be more than the hole's bytes by less than the last victim.
MapPlan TileRow(const AddressRange& hole, const std::vector<Handle*>& victims,
                uint64_t max_handle_bytes);

}  // namespace weir

#endif  // WEIR_VMM_MAP_PLAN_H_
