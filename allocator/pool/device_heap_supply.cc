// DeviceHeap: which idle memory may serve a change of the mapping.
#include <algorithm>
#include <iterator>

#include "allocator/pool/change.h"
#include "allocator/pool/device_heap.h"

namespace weir {

bool HeapState::IsComplete(const Handle& handle) {
  for (const Mapping* m = handle.mappings; m != nullptr; m = m->next) {
    if (!m->arena->owner()->timeline.IsComplete(m->idle_epoch)) return false;
  }
  return true;
}

bool HeapState::IsSupply(const Handle& handle, bool moves, bool pools_lend) {
  if (handle.pins > 0 || handle.stuck.load()) return false;
  if (handle.arena() == nullptr) return true;
  const StreamHeap& owner = *handle.arena()->owner();
  return moves &&
         (owner.key.pool == 0 || (pools_lend && owner.may_lend() && !owner.has_segments()));
}

uint64_t HeapState::RoomBelow(uint64_t limit, uint64_t most) const {
  if (limit <= stats_.reserved_bytes) return 0;
  return AlignDown(std::min(limit - stats_.reserved_bytes, most), granule_);
}

bool HeapState::CanWaitInCapture(const Handle& handle) {
  for (const Mapping* m = handle.mappings; m != nullptr; m = m->next) {
    const StreamTimeline& timeline = m->arena->owner()->timeline;
    if (timeline.kind() != StreamTimeline::Kind::kStream && !timeline.HasMarkerFor(m->idle_epoch))
      return false;
  }
  return true;
}

Planned DeviceHeap::ChooseSupply(const StreamHeap* owner, AddressRange keep, uint64_t missing,
                                 const Rung& rung, const Known& known, bool stitch,
                                 std::vector<Handle*>* victims) {
  if (missing > PoolRoom(owner)) return Planned::kNoMemory;
  // What may be made new, in whole granules.
  const uint64_t hard = HardLimit();
  const uint64_t soft = moves_ ? std::min({hard, policy_.SoftLimit(hard), GcLimit()}) : hard;
  const uint64_t most_room = RoomBelow(hard, rung.most_new);
  const uint64_t room = rung.within_soft_limit ? RoomBelow(soft, rung.most_new) : most_room;
  // The rest comes from memory that lies idle; spares, which nothing has to be unmapped for, first.
  const uint64_t spare = std::min(missing, SpareBytes());
  const uint64_t deficit = std::max(spare, missing > room ? missing - room : 0);
  if (deficit == 0) return Planned::kYes;
  FlushKept();
  VictimRules rules;
  rules.keep_begin = keep.begin;
  rules.keep_end = keep.begin + keep.bytes;
  rules.is_complete = [&](const Handle& h) { return (stitch && IsOf(owner, h)) || IsComplete(h); };
  std::vector<Handle*> supply;
  std::copy_if(handles_.all().begin(), handles_.all().end(), std::back_inserter(supply),
               [this](const Handle* h) ABSL_NO_THREAD_SAFETY_ANALYSIS { return IsSupply(*h); });
  *victims = ChooseVictims(supply, deficit, rules);
  const auto sum = [&] {
    uint64_t bytes = 0;
    for (const Handle* h : *victims) bytes += h->bytes;
    return bytes;
  };
  // The host waits only where new memory cannot take the place of waiting.
  if (sum() < deficit && !known.proved) return Planned::kNeedsProof;
  if (sum() + most_room >= missing) return Planned::kYes;
  if (stitch) return Planned::kNoMemory;
  // A capture forbids to record the marker that memory of the context would be waited for with.
  std::erase_if(supply, [&](const Handle* h) {
    return known.context_captured && !IsComplete(*h) && !CanWaitInCapture(*h);
  });
  rules.take_incomplete = rung.may_wait;
  *victims = ChooseVictims(supply, deficit, rules);
  return sum() + most_room >= missing ? Planned::kYes : Planned::kNoMemory;
}

bool DeviceHeap::IsOf(const StreamHeap* owner, const Handle& handle) {
  return handle.arena() != nullptr && handle.arena()->owner() == owner;
}

void DeviceHeap::TakeVictims(const std::vector<Handle*>& victims, const StreamHeap* stitched,
                             Change* change) {
  for (Handle* h : victims) {
    change->taken.push_back(h);
    change->is_move |= h->mappings != nullptr;
    for (Mapping* m = h->mappings; m != nullptr; m = m->next) {
      if (stitched == nullptr || !IsOf(stitched, *h)) {
        change->plan.unmapped.push_back(m);
      } else if (!m->guest) {
        change->disturbed.push_back(m);
      }
    }
  }
}

}  // namespace weir
