// DeviceHeap: giving memory back to the driver, limits, and what can be asked about the heap.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "allocator/pool/change.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/stats.h"
#include "allocator/vmm/map_executor.h"
#include "allocator/vmm/remap_observers.h"

namespace weir {

HeapError DeviceHeap::Trim(uint64_t keep_bytes) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  bool has_too_much = false;
  {
    MutexLock lock(heap_mu_);
    has_too_much = stats_.reserved_bytes > keep_bytes;
  }
  GiveBackLeaving(/*may_wait=*/has_too_much);  // first: sources may give it back to this heap
  MutexLock space(space_mu_);
  const CallSeries series(*driver_);
  context_is_captured_.reset();
  {
    MutexLock lock(heap_mu_);
    FlushCaches();
    moves_ = true;  // the program says so; the next miss looks again
    has_too_much = stats_.reserved_bytes > keep_bytes;
  }
  DriverStatus status = CompleteDeferred(/*wait=*/has_too_much);
  if (status.is_fatal()) return DriverFailure(status);
  if (has_too_much) {
    const DriverStatus released = ReleaseIdle(keep_bytes, /*may_wait=*/true);
    if (!released.ok()) status = released;
  }
  if (keep_bytes == 0) {
    MutexLock lock(heap_mu_);
    policy_.Restart(stats_.active_bytes);
  }
  if (!status.is_fatal()) ReleaseByPolicy();
  // What a capture does not allow to prove complete is not idle: it stays, and that is no failure.
  const bool failed = !status.ok() && status.error_class() != DriverErrorClass::kCaptureViolation;
  return failed ? DriverFailure(status) : HeapError();
}

DriverStatus DeviceHeap::ReleaseIdle(uint64_t keep_bytes, bool may_wait, uint64_t until_ns) {
  std::vector<Handle*> idle;
  {
    MutexLock lock(heap_mu_);
    FlushCaches();
    FlushKept();
    uint64_t reserved = stats_.reserved_bytes;
    for (Handle* h : handles_.all()) {
      if (h->is_idle() && !h->taken && IsSupply(*h) && (may_wait || IsComplete(*h)))
        idle.push_back(h);
    }
    std::sort(idle.begin(), idle.end(),
              [](const Handle* a, const Handle* b) { return a->at() > b->at(); });
    size_t count = 0;
    while (count < idle.size() && reserved > keep_bytes) reserved -= idle[count++]->bytes;
    idle.resize(count);
  }
  DriverStatus result;
  for (Handle* h : idle) {
    if (driver_->NowNs() >= until_ns) break;
    DriverStatus status = ReleaseHandle(h);
    if (!status.ok()) result = status;
    if (status.is_fatal()) break;
  }
  return result;
}

DriverStatus DeviceHeap::ReleaseHandle(Handle* handle) {
  std::vector<std::pair<StreamTimeline*, Epoch>> waits;
  {
    MutexLock lock(heap_mu_);
    for (const Mapping* m = handle->mappings; m != nullptr; m = m->next) {
      waits.emplace_back(&m->arena->owner()->timeline, m->idle_epoch);
    }
  }
  for (const auto& [timeline, epoch] : waits) {
    if (DriverStatus status = WaitFor(timeline, epoch); !status.ok()) return status;
  }
  if (handle->id == 0) return ReleaseSegment(handle);
  Change change;
  {
    MutexLock lock(heap_mu_);
    // Handed out again while we waited, and perhaps freed again with work pending: leave it.
    if (!handle->is_idle() || !IsComplete(*handle)) return {};
    for (Mapping* m = handle->mappings; m != nullptr; m = m->next) {
      change.plan.unmapped.push_back(m);
    }
    change.plan.released.push_back(handle);
    change.taken.push_back(handle);
    Mark(&change);
  }
  return CarryAndCommit(&change);
}

DriverStatus DeviceHeap::ReleaseSegment(Handle* segment) {
  Arena* arena = segment->arena();
  const uint64_t at = segment->at();
  const bool is_of_source = IsOfSource(*segment);
  {
    MutexLock lock(heap_mu_);
    if (!segment->is_idle() || !IsComplete(*segment)) return {};
    leaving_.reserve(leaving_.size() + 1);
    arena->RemoveSegment(segment);
    segment->taken = true;
  }
  if (is_of_source) {
    const StreamHeap& owner = *arena->owner();
    RemapObservers::Get().Tell(driver_->ordinal(), at, segment->bytes, WEIR_REMAP_BEFORE_UNMAP);
    MutexLock lock(heap_mu_);
    leaving_.push_back({owner.pool, at, segment->bytes, owner.timeline.stream()});
    source_bytes_ -= segment->bytes;
    ForgetSegment(segment);
    return {};
  }
  const uint64_t start_ns = driver_->NowNs();
  const DriverStatus status = FreeClassic(*driver_, at, segment->bytes);
  const uint64_t driver_ns = driver_->NowNs() - start_ns;
  MutexLock lock(heap_mu_);
  stats_.driver_time_ns += driver_ns;
  segment->taken = false;
  if (!status.ok()) {
    arena->AddSegment(segment);
    return status;
  }
  ForgetSegment(segment);
  return status;
}

void HeapState::ForgetSegment(Handle* segment) {
  WEIR_STAT_SUB(stats_, reserved_bytes, segment->bytes);
  WEIR_STAT_SUB(stats_, handles, 1);
  Mapping* mapping = segment->mappings;
  records_.Detach(mapping);
  records_.mappings.Delete(mapping);
  handles_.Delete(segment);
}

bool DeviceHeap::OwnsSegmentAt(uint64_t address) {
  MutexLock lock(heap_mu_);
  return std::any_of(handles_.all().begin(), handles_.all().end(), [&](const Handle* h) {
    return h->mappings != nullptr && address - h->at() < h->bytes;
  });
}

HeapError DeviceHeap::MemGetInfo(uint64_t* free_bytes, uint64_t* total_bytes) {
  TryCompleteDeferred();  // what was freed and is complete counts as free
  if (DriverStatus status = driver_->MemGetInfo(free_bytes, total_bytes); !status.ok())
    return DriverFailure(status);
  MutexLock lock(heap_mu_);
  ReclaimRooms();
  const uint64_t below_limit =
      stats_.memory_limit > stats_.reserved_bytes ? stats_.memory_limit - stats_.reserved_bytes : 0;
  uint64_t kept_by_pools = 0;
  FlushKept();  // which counts for its handles
  for (const Handle* h : handles_.all()) {
    if (h->is_idle() && h->arena() != nullptr && h->arena()->owner()->key.pool != 0)
      kept_by_pools += h->bytes;
  }
  *free_bytes = std::min(*free_bytes, below_limit) + stats_.reserved_bytes - stats_.active_bytes -
                kept_by_pools;
  return {};
}

void DeviceHeap::SetMemoryLimit(uint64_t bytes) {
  MutexLock lock(heap_mu_);
  stats_.memory_limit = bytes;
}

void DeviceHeap::GetStats(weir_stats_t* stats) {
  const bool moves = driver_->has_vmm() && MayMove();
  MutexLock lock(heap_mu_);
  ReclaimRooms();
  *stats = stats_;
  stats->mechanisms_off = driver_->mechanisms_switched_off();
  stats->streams = streams_.size();
  stats->grow_only = moves ? 0 : 1;
  stats->cached_bytes = stats_.reserved_bytes - stats_.active_bytes;
}

void DeviceHeap::GetSizeStats(weir_size_stats_t* small, weir_size_stats_t* large) {
  MutexLock lock(heap_mu_);
  CountBySize(small, large);
}

void DeviceHeap::ResetPeaks() {
  MutexLock lock(heap_mu_);
  LowerPeaks();
}

std::string DeviceHeap::Verify() {
  MutexLock space(space_mu_);  // no miss is under way, so no block is busy
  MutexLock lock(heap_mu_);
  const CacheVisit visit(caches_);
  for (ThreadCache* cache : caches_) ReclaimRoom(cache);
  for (const auto& stream : streams_) {
    for (const std::string& broken :
         {stream->small.Verify(), stream->large.Verify(), stream->spans.Verify()}) {
      if (!broken.empty()) return broken;
    }
  }
  absl::flat_hash_map<const Mapping*, uint32_t> live;
  uint64_t active = 0, idle = 0, cached = 0;
  for (const ThreadCache* cache : caches_) cached += cache->cached_bytes();
  for (const auto& stream : streams_) {
    for (const Arena* arena : {&stream->small, &stream->large}) {
      arena->ForEachBlock([&](const Block& b) {
        if (!b.is_counted()) return;
        Arena::ForEachMapping(b.begin, b.end(), b.segment, [&](const Mapping* m) { ++live[m]; });
        if (b.span != nullptr) {
          const uint64_t in_use = b.span->CountActive();
          active += in_use * b.span->object_bytes;
          idle += (b.span->objects - b.span->free_count - in_use) * b.span->object_bytes;
        } else if (b.state == BlockState::kDeferred || b.requested.load() != Block::kNotHeld) {
          active += b.bytes;
        } else if (b.state == BlockState::kLive) {
          idle += b.bytes;
        }
      });
    }
  }
  uint64_t reserved = 0;
  for (const Handle* h : handles_.all()) {
    reserved += h->bytes;
    if (h->taken) return absl::StrCat("the handle at 0x", absl::Hex(h->at()), " is taken");
    for (const Mapping* m = h->mappings; m != nullptr; m = m->next) {
      if (m->live != live[m])
        return absl::StrCat("the mapping at 0x", absl::Hex(m->at), " counts ", m->live,
                            " blocks, but ", live[m], " use it");
      if (m != h->mappings && !m->guest && m->live != 0)
        return absl::StrCat("the mapping at 0x", absl::Hex(m->at),
                            " is used, but does not own its memory");
    }
  }
  if (const std::string broken = VerifyPins(); !broken.empty()) return broken;
  if (idle != cached) return "what no caller holds and is not free is not what the caches hold";
  if (reserved != stats_.reserved_bytes) return "reserved_bytes is not the sum of all handles";
  if (active != stats_.active_bytes) return "active_bytes is not the sum of all blocks in use";
  if (stats_.requested_bytes > stats_.allocated_bytes ||
      stats_.allocated_bytes > stats_.active_bytes || stats_.active_bytes > stats_.reserved_bytes)
    return "requested <= allocated <= active <= reserved does not hold";
  return "";
}

}  // namespace weir
