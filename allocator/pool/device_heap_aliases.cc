// DeviceHeap: memory mapped at several addresses (block.h, Note [Aliases]).
#include <algorithm>

#include "allocator/pool/change.h"
#include "allocator/pool/device_heap.h"

namespace weir {

uint64_t DeviceHeap::ChooseAliases(uint64_t keep_bytes, std::vector<Mapping*>* chosen) {
  uint64_t not_complete = 0;
  std::vector<Mapping*> candidates;
  for (const Handle* h : handles_.all()) {
    if (h->taken || !h->is_idle() || h->mappings == nullptr || !IsSupply(*h)) continue;
    // The owner stays, so that no handle loses its last address.
    for (Mapping* m = h->mappings->next; m != nullptr; m = m->next) {
      if (m->guest) continue;
      if (m->arena->owner()->timeline.IsComplete(m->idle_epoch)) {
        candidates.push_back(m);
      } else {
        not_complete += m->bytes;
      }
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Mapping* a, const Mapping* b) {
    return a->last_use != b->last_use ? a->last_use < b->last_use : a->at < b->at;
  });
  uint64_t kept = records_.alias_bytes;
  for (Mapping* m : candidates) {
    if (kept <= keep_bytes) break;
    kept -= m->bytes;
    chosen->push_back(m);
  }
  return kept > keep_bytes ? std::min(kept - keep_bytes, not_complete) : 0;
}

DriverStatus DeviceHeap::TrimAliases(uint64_t keep_bytes) {
  Change change;
  bool needs_proof = false;
  {
    MutexLock lock(heap_mu_);
    needs_proof = ChooseAliases(keep_bytes, &change.plan.unmapped) > 0;
    if (!needs_proof) MarkUnmapped(&change);
  }
  if (needs_proof) {  // a program of one stream records no marker of itself
    if (DriverStatus status = ProveIdle(); status.is_fatal()) return status;
    MutexLock lock(heap_mu_);
    change.plan.unmapped.clear();  // a hit may have used some meanwhile
    ChooseAliases(keep_bytes, &change.plan.unmapped);
    MarkUnmapped(&change);
  }
  return Unmap(&change);
}

DriverStatus DeviceHeap::UnmapDeadGuests() {
  Change change;
  {
    MutexLock lock(heap_mu_);
    if (records_.dead_guests == 0) return {};
    for (const Handle* h : handles_.all()) {
      if (!IsSupply(*h)) continue;
      for (Mapping* m = h->mappings; m != nullptr; m = m->next) {
        if (m->guest && m->live == 0 && m->arena->owner()->timeline.IsComplete(m->idle_epoch))
          change.plan.unmapped.push_back(m);
      }
    }
    MarkUnmapped(&change);
  }
  return Unmap(&change);
}

DriverStatus DeviceHeap::DropAliases() {
  Change change;
  {
    MutexLock lock(heap_mu_);
    if (records_.alias_bytes == 0 && records_.guests == 0) return {};
    FlushKept();
    for (const Handle* h : handles_.all()) {
      if (h->taken || h->mappings == nullptr || !IsSupply(*h)) continue;
      for (Mapping* m = h->mappings->next; m != nullptr; m = m->next) {
        if (m->live == 0) change.plan.unmapped.push_back(m);
      }
    }
    MarkUnmapped(&change);
  }
  return Unmap(&change);
}

void DeviceHeap::MarkUnmapped(Change* change) {
  if (change->plan.unmapped.empty()) return;
  for (const Mapping* m : change->plan.unmapped) change->taken.push_back(m->handle);
  Mark(change);
}

DriverStatus DeviceHeap::Unmap(Change* change) {
  return change->plan.unmapped.empty() ? DriverStatus() : CarryAndCommit(change);
}

}  // namespace weir
