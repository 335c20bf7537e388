// DeviceHeap: making memory where a window lacks it. The one place where the mapping changes for a
// miss.
//
// A change goes through three steps: PlanLocked chooses and marks (heap lock), Carry waits and
// calls the driver (space lock only), Commit tells the blocks what came of it (heap lock).
#include <algorithm>
#include <iterator>
#include <new>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/stats.h"
#include "allocator/vmm/map_executor.h"

namespace weir {

struct DeviceHeap::Change {
  Arena* arena = nullptr;
  uint64_t begin = 0;  // of the block to be made
  uint64_t bytes = 0;
  MapPlan plan;
  Block* busy = nullptr;              // the window
  std::vector<Block*> victim_blocks;  // busy: where mapped victims come from
  std::vector<uint64_t> victims_were_at;
  size_t held_records = 0;  // of blocks_, for Commit
};

bool DeviceHeap::IsComplete(const Handle& handle) const {
  return handle.arena == nullptr || handle.arena->owner()->timeline.IsComplete(handle.idle_epoch);
}

bool DeviceHeap::IsSupply(const Handle& handle) const {
  return handle.arena == nullptr || handle.arena->owner()->key.pool == 0;
}

bool DeviceHeap::CanWaitInCapture(const Handle& handle) const {
  const StreamTimeline& timeline = handle.arena->owner()->timeline;
  return timeline.kind() == StreamTimeline::Kind::kStream ||
         timeline.HasMarkerFor(handle.idle_epoch);
}

void DeviceHeap::FlushKept() {
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
  const uint64_t start_ns = driver_->NowNs();
  try {
    *status = Carry(&change);
  } catch (const std::bad_alloc&) {
    MutexLock lock(heap_mu_);
    Commit(&change, /*success=*/false);
    throw;
  }
  const uint64_t driver_ns = driver_->NowNs() - start_ns;
  MutexLock lock(heap_mu_);
  stats_.driver_time_ns += driver_ns;
  if (!change.plan.victims.empty()) policy_.Charge(driver_ns);
  Block* block = Commit(&change, status->ok());
  return block != nullptr ? Finish(owner, request, block) : 0;
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
  // Without what lies idle, so that many streams that hold little cannot keep all addresses.
  ReleaseIdle(0).IgnoreError();
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

DeviceHeap::Planned DeviceHeap::PlanLocked(const Request& request, const Rung& rung,
                                           const Known& known, Change* change) {
  Arena* arena = change->arena;
  if (request.size_class >= 0) arena->owner()->spans.Reserve();
  arena->FlushKept();
  if (arena->LargestHole() < request.block + request.alignment && !known.addresses_exhausted)
    return Planned::kNeedsAddresses;
  const std::optional<Window> window = FindWindow(*arena, request.block, request.alignment);
  if (!window.has_value()) return Planned::kNoMemory;

  // What may be made new, in whole granules.
  const uint64_t hard = std::min(stats_.memory_limit, driver_->total_bytes());
  const uint64_t active = std::max(stats_.peak_active_bytes, stats_.active_bytes + request.block);
  const uint64_t soft = std::min(hard, policy_.SoftLimit(active));
  const auto room_below = [&, reserved = stats_.reserved_bytes](uint64_t limit) {
    if (limit <= reserved) return uint64_t{0};
    return AlignDown(std::min(limit - reserved, rung.most_new), granule_);
  };
  const uint64_t room = room_below(rung.within_soft_limit ? soft : hard);

  // The rest comes from memory that lies idle.
  const uint64_t deficit = window->missing > room ? window->missing - room : 0;
  std::vector<Handle*> victims;
  if (deficit > 0) {
    FlushKept();
    VictimRules rules;
    rules.keep_begin = window->busy_begin;
    rules.keep_end = window->busy_end;
    rules.is_complete = [this](const Handle& h) { return IsComplete(h); };
    std::vector<Handle*> supply;
    std::copy_if(handles_.all().begin(), handles_.all().end(), std::back_inserter(supply),
                 [this](const Handle* h) ABSL_NO_THREAD_SAFETY_ANALYSIS { return IsSupply(*h); });
    victims = ChooseVictims(supply, deficit, rules);
    uint64_t sum = 0;
    for (const Handle* h : victims) sum += h->bytes;
    // The host waits only where new memory cannot take the place of waiting.
    if (sum < deficit && !known.proved) return Planned::kNeedsProof;
    if (sum + room_below(hard) < window->missing) {
      // A capture forbids to record the marker that memory of the context would be waited for with.
      std::erase_if(supply, [&](const Handle* h) {
        return known.context_captured && !IsComplete(*h) && !CanWaitInCapture(*h);
      });
      rules.take_incomplete = rung.may_wait;
      victims = ChooseVictims(supply, deficit, rules);
      sum = 0;
      for (const Handle* h : victims) sum += h->bytes;
      if (sum + room_below(hard) < window->missing) return Planned::kNoMemory;
    }
  }

  change->begin = window->begin;
  change->bytes = request.block;
  change->plan =
      TileHoles(window->holes, victims, policy_.HandleBytes(stats_.reserved_bytes, granule_));
  // Host memory first: what is missing there must not be found out half way.
  const size_t created =
      static_cast<size_t>(std::count_if(change->plan.pieces.begin(), change->plan.pieces.end(),
                                        [](const Piece& piece) { return piece.created; }));
  handles_.Reserve(created);
  change->victim_blocks.reserve(victims.size());
  change->victims_were_at.reserve(victims.size());
  std::vector<std::pair<Arena*, std::vector<Handle*>>> by_arena;
  for (const auto& stream : streams_) {
    for (Arena* a : {&stream->small, &stream->large}) {
      std::vector<Handle*> mapped_here;
      for (Handle* h : victims) {
        if (h->arena == a) mapped_here.push_back(h);
      }
      if (mapped_here.empty()) continue;
      std::sort(mapped_here.begin(), mapped_here.end(),
                [](const Handle* x, const Handle* y) { return x->at < y->at; });
      by_arena.emplace_back(a, std::move(mapped_here));
    }
  }
  const size_t records = 4 * victims.size() + 4 * window->holes.size() + 32;
  blocks_.Reserve(2 * records);  // to carve now, and to settle in Commit

  for (Handle* h : victims) {
    h->taken = true;
    change->victims_were_at.push_back(h->at);
  }
  for (Piece& piece : change->plan.pieces) {
    if (piece.created) piece.handle = handles_.New(piece.bytes);
    piece.handle->taken = true;
  }
  try {
    change->busy = arena->CarveBusy(window->run, window->busy_begin, window->busy_end);
    for (const auto& [a, mapped_here] : by_arena) {
      a->CarveHandles(mapped_here, &change->victim_blocks);
    }
    blocks_.Hold(records);
    change->held_records = records;
  } catch (const std::bad_alloc&) {
    Commit(change, /*success=*/false);  // nothing was mapped yet: puts the blocks back
    throw;
  }
  return Planned::kYes;
}

DriverStatus DeviceHeap::Carry(Change* change) {
  for (const Handle* h : change->plan.victims) {
    if (IsComplete(*h)) continue;
    StreamTimeline& timeline = h->arena->owner()->timeline;
    const DriverStatus status = WaitFor(&timeline, h->idle_epoch);
    if (!status.ok()) return status;
  }
  const DriverStatus status = ExecuteMapPlan(*driver_, &change->plan);
  if (status.is_mechanism_failure()) driver_->SwitchOffVmm(status);
  return status;
}

bool DeviceHeap::PlaceOrForget(Handle* handle) {
  handle->taken = false;
  if (handle->at != 0) PointerIndex::Get().SetHandle(handle, handle->at, handle->bytes);
  const bool stuck = handle->stuck;
  if (handle->id == 0) {
    WEIR_STAT_SUB(stats_, reserved_bytes, handle->bytes);
    WEIR_STAT_SUB(stats_, handles, 1);
    handles_.Delete(handle);
  }
  return stuck;
}

Block* DeviceHeap::Commit(Change* change, bool success) {
  blocks_.Unhold(change->held_records);
  PointerIndex& index = PointerIndex::Get();
  const MapPlan& plan = change->plan;
  bool stuck = false;
  for (size_t i = 0; i < plan.victims.size(); ++i) {
    Handle* victim = plan.victims[i];
    if (change->victims_were_at[i] != 0) {
      index.SetHandle(nullptr, change->victims_were_at[i], victim->bytes);
    }
    if (victim->at != change->victims_were_at[i]) {
      if (victim->at != 0 && change->victims_were_at[i] != 0) {
        stats_.remapped_bytes += victim->bytes;
      }
      victim->arena = victim->at != 0 ? change->arena : nullptr;
      victim->idle_epoch = 0;
    }
    stuck |= PlaceOrForget(victim);
  }
  for (const Piece& piece : plan.pieces) {
    if (!piece.created) continue;
    if (piece.handle->id == 0) {  // never made, or released again
      handles_.Delete(piece.handle);
      continue;
    }
    WEIR_STAT_ADD(stats_, reserved_bytes, piece.bytes);
    WEIR_STAT_ADD(stats_, handles, 1);
    piece.handle->arena = piece.handle->at != 0 ? change->arena : nullptr;
    stuck |= PlaceOrForget(piece.handle);
  }
  if (stuck) return nullptr;  // never hand the ranges out: the blocks stay busy for ever
  for (Block* block : change->victim_blocks) block->arena->Settle(block, 0);
  if (change->busy == nullptr) return nullptr;
  Block* settled = change->arena->Settle(change->busy, change->begin);
  return success ? change->arena->CarveLive(settled, change->begin, change->bytes) : nullptr;
}

// ---- Memory by classic segments -----------------------------------------------------------------

uint64_t DeviceHeap::SegmentAndAllocate(StreamHeap* owner, const Request& request, const Rung& rung,
                                        DriverStatus* status) {
  // The sizes that spare most driver calls for little waste: see PyTorch's allocator.
  constexpr uint64_t kSmallSegment = 2 * kMiB, kLargeSegment = 20 * kMiB;
  Arena& arena = owner->ArenaFor(request.block);
  const uint64_t exact = AlignUp(request.block + request.alignment - kBlockAlignment, 2 * kMiB);
  uint64_t bytes = exact;
  if (rung.within_soft_limit) {
    bytes = std::max(exact, &arena == &owner->small ? kSmallSegment : kLargeSegment);
  } else {
    {
      MutexLock lock(heap_mu_);
      const uint64_t hard = std::min(stats_.memory_limit, driver_->total_bytes());
      if (bytes > hard || stats_.active_bytes > hard - bytes) {  // releasing would not help
        *status = {};
        return 0;
      }
    }
    if (*status = ReleaseIdle(0); status->is_fatal()) return 0;
  }
  {
    MutexLock lock(heap_mu_);
    const uint64_t hard = std::min(stats_.memory_limit, driver_->total_bytes());
    if (bytes > hard || stats_.reserved_bytes > hard - bytes) {
      *status = {};
      return 0;
    }
  }
  {
    MutexLock lock(heap_mu_);  // host memory first, as in PlanLocked
    handles_.Reserve(1);
    blocks_.Hold(1);
    arena.ReserveRegion();
  }
  const uint64_t start_ns = driver_->NowNs();
  DeviceAddress at = 0;
  *status = driver_->AllocateClassic(bytes, &at);
  const uint64_t driver_ns = driver_->NowNs() - start_ns;
  const bool covered = status->ok() && PointerIndex::Get().Cover(at, bytes);
  if (status->ok() && !covered) driver_->FreeClassic(at).IgnoreError();
  MutexLock lock(heap_mu_);
  stats_.driver_time_ns += driver_ns;
  blocks_.Unhold(1);
  if (!status->ok()) return 0;
  if (!covered) throw std::bad_alloc();  // no host memory for the index
  has_segments_.store(true, std::memory_order_relaxed);
  Handle* segment = handles_.New(bytes);
  segment->at = at;
  segment->arena = &arena;
  WEIR_STAT_ADD(stats_, reserved_bytes, bytes);
  WEIR_STAT_ADD(stats_, handles, 1);
  arena.AddSegment(segment);
  return TryAllocate(owner, request);
}

}  // namespace weir
