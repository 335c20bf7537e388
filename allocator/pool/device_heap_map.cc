// DeviceHeap: making memory where a window lacks it. The one place where the mapping changes.
//
// A change goes through three steps: it is planned and marked (heap lock), Carry waits and calls
// the driver (space lock only), Commit tells the blocks what came of it (heap lock).
#include <algorithm>
#include <iterator>
#include <new>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/pool/change.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/stats.h"
#include "allocator/vmm/map_executor.h"

namespace weir {

void HeapState::FlushKept() {
  for (const auto& stream : streams_) {
    stream->small.FlushKept();
    stream->large.FlushKept();
  }
}

uint64_t DeviceHeap::MapAndAllocate(StreamHeap* owner, const Request& request, const Rung& rung,
                                    DriverStatus* status) {
  Change change;
  change.arena = &owner->ArenaFor(request.block);
  Known known;
  for (;;) {
    Planned planned;
    {
      MutexLock lock(heap_mu_);
      planned = PlanLocked(request, rung, known, &change);
    }
    if (planned == Planned::kYes) break;
    if (planned == Planned::kNoMemory) {
      *status = {};
      return 0;
    }
    if (planned == Planned::kNeedsAddresses) {
      known.addresses_exhausted =
          !AddAddresses(change.arena, request.block + request.alignment + granule_);
      continue;
    }
    if (*status = ProveIdle(); !status->ok()) return 0;
    known.proved = true;
    known.context_captured = ContextIsCaptured();
  }
  *status = CarryAndCommit(&change);
  if (change.block == nullptr) return 0;
  uint64_t address = 0, bound = 0;
  bool too_many = false;
  {
    MutexLock lock(heap_mu_);
    address = Finish(owner, request, change.block);
    policy_.OnPlanServed();
    bound =
        static_cast<uint64_t>(options_.alias_bound * static_cast<double>(stats_.reserved_bytes));
    too_many = records_.alias_bytes > bound;
  }
  if (!too_many) return address;
  try {
    TrimAliases(bound / 4 * 3).IgnoreError();
  } catch (const std::bad_alloc&) {
    // They only cost address space, and the request is served.
  }
  return address;
}

void DeviceHeap::ReturnAddresses(StreamHeap* stream) {
  for (Arena* arena : {&stream->small, &stream->large}) {
    for (const AddressRange& range : arena->TakeHoles(AddressSpace::kChunk)) {
      addresses_.Return(range.begin, range.bytes);
    }
  }
}

void DeviceHeap::CollectAddresses() {
  for (const auto& stream : streams_) ReturnAddresses(stream.get());
}

bool DeviceHeap::AddAddresses(Arena* arena, uint64_t bytes) {
  if (TakeAddresses(arena, bytes)) return true;
  TrimAliases(0).IgnoreError();  // costs less than giving memory back
  if (TakeAddresses(arena, bytes)) return true;
  // Without what lies idle, so that many streams that hold little cannot keep all addresses.
  ReleaseIdle(0, options_.ladder.wait).IgnoreError();
  return TakeAddresses(arena, bytes);
}

bool DeviceHeap::TakeAddresses(Arena* arena, uint64_t bytes) {
  MutexLock lock(heap_mu_);
  uint64_t begin = 0, taken = 0;
  if (!addresses_.Take(bytes, arena->end_of_newest_region(), &begin, &taken)) {
    CollectAddresses();
    if (!addresses_.Take(bytes, 0, &begin, &taken)) return false;
  }
  if (!PointerIndex::Get().Cover(begin, taken)) {
    addresses_.Return(begin, taken);
    return false;
  }
  arena->AddHoles(begin, taken);
  return true;
}

Planned DeviceHeap::PlanLocked(const Request& request, const Rung& rung, const Known& known,
                               Change* change) {
  Arena* arena = change->arena;
  if (request.size_class >= 0) arena->owner()->spans.Reserve();
  policy_.OnPlan(stats_.active_bytes + request.block);
  arena->FlushKept();
  const Block* hole = arena->LargestHole();
  if ((hole == nullptr || hole->bytes < request.block + request.alignment) &&
      !known.addresses_exhausted) {
    return Planned::kNeedsAddresses;
  }
  Planned planned = moves_ ? PlanBoundary(request, rung, known, change) : Planned::kNoMemory;
  if (planned != Planned::kNoMemory) return planned;
  if (moves_ && MayStitch(*arena, request)) {
    const std::optional<Window> fresh = FindFreshPlace(*arena, request.block, request.alignment);
    if (fresh.has_value()) {
      planned = PlanWindow(request, rung, known, *fresh, /*stitch=*/true, change);
      if (planned != Planned::kNoMemory) return planned;
    }
  }
  const std::optional<Window> window = FindWindow(*arena, request.block, request.alignment);
  if (!window.has_value()) return Planned::kNoMemory;
  return PlanWindow(request, rung, known, *window, /*stitch=*/false, change);
}

bool DeviceHeap::MayStitch(const Arena& arena, const Request& request) const {
  return options_.stitch && request.context.known && &arena == &arena.owner()->large &&
         arena.owner()->key.pool == 0;
}

Planned DeviceHeap::PlanWindow(const Request& request, const Rung& rung, const Known& known,
                               const Window& window, bool stitch, Change* change) {
  // What a stitch takes from its own stream stays mapped where it is: there is nothing to wait for.
  StreamHeap* owner = change->arena->owner();
  std::vector<Handle*> victims;
  const AddressRange keep{window.busy_begin, window.busy_end - window.busy_begin};
  const Planned supply = ChooseSupply(owner, keep, window.missing, rung, known, stitch, &victims);
  if (supply != Planned::kYes) return supply;

  const uint64_t handle_bytes = policy_.HandleBytes(stats_.reserved_bytes, granule_);
  uint64_t busy_end = window.busy_end;
  if (stitch) {
    change->plan = TileRow(window.holes.front(), victims, handle_bytes);
    const AddressRange& row = change->plan.holes.front();
    busy_end = row.begin + row.bytes;
    if (const Block* hole = PointerIndex::Get().FindContaining(row.begin); hole->end() < busy_end)
      return Planned::kNoMemory;
  } else {
    change->plan = TileHoles(window.holes, victims, handle_bytes);
  }
  TakeVictims(victims, stitch ? owner : nullptr, change);
  // Memory in the window that is mapped elsewhere too must not be handed out there meanwhile.
  Arena::ForEachMapping(window.busy_begin, window.busy_end, nullptr, [&](Mapping* here) {
    if (!here->shared) return;
    change->taken.push_back(here->handle);
    for (Mapping* m = here->handle->mappings; m != nullptr; m = m->next) {
      if (m != here && !m->guest) change->disturbed.push_back(m);
    }
  });
  change->begin = window.begin;
  change->bytes = request.block;
  change->run = window.run;
  change->busy_begin = window.busy_begin;
  change->busy_end = busy_end;
  Mark(change);
  return Planned::kYes;
}

void DeviceHeap::Mark(Change* change) {
  // Host memory first: what is missing there must not be found out half way.
  MapPlan& plan = change->plan;
  const size_t created = static_cast<size_t>(std::count_if(
      plan.pieces.begin(), plan.pieces.end(), [](const Piece& piece) { return piece.created; }));
  handles_.Reserve(created);
  records_.mappings.Reserve(plan.pieces.size());
  const size_t mappings = plan.unmapped.size() + change->disturbed.size();
  change->busy.reserve(mappings);
  change->taken.reserve(change->taken.size() + created);
  // Of lent ranges: 2 to cut them out, 2 for the free of the block (Arena::BecomeGuest).
  size_t records =
      6 * (mappings + plan.pieces.size() + change->lent.size()) + 4 * plan.holes.size() + 32;
  for (const Piece& piece : plan.pieces) {
    if (piece.created) continue;
    for (const Mapping* m = piece.handle->mappings; m != nullptr; m = m->next) records += 2;
  }
  if (change->run != nullptr) records += Arena::CountFlips(change->busy_begin, change->busy_end);
  records_.blocks.Reserve(2 * records);  // to carve now, and to settle in Commit

  for (Piece& piece : plan.pieces) {
    if (piece.created) {
      piece.handle = handles_.New(piece.bytes);
      change->taken.push_back(piece.handle);
    }
    piece.mapping = records_.mappings.New();
    piece.mapping->at = piece.at;
    piece.mapping->bytes = piece.bytes;
    piece.mapping->handle = piece.handle;
    piece.mapping->arena = change->arena;
    piece.mapping->guest = piece.guest;
  }
  for (Handle* h : change->taken) h->taken = true;
  if (change->run != nullptr) {
    change->window = change->arena->CarveBusy(change->run, change->busy_begin, change->busy_end);
  }
  for (const auto& list : {&plan.unmapped, &change->disturbed}) {
    for (const Mapping* m : *list) change->busy.push_back(m->arena->CarveMapping(*m));
  }
  for (const AddressRange& range : change->lent) {
    PointerIndex::Get().FindContaining(range.begin)->arena->Lend(range.begin, range.bytes);
  }
  records_.blocks.Hold(records);
  change->held_records = records;
}

DriverStatus DeviceHeap::Carry(Change* change) {
  for (const Mapping* m : change->plan.unmapped) {
    StreamTimeline& timeline = m->arena->owner()->timeline;
    if (timeline.IsComplete(m->idle_epoch)) continue;
    const DriverStatus status = WaitFor(&timeline, m->idle_epoch);
    if (!status.ok()) return status;
  }
  const DriverStatus status = ExecuteMapPlan(*driver_, &change->plan);
  if (status.is_mechanism_failure()) driver_->SwitchOffVmm(status);
  return status;
}

Block* DeviceHeap::Commit(Change* change, bool success) {
  records_.blocks.Unhold(change->held_records);
  PointerIndex& index = PointerIndex::Get();
  MapPlan& plan = change->plan;
  bool stuck = false;
  for (Mapping* m : plan.unmapped) {
    if (m->mapped) continue;
    index.SetMapping(nullptr, m->at, m->bytes);
    records_.Detach(m);
    records_.mappings.Delete(m);
  }
  for (const Handle* h : plan.released) {  // before what was created: they were never held together
    if (h->id != 0) continue;
    WEIR_STAT_SUB(stats_, reserved_bytes, h->bytes);
    WEIR_STAT_SUB(stats_, handles, 1);
  }
  for (const Piece& piece : plan.pieces) {
    Mapping* m = piece.mapping;
    if (m->mapped) {
      if (!piece.created && !piece.guest) {
        (piece.handle->mappings == nullptr ? stats_.remapped_bytes : stats_.stitched_bytes) +=
            piece.bytes;
      }
      records_.Attach(m, piece.handle);
      index.SetMapping(m, m->at, m->bytes);
    } else {
      records_.mappings.Delete(m);
    }
    if (piece.created && piece.handle->id != 0) {
      WEIR_STAT_ADD(stats_, reserved_bytes, piece.bytes);
      WEIR_STAT_ADD(stats_, handles, 1);
    }
  }
  std::sort(change->taken.begin(), change->taken.end());
  change->taken.erase(std::unique(change->taken.begin(), change->taken.end()), change->taken.end());
  const uint64_t stamp = ++records_.stamp;
  for (const Piece& piece : plan.pieces) {
    if (piece.created) piece.handle->stamp = stamp;
  }
  for (Handle* h : plan.released) h->stamp = stamp;
  for (Handle* h : change->taken) {
    h->taken = false;
    stuck |= h->stuck.load();
    if (h->id != 0) continue;
    // Lost in a rollback: neither given back as planned, nor made and taken away again.
    if (h->stamp != stamp) {
      WEIR_STAT_SUB(stats_, reserved_bytes, h->bytes);
      WEIR_STAT_SUB(stats_, handles, 1);
    }
    handles_.Delete(h);
  }
  success = success && !stuck;
  for (const AddressRange& range : change->lent) {
    if (success) {
      records_.blocks.Hold(2);
    } else {
      Block* lent = index.FindContaining(range.begin);
      lent->arena->Free(lent, /*epoch=*/0, /*keep=*/false);
    }
  }
  if (stuck) {  // never hand the ranges out: the blocks stay busy for ever, and so what is in them
    const auto lose = [](const Mapping* m) { m->handle->stuck.store(true); };
    for (const Block* b : change->busy) Arena::ForEachMapping(b->begin, b->end(), nullptr, lose);
    if (const Block* b = change->window) Arena::ForEachMapping(b->begin, b->end(), nullptr, lose);
    return nullptr;
  }
  for (Block* block : change->busy) block->arena->Settle(block, 0);
  if (change->window == nullptr) return nullptr;
  Block* settled = change->arena->Settle(change->window, change->begin);
  if (!success) return nullptr;
  if (change->lent.empty()) return change->arena->CarveLive(settled, change->begin, change->bytes);
  ++stats_.shared_blocks;
  return change->arena->CarveAcross(change->begin, change->bytes);
}

DriverStatus DeviceHeap::CarryAndCommit(Change* change) {
  const uint64_t start_ns = driver_->NowNs();
  DriverStatus status;
  try {
    status = Carry(change);
  } catch (const std::bad_alloc&) {
    MutexLock lock(heap_mu_);
    Commit(change, /*success=*/false);
    throw;
  }
  const uint64_t driver_ns = driver_->NowNs() - start_ns;
  MutexLock lock(heap_mu_);
  stats_.driver_time_ns += driver_ns;
  if (change->is_move) policy_.Charge(driver_ns);
  change->block = Commit(change, status.ok());
  return status;
}

}  // namespace weir
