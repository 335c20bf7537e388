// DeviceHeap: giving memory back to the driver, limits, and what can be asked about the heap.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/stats.h"
#include "allocator/vmm/map_executor.h"

namespace weir {

HeapError DeviceHeap::Trim(uint64_t keep_bytes) {
  MutexLock space(space_mu_);
  const CallSeries series(*driver_);
  context_is_captured_.reset();
  {
    MutexLock lock(heap_mu_);
    FlushCaches();
  }
  DriverStatus status = CompleteDeferred(/*wait=*/true);
  if (status.is_fatal()) return DriverFailure(status);
  const DriverStatus released = ReleaseIdle(keep_bytes);
  if (!released.ok()) status = released;
  // What a capture does not allow to prove complete is not idle: it stays, and that is no failure.
  const bool failed = !status.ok() && status.error_class() != DriverErrorClass::kCaptureViolation;
  return failed ? DriverFailure(status) : HeapError();
}

DriverStatus DeviceHeap::ReleaseIdle(uint64_t keep_bytes) {
  std::vector<Handle*> idle;
  {
    MutexLock lock(heap_mu_);
    FlushCaches();
    FlushKept();
    uint64_t reserved = stats_.reserved_bytes;
    for (Handle* h : handles_.all()) {
      if (h->live == 0 && !h->taken && IsSupply(*h)) idle.push_back(h);
    }
    std::sort(idle.begin(), idle.end(),
              [](const Handle* a, const Handle* b) { return a->at > b->at; });
    size_t count = 0;
    while (count < idle.size() && reserved > keep_bytes) reserved -= idle[count++]->bytes;
    idle.resize(count);
  }
  DriverStatus result;
  for (Handle* h : idle) {
    DriverStatus status = ReleaseHandle(h);
    if (!status.ok()) result = status;
    if (status.is_fatal()) break;
  }
  return result;
}

DriverStatus DeviceHeap::ReleaseHandle(Handle* handle) {
  const bool classic = handle->id == 0;
  Arena* arena = handle->arena;
  if (arena != nullptr) {
    Epoch idle_epoch = 0;
    {
      MutexLock lock(heap_mu_);
      idle_epoch = handle->idle_epoch;
    }
    DriverStatus status = WaitFor(&arena->owner()->timeline, idle_epoch);
    if (!status.ok()) return status;
  }
  std::vector<Block*> busy;
  const uint64_t at = handle->at;
  {
    MutexLock lock(heap_mu_);
    // Handed out again while we waited, and perhaps freed again with work pending: leave it.
    if (handle->live != 0 || !IsComplete(*handle)) return {};
    blocks_.Reserve(8);
    busy.reserve(1);
    if (classic) {
      arena->RemoveSegment(handle);
    } else if (arena != nullptr) {
      arena->CarveHandles({handle}, &busy);
    }
    handle->taken = true;
  }
  const uint64_t start_ns = driver_->NowNs();
  const DriverStatus status =
      classic ? driver_->FreeClassic(at) : UnmapAndRelease(*driver_, handle);
  const uint64_t driver_ns = driver_->NowNs() - start_ns;
  MutexLock lock(heap_mu_);
  stats_.driver_time_ns += driver_ns;
  handle->taken = false;
  if (classic && !status.ok()) {
    arena->AddSegment(handle);
    return status;
  }
  for (Block* block : busy) {
    if (handle->at == 0) PointerIndex::Get().SetHandle(nullptr, at, handle->bytes);
    arena->Settle(block, 0);
  }
  if (handle->at == 0) handle->arena = nullptr;
  if (status.ok()) {
    WEIR_STAT_SUB(stats_, reserved_bytes, handle->bytes);
    WEIR_STAT_SUB(stats_, handles, 1);
    handles_.Delete(handle);
  }
  return status;
}

bool DeviceHeap::OwnsSegmentAt(uint64_t address) {
  MutexLock lock(heap_mu_);
  return std::any_of(handles_.all().begin(), handles_.all().end(), [&](const Handle* h) {
    return address >= h->at && address - h->at < h->bytes;
  });
}

HeapError DeviceHeap::MemGetInfo(uint64_t* free_bytes, uint64_t* total_bytes) {
  if (DriverStatus status = driver_->MemGetInfo(free_bytes, total_bytes); !status.ok())
    return DriverFailure(status);
  MutexLock lock(heap_mu_);
  ReclaimRooms();
  const uint64_t below_limit =
      stats_.memory_limit > stats_.reserved_bytes ? stats_.memory_limit - stats_.reserved_bytes : 0;
  uint64_t kept_by_pools = 0;
  FlushKept();  // which counts for its handles
  for (const Handle* h : handles_.all()) {
    if (h->live == 0 && !IsSupply(*h)) kept_by_pools += h->bytes;
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
  MutexLock lock(heap_mu_);
  ReclaimRooms();
  *stats = stats_;
  stats->mechanisms_off = driver_->mechanisms_switched_off();
  stats->streams = streams_.size();
  stats->cached_bytes = stats_.reserved_bytes - stats_.active_bytes;
}

void DeviceHeap::ResetPeaks() {
  MutexLock lock(heap_mu_);
  ReclaimRooms();
#define WEIR_RESET_PEAK(name) stats_.peak_##name = stats_.name;
  WEIR_STAT_FIELDS(WEIR_RESET_PEAK)
#undef WEIR_RESET_PEAK
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
  absl::flat_hash_map<const Handle*, uint32_t> live;
  uint64_t active = 0, idle = 0, cached = 0;
  for (const ThreadCache* cache : caches_) cached += cache->cached_bytes();
  for (const auto& stream : streams_) {
    for (const Arena* arena : {&stream->small, &stream->large}) {
      arena->ForEachBlock([&](const Block& b) {
        if (b.is_free()) return;
        Arena::ForEachHandle(b.begin, b.end(), b.segment, [&](Handle* h) { ++live[h]; });
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
    if (h->taken || h->live != live[h])
      return absl::StrCat("the handle at 0x", absl::Hex(h->at), " counts ", h->live,
                          " blocks, but ", live[h], " use it");
  }
  if (idle != cached) return "what no caller holds and is not free is not what the caches hold";
  if (reserved != stats_.reserved_bytes) return "reserved_bytes is not the sum of all handles";
  if (active != stats_.active_bytes) return "active_bytes is not the sum of all blocks in use";
  if (stats_.requested_bytes > stats_.allocated_bytes ||
      stats_.allocated_bytes > stats_.active_bytes || stats_.active_bytes > stats_.reserved_bytes)
    return "requested <= allocated <= active <= reserved does not hold";
  return "";
}

}  // namespace weir
