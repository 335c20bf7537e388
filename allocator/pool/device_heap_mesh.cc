// DeviceHeap: merging partly used granules, and compaction.
//
// A merge copies the used bytes of one granule to the same offsets of another and maps its
// addresses there (vmm/mesh_plan.h). The bytes may be in use by any stream, so all work of the
// device must be complete, and no other thread may give it new work meanwhile: that is why merging
// is not among what Weir does unasked.
#include <algorithm>
#include <new>
#include <utility>

#include "allocator/base/check.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/stats.h"
#include "allocator/vmm/map_executor.h"
#include "allocator/vmm/mesh_plan.h"

namespace weir {
namespace {

uint64_t BytesIn(const std::vector<AddressRange>& ranges) {
  uint64_t bytes = 0;
  for (const AddressRange& range : ranges) bytes += range.bytes;
  return bytes;
}

}  // namespace

// One merge under way.
struct DeviceHeap::MergeStep {
  Merge merge;
  Remapping remapping;             // of the guest's addresses, from its own memory to the host's
  std::vector<AddressRange> used;  // by blocks, of the guest's addresses
  bool copied = false;
  // What it did could be neither completed nor undone: the guest's memory is stuck, and what the
  // host has lent stays lent, for a copy may still write it.
  bool abandoned = false;
};

uint64_t DeviceHeap::MergeGranules(uint64_t most, uint64_t until_ns, DriverStatus* status) {
  if (!driver_->has_vmm() || ContextIsCaptured()) return 0;
  if (*status = DropAliases(); status->is_fatal()) return 0;
  std::vector<MergeStep> steps;
  {
    MutexLock lock(heap_mu_);
    FlushCaches();
    FlushKept();
    steps = PlanMergesLocked(most);
  }
  if (steps.empty()) return 0;
  try {
    *status = CopyAndRemap(&steps, until_ns);
  } catch (const std::bad_alloc&) {  // no host memory to describe a failure
    bool is_running = true;          // a copy
    try {
      is_running = !driver_->SynchronizeContext().ok();
    } catch (const std::bad_alloc&) {
    }
    MutexLock lock(heap_mu_);
    for (MergeStep& step : steps) step.abandoned = is_running && !step.remapping.done;
    CommitMerges(&steps);
    throw;
  }
  MutexLock lock(heap_mu_);
  return CommitMerges(&steps);
}

std::vector<DeviceHeap::MergeStep> DeviceHeap::PlanMergesLocked(uint64_t most) {
  std::vector<PartGranule> granules;
  for (const Handle* h : handles_.all()) {
    if (!IsSupply(*h)) continue;
    if (const auto part = DescribeGranule(*h, granule_)) granules.push_back(*part);
  }
  std::vector<MergeStep> steps;
  size_t used = 0;
  for (const Merge& merge : PlanMerges(std::move(granules), most)) {
    MergeStep& step = steps.emplace_back();
    step.merge = merge;
    step.remapping = {merge.guest, merge.guest->handle, merge.host->handle};
    ForEachUsed(*merge.guest, &IsReady, [&](AddressRange range) { step.used.push_back(range); });
    used += step.used.size();
  }
  // Host memory first. A used range: 2 records to lend its bytes, 2 for its free (BecomeGuest); and
  // what is free on either side of it is cut out: 2.
  records_.blocks.Reserve(6 * used + 4 * steps.size());
  for (MergeStep& step : steps) {
    Mapping* guest = step.merge.guest;
    step.merge.guest->handle->taken = step.merge.host->handle->taken = true;
    const uint64_t begin = guest->at, end = begin + granule_;
    Block* b = PointerIndex::Get().FindContaining(begin);
    while (b != nullptr && b->begin < end) {
      if (b->state == BlockState::kReady)
        b = guest->arena->CarveBusy(b, std::max(b->begin, begin), std::min(b->end(), end));
      b = b->next;
    }
    for (const AddressRange& range : step.used) {
      step.merge.host->arena->Lend(step.merge.host->at + (range.begin - begin), range.bytes);
    }
    records_.blocks.Hold(2 * step.used.size());
  }
  records_.merging = !steps.empty();  // other threads may free blocks until CommitMerges
  return steps;
}

DriverStatus DeviceHeap::CopyAndRemap(std::vector<MergeStep>* steps, uint64_t until_ns) {
  const uint64_t start_ns = driver_->NowNs();
  // On no stream that may be captured or made to wait: everything is complete before and after.
  DriverStatus status = driver_->SynchronizeContext();
  bool any = false;  // copies were begun
  for (MergeStep& step : *steps) {
    if (!status.ok() || driver_->NowNs() >= until_ns) break;
    const Mapping& guest = *step.merge.guest;
    for (const AddressRange& range : step.used) {
      const uint64_t to = step.merge.host->at + (range.begin - guest.at);
      if (status = driver_->Copy(to, range.begin, range.bytes, nullptr); !status.ok()) break;
      any = true;
    }
    step.copied = status.ok();
  }
  // What was copied before a copy failed is of use all the same.
  if (any) {
    DriverStatus done = driver_->SynchronizeContext();
    if (!done.ok()) done = driver_->SynchronizeContext();  // the copies must not be left running
    if (!done.ok()) {
      for (MergeStep& step : *steps) step.abandoned = std::exchange(step.copied, false);
      status = done;
    }
  }
  for (MergeStep& step : *steps) {
    if (!step.copied) break;
    if (DriverStatus s = ExecuteRemapping(*driver_, &step.remapping); !s.ok()) {
      status = s;
      break;
    }
  }
  MutexLock lock(heap_mu_);
  stats_.driver_time_ns += driver_->NowNs() - start_ns;
  ++stats_.waits;
  return status;
}

uint64_t DeviceHeap::CommitMerges(std::vector<MergeStep>* steps) {
  Block* const parked = std::exchange(records_.parked, nullptr);
  records_.merging = false;
  uint64_t merged = 0;
  for (MergeStep& step : *steps) merged += CommitMerge(&step) ? 1 : 0;
  records_.parked = parked;
  Arena::EndMerging(&records_);
  if (records_.has_lost) {
    for (const auto& stream : streams_) UnbindCaches(stream.get());
  }
  return merged;
}

bool DeviceHeap::CommitMerge(MergeStep* step) {
  Mapping* guest = step->merge.guest;
  Handle* old_handle = step->remapping.from;
  Handle* host_handle = step->remapping.to;
  old_handle->taken = host_handle->taken = false;
  const bool merged = step->remapping.done;
  if (merged) {
    records_.Detach(guest);
    guest->guest = true;
    records_.Attach(guest, host_handle);
    guest->arena->BecomeGuest(*guest);
    stats_.copied_bytes += BytesIn(step->used);
    ++stats_.merged_granules;
    return true;
  }
  const bool is_lost = step->abandoned || old_handle->stuck.load();
  if (is_lost) {
    old_handle->stuck.store(true);
    guest->mapped = false;
    guest->shared = true;  // so that frees see that it is lost; they still need records
    WithdrawLost(*step);
  } else {
    records_.blocks.Unhold(2 * step->used.size());
  }
  if (step->abandoned) return false;
  for (const AddressRange& range : step->used) {
    Block* lent =
        PointerIndex::Get().FindContaining(step->merge.host->at + (range.begin - guest->at));
    lent->arena->Free(lent, /*epoch=*/0, /*keep=*/false);
  }
  if (is_lost) return false;
  const uint64_t end = guest->at + granule_;
  for (Block* b = PointerIndex::Get().FindContaining(guest->at); b != nullptr && b->begin < end;
       b = b->next) {
    if (b->state == BlockState::kBusy) b = guest->arena->Settle(b, b->begin);
  }
  return false;
}

void DeviceHeap::WithdrawLost(const MergeStep& step) {
  records_.has_lost = true;
  for (const AddressRange& range : step.used) {
    const Block* block = PointerIndex::Get().FindContaining(range.begin);
    if (block->span != nullptr) block->owner->spans.Withdraw(block->span);
  }
}

HeapError DeviceHeap::Compact(const weir_compact_options_t& options,
                              weir_compact_result_t* result) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  MutexLock space(space_mu_);
  const CallSeries series(*driver_);
  context_is_captured_.reset();
  LookForHolders();
  const uint64_t start_ns = driver_->NowNs();
  const uint64_t until_ns =
      options.max_ms == 0 ? UINT64_MAX : start_ns + uint64_t{options.max_ms} * 1'000'000;
  weir_stats_t before;
  {
    MutexLock lock(heap_mu_);
    FlushCaches();
    before = stats_;
  }
  DriverStatus status = CompleteDeferred(/*wait=*/true);
  if (status.is_fatal()) return DriverFailure(status);
  if (options.merge != 0 && options_.mesh != Meshing::kNever) {
    // Hosts can take more guests in another round.
    while (driver_->NowNs() < until_ns && MergeGranules(UINT64_MAX, until_ns, &status) > 0 &&
           status.ok()) {
    }
    if (status.is_fatal()) return DriverFailure(status);
  }
  {
    MutexLock lock(heap_mu_);
    moves_ = true;  // as in a trim; the next miss looks again
  }
  const DriverStatus released = ReleaseIdle(options.keep_bytes, /*may_wait=*/true, until_ns);
  if (!released.ok()) status = released;
  {
    MutexLock lock(heap_mu_);
    result->merged_granules = stats_.merged_granules - before.merged_granules;
    result->copied_bytes = stats_.copied_bytes - before.copied_bytes;
    result->released_bytes =
        before.reserved_bytes - std::min(before.reserved_bytes, stats_.reserved_bytes);
    result->reserved_bytes = stats_.reserved_bytes;
    result->driver_time_ns = stats_.driver_time_ns - before.driver_time_ns;
  }
  const bool failed = !status.ok() && status.error_class() != DriverErrorClass::kCaptureViolation;
  return failed ? DriverFailure(status) : HeapError();
}

}  // namespace weir
