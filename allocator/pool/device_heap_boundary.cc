// DeviceHeap: blocks that begin and end in granules of others (vmm/boundary_plan.h).
#include <algorithm>

#include "allocator/pool/change.h"
#include "allocator/pool/device_heap.h"
#include "allocator/vmm/boundary_plan.h"

namespace weir {

Planned DeviceHeap::PlanBoundary(const Request& request, const Rung& rung, const Known& known,
                                 Change* change) {
  Arena* arena = change->arena;
  StreamHeap* owner = arena->owner();
  if (!(options_.share_boundaries || rung.may_share) || arena != &owner->large ||
      owner->key.pool != 0 || request.alignment > kBlockAlignment || request.block < 2 * granule_) {
    return Planned::kNoMemory;
  }
  const uint64_t hard = HardLimit();
  const uint64_t room = RoomBelow(hard, rung.most_new);
  if (room >= request.block + 2 * granule_ && !rung.may_share) return Planned::kNoMemory;
  FlushKept();
  uint64_t idle = 0;
  for (const Handle* h : handles_.all()) {
    if (h->is_idle() && !h->taken && IsSupply(*h)) idle += h->bytes;
  }
  if (!IsTimeToShare(idle, hard, request.block) && !rung.may_share) return Planned::kNoMemory;

  FreeEnds ends;
  CollectFreeEnds(owner->small, &ends);
  CollectFreeEnds(owner->large, &ends);
  SharedBoundaries shared;
  if (!PlanBoundaries(std::move(ends), request.block, granule_, (idle + room) / granule_, &shared))
    return Planned::kNoMemory;
  std::vector<Handle*> victims;
  const Planned supply = ChooseSupply(owner, {0, 0}, shared.whole * granule_, rung, known,
                                      /*stitch=*/false, &victims);
  if (supply != Planned::kYes) return supply;
  Block* hole = arena->LargestHole();
  if (hole == nullptr || hole->bytes < (shared.whole + 2) * granule_) return Planned::kNoMemory;

  const uint64_t at = hole->begin;
  uint64_t middle = at;
  if (shared.tail.bytes > 0) middle += granule_;
  const uint64_t middle_end = middle + shared.whole * granule_;
  if (shared.whole > 0) {
    change->plan = TileHoles({{middle, shared.whole * granule_}}, victims,
                             policy_.HandleBytes(stats_.reserved_bytes, granule_));
  }
  for (const auto& [end, place] :
       {std::pair(shared.tail, at), std::pair(shared.head, middle_end)}) {
    if (end.bytes == 0) continue;
    Piece piece{place, granule_, end.mapping->handle, /*created=*/false};
    piece.guest = true;
    change->plan.pieces.push_back(piece);
    change->taken.push_back(end.mapping->handle);
    change->lent.push_back({end.begin, end.bytes});
  }
  const uint64_t stop = middle_end + (shared.head.bytes > 0 ? granule_ : 0);
  change->plan.holes = {{at, stop - at}};
  TakeVictims(victims, nullptr, change);
  change->begin = middle - shared.tail.bytes;
  change->bytes = request.block;
  change->run = hole;
  change->busy_begin = at;
  change->busy_end = stop;
  change->is_move = true;
  Mark(change);
  return Planned::kYes;
}

}  // namespace weir
