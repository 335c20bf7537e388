// DeviceHeap: memory by classic segments, where it cannot be mapped (DESIGN.md, "Without mapping").
#include <algorithm>
#include <new>

#include "allocator/pool/device_heap.h"
#include "allocator/pool/stats.h"
#include "allocator/vmm/map_executor.h"

namespace weir {

uint64_t DeviceHeap::SegmentAndAllocate(StreamHeap* owner, const Request& request, const Rung& rung,
                                        DriverStatus* status) {
  Arena& arena = owner->ArenaFor(request.block);
  const uint64_t exact = AlignUp(request.block + request.alignment - kBlockAlignment, 2 * kMiB);
  uint64_t bytes = exact, gc_limit = 0;
  bool is_beyond_gc = false;
  if (rung.within_soft_limit) bytes = SegmentBytes(*owner, request);
  {
    MutexLock lock(heap_mu_);
    const uint64_t hard = HardLimit();
    if (exact > hard || stats_.active_bytes > hard - exact) {  // releasing would not help
      *status = {};
      return 0;
    }
    gc_limit = GcLimit();
    is_beyond_gc = stats_.reserved_bytes + bytes > gc_limit;
  }
  if (!rung.within_soft_limit) {
    if (*status = ReleaseIdle(0, rung.may_wait); status->is_fatal()) return 0;
  } else if (is_beyond_gc) {
    if (*status = ProveIdle(); status->is_fatal()) return 0;
    ReleaseIdle(gc_limit - std::min(gc_limit, bytes), /*may_wait=*/false).IgnoreError();
  }
  {
    MutexLock lock(heap_mu_);
    const uint64_t hard = HardLimit();
    if (bytes > hard || stats_.reserved_bytes > hard - bytes || bytes > PoolRoom(arena.owner())) {
      *status = {};
      return 0;
    }
  }
  {
    MutexLock lock(heap_mu_);  // host memory first, as in PlanLocked
    handles_.Reserve(1);
    arena.ReserveRegion();
    records_.mappings.Hold(1);
    records_.blocks.Hold(1);
  }
  const uint64_t start_ns = driver_->NowNs();
  DeviceAddress at = 0;
  *status = AllocateClassic(*driver_, bytes, &at);
  const uint64_t driver_ns = driver_->NowNs() - start_ns;
  const bool covered = status->ok() && PointerIndex::Get().Cover(at, bytes);
  if (status->ok() && !covered) FreeClassic(*driver_, at, bytes).IgnoreError();
  MutexLock lock(heap_mu_);
  stats_.driver_time_ns += driver_ns;
  records_.blocks.Unhold(1);
  records_.mappings.Unhold(1);
  if (!status->ok()) return 0;
  if (!covered) throw std::bad_alloc();  // no host memory for the index
  InstallSegment(&arena, {at, bytes}, /*outer=*/nullptr);
  return TryAllocate(owner, request);
}

uint64_t HeapState::SegmentBytes(const StreamHeap& owner, const Request& request) {
  // The sizes that spare most driver calls for little waste: see PyTorch's allocator. What is not
  // split, or comes from sources that expect them, has exactly its sizes.
  constexpr uint64_t kSmallSegment = 2 * kMiB, kLargeSegment = 20 * kMiB;
  const uint64_t exact = AlignUp(request.block + request.alignment - kBlockAlignment, 2 * kMiB);
  const bool like_pytorch = owner.has_segments();
  if (request.block <= (like_pytorch ? kMiB : kMaxSmallArenaBytes))
    return std::max(exact, kSmallSegment);
  if (like_pytorch && request.block >= kLargeSegment / 2) return exact;
  return std::max(exact, kLargeSegment);
}

void HeapState::InstallSegment(Arena* arena, AddressRange range, Block* outer) {
  handles_.Reserve(1);
  arena->ReserveRegion();
  records_.mappings.Reserve(1);
  records_.blocks.Reserve(1);
  has_segments_.store(true, std::memory_order_relaxed);
  Handle* segment = handles_.New(range.bytes);
  segment->outer = outer;
  Mapping* mapping = records_.mappings.New();
  mapping->at = range.begin;
  mapping->arena = arena;
  mapping->mapped = true;
  records_.Attach(mapping, segment);
  WEIR_STAT_ADD(stats_, reserved_bytes, range.bytes);
  WEIR_STAT_ADD(stats_, handles, 1);
  if (IsOfSource(*segment)) source_bytes_ += range.bytes;
  arena->AddSegment(segment);
}

bool HeapState::IsOfSource(const Handle& handle) {
  const Arena* arena = handle.arena();
  return arena != nullptr && arena->owner()->pool != nullptr && arena->owner()->pool->has_source();
}

}  // namespace weir
