// DeviceHeap: memory that is made in advance, and memory that is given back of itself.
//
// What the options say is looked at where a call is slow anyway and holds the space lock: when a
// miss has been served, when a marker is recorded for deferred frees, in a trim. Nothing here
// waits: only memory whose work is known to be complete is given back.
#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/stats.h"

namespace weir {
namespace {

// Misses take whole spares. Up to this many of them are granules, so that any hole can be filled
// with them; beyond, their number would make misses slow.
constexpr uint64_t kMostSpares = 2048;

}  // namespace

uint64_t HeapState::SpareBytes() {
  uint64_t bytes = 0;
  if (!has_spares_) return 0;
  for (const Handle* h : handles_.all()) {
    if (h->mappings == nullptr && !h->taken) bytes += h->bytes;
  }
  has_spares_ = bytes > 0;
  return bytes;
}

HeapError DeviceHeap::Preallocate(uint64_t bytes) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  MutexLock space(space_mu_);
  if (!driver_->has_vmm()) {
    return {
        WEIR_ERROR_CONFIGURATION,
        absl::StrCat("device ", driver_->ordinal(),
                     " cannot preallocate: without mapping of memory (VMM) what is made for one "
                     "stream does not serve the others")};
  }
  return MakeSpares(bytes);
}

HeapError DeviceHeap::MakeSpares(uint64_t bytes) {
  const uint64_t target = AlignUp(std::min(bytes, driver_->total_bytes() + 1), granule_);
  uint64_t missing = 0;
  std::vector<Handle*> made;
  const CallSeries series(*driver_);  // needs host memory, so before anything is changed
  {
    MutexLock lock(heap_mu_);
    if (target > HardLimit()) {
      return {WEIR_ERROR_OUT_OF_MEMORY,
              absl::StrCat("device ", driver_->ordinal(), " cannot preallocate ", bytes,
                           " bytes: no more than ", HardLimit(), " may be reserved")};
    }
    if (stats_.reserved_bytes >= target) return {};
    missing = target - stats_.reserved_bytes;
    const uint64_t most = granule_
                          << FloorLog2(std::max<uint64_t>(missing / granule_ / kMostSpares, 1));
    const uint64_t count = (missing + most - 1) / most;
    made.reserve(count);
    handles_.Reserve(count);
    for (uint64_t left = missing; left > 0; left -= made.back()->bytes) {
      made.push_back(handles_.New(std::min(left, most)));
      made.back()->taken = true;
    }
  }
  const uint64_t start_ns = driver_->NowNs();
  DriverStatus status;
  for (Handle* handle : made) {
    if (status = driver_->CreateHandle(handle->bytes, &handle->id); !status.ok()) break;
  }
  // All of it or none. A spare that the driver does not take back stays one.
  for (Handle* handle : made) {
    if (!status.ok() && handle->id != 0 && driver_->ReleaseHandle(handle->id).ok()) handle->id = 0;
  }
  const uint64_t now_ns = driver_->NowNs();
  MutexLock lock(heap_mu_);
  stats_.driver_time_ns += now_ns - start_ns;
  has_spares_ = true;
  for (Handle* handle : made) {
    handle->taken = false;
    handle->last_used_ns = now_ns;
    if (handle->id == 0) {
      handles_.Delete(handle);
      continue;
    }
    WEIR_STAT_ADD(stats_, reserved_bytes, handle->bytes);
    WEIR_STAT_ADD(stats_, handles, 1);
  }
  if (status.ok()) return {};
  if (!status.is_out_of_memory()) return DriverFailure(status);
  return {
      WEIR_ERROR_OUT_OF_MEMORY,
      absl::StrCat("device ", driver_->ordinal(), " cannot preallocate ", bytes,
                   " bytes: the driver does not have them; other processes may use the device")};
}

uint64_t HeapState::GcLimit() {
  if (options_.gc_threshold <= 0) return UINT64_MAX;
  return static_cast<uint64_t>(options_.gc_threshold * static_cast<double>(HardLimit()));
}

void DeviceHeap::ReleaseByPolicy() {
  if (options_.gc_threshold <= 0 && options_.idle_decay <= 0 &&
      options_.release_threshold == UINT64_MAX) {
    return;
  }
  try {
    const CallSeries series(*driver_);
    const uint64_t now_ns = driver_->NowNs();
    bool needs_proof = false;
    const auto choose = [&] {
      MutexLock lock(heap_mu_);
      return ChooseByPolicy(now_ns, &needs_proof);
    };
    std::vector<Handle*> chosen = choose();
    if (needs_proof) {
      if (ProveIdle().is_fatal()) return;
      chosen = choose();
    }
    for (Handle* handle : chosen) {
      if (ReleaseHandle(handle).is_fatal()) break;
    }
  } catch (const std::bad_alloc&) {
    // No host memory: what is not released now is released another time.
  }
}

std::vector<Handle*> DeviceHeap::ChooseByPolicy(uint64_t now_ns, bool* needs_proof) {
  FlushKept();
  std::vector<Handle*> idle;
  uint64_t idle_bytes = 0;
  for (Handle* h : handles_.all()) {
    bool used = !h->is_idle();
    for (Mapping* m = h->mappings; m != nullptr; m = m->next) used |= std::exchange(m->used, false);
    if (used) h->last_used_ns = now_ns;
    if (!h->is_idle() || h->taken || !IsSupply(*h)) continue;
    idle.push_back(h);
    idle_bytes += h->bytes;
  }
  std::sort(idle.begin(), idle.end(), [](const Handle* a, const Handle* b) {
    return a->last_used_ns != b->last_used_ns ? a->last_used_ns < b->last_used_ns
                                              : a->at() > b->at();
  });
  const uint64_t gc_limit = GcLimit();
  const double decay_ns = options_.idle_decay * 1e9;
  uint64_t reserved = stats_.reserved_bytes;
  std::vector<Handle*> chosen;
  for (Handle* h : idle) {
    const bool decayed = decay_ns > 0 && static_cast<double>(now_ns - h->last_used_ns) >= decay_ns;
    if (!decayed && idle_bytes <= options_.release_threshold && reserved <= gc_limit) continue;
    if (reserved < options_.preallocate + h->bytes) continue;
    if (IsComplete(*h)) {
      chosen.push_back(h);
      reserved -= h->bytes;
      idle_bytes -= h->bytes;
    } else {
      *needs_proof = true;
    }
  }
  return chosen;
}

}  // namespace weir
