// DeviceHeap: whether a request would succeed now, found out without trying.
//
// On a view of the heap as it would be when all frees have taken effect (fit_view.h) the same pure
// planners decide as in a miss: the window, the idle supply, borrowed blocks, merges, shared
// boundaries.
//
// A "yes" is meant exactly, unless another thread, process or a failing driver call comes between.
// A "no" errs where a miss succeeds early, before it has waited for everything, or merges more than
// once; and, with the ladder's waiting left out, for work that is complete without a marker that
// says so.
#include <algorithm>

#include "allocator/pool/fit_view.h"
#include "allocator/vmm/boundary_plan.h"
#include "allocator/vmm/mesh_plan.h"

namespace weir {

// ---- What a miss would find ---------------------------------------------------------------------

bool DeviceHeap::FitView::HasObject(const StreamHeap* owner, int size_class) const {
  for (const auto& stream : heap_.streams_) {
    bool found = false;
    const auto look = [&](const Block& b) {
      // A span that will be free as a whole is a ready block then.
      if (found || b.state != BlockState::kLive || b.owner != owner || IsFreed(b)) return;
      if (b.span == nullptr || b.span->size_class != size_class) return;
      for (uint32_t i = 0; i < b.span->objects && !found; ++i) {
        found = b.span->held[i].load() == Span::kNotHeld &&
                !(b.span->Test(b.span->deferred, i) &&
                  stuck_.contains(b.begin + i * b.span->object_bytes));
      }
    };
    stream->small.ForEachBlock(look);
    if (!found) stream->large.ForEachBlock(look);
    if (found) return true;
  }
  return false;
}

bool DeviceHeap::FitView::IsDistinct(uint64_t begin, uint64_t end) {
  absl::flat_hash_set<const Handle*> seen;
  bool distinct = true;
  Arena::ForEachMapping(begin, end, nullptr, [&](const Mapping* m) {
    if (m->shared) distinct &= seen.insert(m->handle).second;
  });
  return distinct;
}

uint64_t DeviceHeap::FitView::MissingInWindow(StreamHeap* owner, const Request& request) {
  const Arena& arena = owner->ArenaFor(request.block);
  Nodes nodes = Describe(arena);
  AddAddresses(arena, request, &nodes);
  const auto window =
      FindWindow(Link(&nodes), heap_.granule_, request.block, request.alignment, &IsDistinct);
  if (!window.has_value()) return AlignUp(request.block, heap_.granule_);
  const uint64_t got =
      std::min(room_ + SupplyOutside(window->busy_begin, window->busy_end), heap_.PoolRoom(owner));
  return window->missing > got ? window->missing - got : 0;
}

uint64_t DeviceHeap::FitView::MissingInSegments(StreamHeap* owner, const Request& request) {
  Nodes nodes = Describe(owner->ArenaFor(request.block));
  for (const Block* first : Link(&nodes)) {
    for (const Block* b = first; b != nullptr; b = b->next) {
      if (b->state == BlockState::kReady && Fits(*b, request.block, request.alignment)) return 0;
    }
  }
  if (owner->pool != nullptr && owner->pool->has_source()) {  // which is not asked
    const uint64_t bytes = SegmentBytes(*owner, request), limit = heap_.stats_.memory_limit;
    const uint64_t room = std::min(limit - std::min<uint64_t>(limit, heap_.stats_.reserved_bytes),
                                   heap_.PoolRoom(owner));
    return bytes > room ? bytes - room : 0;
  }
  const uint64_t exact = AlignUp(request.block + request.alignment - kBlockAlignment, 2 * kMiB);
  uint64_t idle = 0;
  for (const Handle* h : supply_) idle += h->bytes;
  const uint64_t hard = heap_.HardLimit();
  const uint64_t kept = heap_.stats_.reserved_bytes - idle;
  const uint64_t got =
      std::min({hard > kept ? hard - kept : 0, now_.driver_free + idle, heap_.PoolRoom(owner)});
  return exact > got ? exact - got : 0;
}

bool DeviceHeap::FitView::IsOrdered(const StreamHeap* lender, const Block& ready) const {
  if (wait_ && CanWaitFor(lender)) return true;
  bool complete = true;
  Arena::ForEachMapping(ready.begin, ready.end(), ready.segment, [&](const Mapping* m) {
    complete &= lender->timeline.IsComplete(m->idle_epoch) && !freed_users_.contains(m);
  });
  return complete;
}

bool DeviceHeap::FitView::CanBorrow(const StreamHeap* taker, const Request& request) {
  const bool may_borrow =
      heap_.options_.ladder.borrow && heap_.options_.borrow != Borrowing::kNever;
  if (taker->key.pool != 0) return false;
  for (const auto& lender : heap_.streams_) {
    if (lender.get() == taker || (lender->key.pool != 0 && !lender->may_lend())) continue;
    if (!may_borrow && !lender->may_lend()) continue;
    for (const Arena* arena : {&lender->small, &lender->large}) {
      Nodes nodes = Describe(*arena);
      int fitting = 0;
      bool distinct = false, all_ordered = true;  // the arena offers one of those that fit
      for (const Block& b : nodes) {
        if (b.state != BlockState::kReady || !Fits(b, request.block, request.alignment)) continue;
        // A miss gives idle segments back before it borrows.
        if (b.segment != nullptr && IsIdle(*b.segment) && MayMove(*b.segment)) continue;
        const uint64_t begin = AlignUp(b.begin, request.alignment);
        ++fitting;
        distinct |= b.segment != nullptr || IsDistinct(begin, begin + request.block);
        all_ordered &= IsOrdered(lender.get(), b);
      }
      constexpr int kMaxTries = 16;  // of Arena::TryAllocate, where there are aliases
      const bool is_found = heap_.records_.alias_bytes == 0 || fitting <= kMaxTries;
      if (distinct && all_ordered && is_found) return true;
    }
  }
  return false;
}

bool DeviceHeap::FitView::CanShare(StreamHeap* owner, const Request& request, bool may_share) {
  const uint64_t granule = heap_.granule_;
  if (!now_.moves || request.block <= kMaxSmallArenaBytes || owner->key.pool != 0 ||
      request.alignment > kBlockAlignment || request.block < 2 * granule) {
    return false;
  }
  uint64_t supply = 0;
  for (const Handle* h : supply_) supply += h->bytes;
  if (!may_share && (!heap_.options_.share_boundaries ||
                     !IsTimeToShare(supply, heap_.HardLimit(), request.block))) {
    return false;
  }
  FreeEnds ends;
  const auto is_used = [this](const Mapping& m) { return IsUsed(m); };
  for (const Arena* arena : {&owner->small, &owner->large}) {
    for (const Block& b : Describe(*arena)) {
      if (b.state == BlockState::kReady) AddFreeEnds(b, granule, is_used, &ends);
    }
  }
  SharedBoundaries shared;
  if (!PlanBoundaries(std::move(ends), request.block, granule, (supply + room_) / granule, &shared))
    return false;
  Nodes nodes = Describe(owner->large);
  AddAddresses(owner->large, request, &nodes);
  Link(&nodes);
  return std::any_of(nodes.begin(), nodes.end(), [&](const Block& b) {
    return b.state == BlockState::kHole && b.bytes >= (shared.whole + 2) * granule;
  });
}

void DeviceHeap::FitView::Merge(uint64_t most) {
  merging_ = true;
  const uint64_t granule = heap_.granule_;
  const auto is_free = [this](const Block& b) { return IsReady(b) || IsFreed(b); };
  const auto is_gone = [this](const Mapping& m) { return IsDropped(m); };
  std::vector<PartGranule> parts;
  for (const Handle* h : heap_.handles_.all()) {
    if (!MayMove(*h)) continue;
    if (const auto part = DescribeGranule(*h, granule, is_free, is_gone)) parts.push_back(*part);
  }
  for (const auto& merge : PlanMerges(std::move(parts), most)) {
    const Mapping *const guest = merge.guest, *const host = merge.host;
    supply_.push_back(guest->handle);
    taken_.push_back({guest->at, granule});
    ForEachUsed(*guest, is_free, [&](AddressRange range) {
      taken_.push_back({host->at + (range.begin - guest->at), range.bytes});
    });
  }
  std::sort(taken_.begin(), taken_.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.begin < b.begin; });
}

uint64_t DeviceHeap::FitView::Missing(StreamHeap* owner, const Request& request) {
  if (request.size_class >= 0 && HasObject(owner, request.size_class)) return 0;
  if (!heap_.driver_->has_vmm() || owner->has_segments()) {
    const uint64_t missing = MissingInSegments(owner, request);
    return missing == 0 || CanBorrow(owner, request) ? 0 : missing;
  }
  uint64_t missing = MissingInWindow(owner, request);
  if (missing == 0 || CanBorrow(owner, request) || CanShare(owner, request, false)) return 0;
  const bool may_merge =
      heap_.options_.mesh == Meshing::kPressure && heap_.options_.ladder.mesh && wait_;
  if (!may_merge || heap_.PoolRoom(owner) != UINT64_MAX) return missing;
  if (!now_.captured) {
    Merge((missing + heap_.granule_ - 1) / heap_.granule_);
    missing = MissingInWindow(owner, request);
    // A miss would merge once more, which changes what boundaries can be shared.
    if (missing == 0 || !taken_.empty()) return missing;
  }
  return CanShare(owner, request, true) ? 0 : missing;
}

// ---- The question -------------------------------------------------------------------------------

HeapError DeviceHeap::WouldFit(uint64_t bytes, Stream stream, bool* fits, uint64_t* missing_bytes) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  StreamKey key = KeyOf(stream);
  if (has_routes_.load(std::memory_order_relaxed)) key.pool = PoolOf(stream);
  MutexLock space(space_mu_);
  const CallSeries series(*driver_);
  FitView::Circumstances now;
  uint64_t total_bytes = 0;
  if (DriverStatus status = driver_->MemGetInfo(&now.driver_free, &total_bytes); !status.ok())
    return DriverFailure(status);
  now.moves = MayMove();
  context_is_captured_.reset();
  now.captured = ContextIsCaptured();
  for (StreamHeap* s : Streams()) {
    bool capturing = now.captured;
    if (capturing && s->timeline.kind() == StreamTimeline::Kind::kStream &&
        !driver_->IsCapturing(s->timeline.stream(), &capturing).ok()) {
      capturing = true;
    }
    if (options_.ladder.wait && !capturing) now.can_wait_for.insert(s);
  }
  HeapError error = CheckStream(*driver_, key.stream);
  MutexLock lock(heap_mu_);
  if (bytes > driver_->total_bytes()) {
    *missing_bytes = bytes - std::min(bytes, now.driver_free);
    *fits = false;
    return {};
  }
  std::shared_ptr<CapturePool> pool;
  if (HeapError gone; key.pool != 0 && (pool = FindPool(key.pool, &gone)) == nullptr) key.pool = 0;
  const auto known = by_key_.find(key);
  if (known == by_key_.end() && !error.ok()) return error;
  StreamHeap unknown(StreamTimeline::Kind::kStream, key, granule_, &records_, std::move(pool));
  StreamHeap* owner = known != by_key_.end() ? known->second : &unknown;
  const CacheVisit visit(caches_);
  FitView view(*this, now);
  *missing_bytes = view.Missing(
      owner, owner->no_split() ? MakeBlockRequest(bytes, kBlockAlignment)
                               : MakeRequest(bytes, bytes, kBlockAlignment, key.pool != 0));
  *fits = *missing_bytes == 0;
  return {};
}

}  // namespace weir
