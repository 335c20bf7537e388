// DeviceHeap::Sharing: peers, exports, imports. Each is a transaction under the space lock: it
// completes, or nothing has changed.
#include "allocator/pool/device_heap_share.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace weir {

// ---- Peers --------------------------------------------------------------------------------------

std::vector<AddressRange> DeviceHeap::Sharing::MappedRanges() {
  std::vector<AddressRange> all;
  {
    MutexLock lock(heap_.heap_mu_);
    for (const Handle* h : heap_.handles_.all()) {
      if (h->id == 0 || h->stuck.load()) continue;
      for (const Mapping* m = h->mappings; m != nullptr; m = m->next) {
        if (m->mapped) all.push_back({m->at, m->bytes});
      }
    }
  }
  for (const auto& [begin, bytes] : heap_.imports_) all.push_back({begin, bytes});
  std::sort(all.begin(), all.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.begin < b.begin; });
  std::vector<AddressRange> ranges;
  for (const AddressRange& range : all) {
    if (!ranges.empty() && ranges.back().begin + ranges.back().bytes == range.begin) {
      ranges.back().bytes += range.bytes;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

HeapError DeviceHeap::Sharing::EnablePeerAccess(int peer) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  MutexLock space(heap_.space_mu_);
  DeviceDriver& driver = *heap_.driver_;
  const std::vector<int> before = driver.peers();
  if (std::find(before.begin(), before.end(), peer) != before.end()) return {};
  bool can = false;
  if (DriverStatus status = driver.CanBeReached(peer, &can); !status.ok())
    return heap_.DriverFailure(status);
  if (!can) {
    return {WEIR_ERROR_INVALID_ARGUMENT,
            absl::StrCat("device ", peer, " cannot reach the memory of device ", driver.ordinal(),
                         ": there is no peer access between them")};
  }
  const std::vector<AddressRange> ranges = MappedRanges();
  std::vector<int> after = before;
  after.push_back(peer);
  size_t done = 0;
  DriverStatus status;
  for (; done < ranges.size() && status.ok(); ++done) {
    status = driver.SetPeerAccess(ranges[done].begin, ranges[done].bytes, peer, true);
  }
  if (status.ok()) status = driver.OpenClassicTo(peer);
  if (status.ok()) {
    driver.set_peers(std::move(after));
    return {};
  }
  while (done > 0) {
    const AddressRange& range = ranges[--done];
    driver.SetPeerAccess(range.begin, range.bytes, peer, false).IgnoreError();
  }
  return heap_.DriverFailure(status);
}

// ---- Exports ------------------------------------------------------------------------------------

HeapError DeviceHeap::Sharing::FindExported(uint64_t address, Exported* exported) {
  const HeapError not_owned(WEIR_ERROR_NOT_OWNED,
                            absl::StrCat("0x", absl::Hex(address), " lies in no block in use"));
  const HeapError not_mapped(
      WEIR_ERROR_CONFIGURATION,
      absl::StrCat("the memory at 0x", absl::Hex(address),
                   " cannot be exported as file descriptors, because it is not mapped by Weir or "
                   "this system has no such handles: use cudaIpcGetMemHandle"));
  const Block* block = nullptr;
  if (address - heap_.reservation_begin_ < heap_.reservation_bytes_) {
    block = PointerIndex::Get().FindContaining(address);
  }
  if (block == nullptr) {
    return heap_.MappingAt(address) != nullptr ? not_mapped : not_owned;
  }
  if (block->state != BlockState::kLive) return not_owned;
  uint64_t bytes = block->bytes;
  exported->block = block->begin;
  if (const Span* span = block->span) {
    const uint64_t offset = address - span->begin;
    const uint32_t object = ObjectOfOffset(span->size_class, offset);
    if (object >= span->objects || span->held[object].load() == Span::kNotHeld) return not_owned;
    bytes = span->object_bytes;
    exported->block = span->begin + object * bytes;
  } else if (block->requested.load() == Block::kNotHeld) {
    return not_owned;
  }
  if (!heap_.driver_->can_export()) return not_mapped;
  AddressRange& range = exported->record.pinned;
  exported->record.bytes = bytes;
  bool is_lost = false;
  Arena::ForEachMapping(exported->block, exported->block + bytes, nullptr, [&](const Mapping* m) {
    if (exported->handles.empty()) range.begin = m->at;
    range.bytes = m->at + m->bytes - range.begin;
    exported->handles.push_back(m->handle);
    is_lost |= m->handle->stuck.load();
  });
  return is_lost ? not_owned : HeapError();
}

HeapError DeviceHeap::Sharing::Export(uint64_t address, uint64_t* handle_bytes, int* fds,
                                      size_t capacity, weir_export_t* result) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  MutexLock space(heap_.space_mu_);  // no change of the mapping is under way
  Exported exported;
  {
    MutexLock lock(heap_.heap_mu_);
    if (HeapError error = FindExported(address, &exported); !error.ok()) return error;
    const AddressRange& range = exported.record.pinned;
    *result = {address - range.begin, range.bytes, exported.handles.size(), {}};
    if (result->count > capacity) {
      return {WEIR_ERROR_INVALID_ARGUMENT,
              absl::StrCat("weir_export: the arrays have space for ", capacity,
                           " handles, and the block lies in ", result->count)};
    }
    const auto record = heap_.exports_.emplace(exported.block, exported.record);
    absl::Cleanup forget = [&] {
      heap_.heap_mu_.AssertHeld();
      heap_.exports_.erase(record);
    };
    if (HeapError error = heap_.PinLocked(range); !error.ok()) return error;
    std::move(forget).Cancel();
  }
  size_t made = 0;
  DriverStatus status;
  {
    const CallSeries series(*heap_.driver_);
    for (; made < result->count; ++made) {
      const Handle* handle = exported.handles[made];  // pinned: nobody changes it
      status = heap_.driver_->ExportHandle(handle->id, &fds[made]);
      if (!status.ok()) break;
      handle_bytes[made] = handle->bytes;
    }
  }
  if (status.ok()) return {};
  while (made > 0) close(fds[--made]);
  MutexLock lock(heap_.heap_mu_);
  heap_.exports_.erase(std::prev(heap_.exports_.upper_bound(exported.block)));  // the newest
  if (HeapError error = heap_.UnpinLocked(exported.record.pinned); !error.ok()) return error;
  return heap_.DriverFailure(status);
}

HeapError DeviceHeap::Sharing::Unexport(uint64_t address) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  MutexLock space(heap_.space_mu_);
  MutexLock lock(heap_.heap_mu_);
  for (auto after = heap_.exports_.upper_bound(address); after != heap_.exports_.begin();) {
    --after;
    if (address - after->first >= after->second.bytes) continue;
    const AddressRange pinned = after->second.pinned;
    heap_.exports_.erase(after);
    return heap_.UnpinLocked(pinned);
  }
  return {WEIR_ERROR_INVALID_ARGUMENT,
          absl::StrCat("no block at 0x", absl::Hex(address),
                       " is exported: each weir_export is taken back once")};
}

// ---- Imports ------------------------------------------------------------------------------------

HeapError DeviceHeap::Sharing::Import(const int* fds, const uint64_t* handle_bytes, size_t count,
                                      uint64_t* address) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  DeviceDriver& driver = *heap_.driver_;
  if (!driver.has_vmm()) {
    return {WEIR_ERROR_CONFIGURATION,
            absl::StrCat("device ", driver.ordinal(),
                         " cannot import handles: it cannot map memory (vmm)")};
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    const bool is_too_much = handle_bytes[i] > std::numeric_limits<uint64_t>::max() / 2 - bytes;
    if (handle_bytes[i] == 0 || !IsAligned(handle_bytes[i], driver.granularity()) || is_too_much) {
      return {
          WEIR_ERROR_INVALID_ARGUMENT,
          absl::StrCat("weir_import: handle ", i, " of ", count, " has ", handle_bytes[i],
                       " bytes, which is no multiple of ", driver.granularity(), " or too many")};
    }
    bytes += handle_bytes[i];
  }
  if (count == 0) return {WEIR_ERROR_INVALID_ARGUMENT, "weir_import: no handles"};
  MutexLock space(heap_.space_mu_);
  const CallSeries series(driver);
  AddressRange range{0, bytes};
  DriverStatus status = driver.ReserveAddress(bytes, driver.granularity(), &range.begin);
  if (!status.ok()) return heap_.DriverFailure(status);
  const auto record = heap_.imports_.emplace(range.begin, bytes).first;
  status = MapImported(fds, handle_bytes, count, range);
  if (status.ok()) {
    *address = range.begin;
    return {};
  }
  heap_.imports_.erase(record);
  driver.FreeAddress(range.begin, bytes).IgnoreError();  // costs addresses, and refused: no others
  return status.error_class() == DriverErrorClass::kMisuse
             ? HeapError(WEIR_ERROR_INVALID_ARGUMENT,
                         absl::StrCat("weir_import: a descriptor is no handle of memory, or its "
                                      "bytes are not those of the handle: ",
                                      status.ToString()))
             : heap_.DriverFailure(status);
}

DriverStatus DeviceHeap::Sharing::MapImported(const int* fds, const uint64_t* handle_bytes,
                                              size_t count, AddressRange range) {
  DeviceDriver& driver = *heap_.driver_;
  uint64_t mapped = 0;
  DriverStatus status;
  for (size_t i = 0; i < count && status.ok(); ++i) {
    MemoryHandle handle = 0;
    if (status = driver.ImportHandle(fds[i], &handle); !status.ok()) break;
    status = driver.Map(range.begin + mapped, handle_bytes[i], handle);
    if (status.ok()) mapped += handle_bytes[i];
    // The mapping keeps the memory. What is not released the first time would never be.
    const DriverStatus released = driver.ReleaseHandle(handle);
    if (!released.ok()) driver.ReleaseHandle(handle).IgnoreError();
    if (status.ok()) status = released;
  }
  if (status.ok()) status = driver.SetAccess(range.begin, range.bytes);
  if (!status.ok() && mapped > 0) driver.Unmap(range.begin, mapped).IgnoreError();
  return status;
}

HeapError DeviceHeap::Sharing::CloseImport(uint64_t address) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  MutexLock space(heap_.space_mu_);
  const auto found = heap_.imports_.find(address);
  if (found == heap_.imports_.end()) {
    return {WEIR_ERROR_NOT_OWNED, absl::StrCat("0x", absl::Hex(address),
                                               " was not returned by weir_import, or was closed")};
  }
  const CallSeries series(*heap_.driver_);
  heap_.context_is_captured_.reset();
  DriverStatus status = DriverStatus::CaptureForbids("cuCtxSynchronize");
  if (!heap_.ContextIsCaptured()) status = heap_.driver_->SynchronizeContext();
  if (status.ok()) status = heap_.driver_->Unmap(address, found->second);
  if (!status.ok()) return heap_.DriverFailure(status);
  heap_.driver_->FreeAddress(address, found->second).IgnoreError();  // costs addresses only
  heap_.imports_.erase(found);
  return {};
}

}  // namespace weir
