// DeviceHeap: memory whose physical pages somebody else holds, or may hold.
//
// Seen: pinned ranges. A handle with pins is nobody's supply: it is not unmapped, given another
// address, merged, shared or given back, whether blocks use it or not. All addresses at which it is
// mapped when it is pinned stay, and none is added; so what a peer has registered is what the
// address shows, whichever of its addresses a later block uses. What lies free in it serves
// ordinary requests where it is.
//
// Unseen: a library that may register pages on its own is loaded, and nobody follows Weir's
// changes. Then any address may be registered, and no mapping is changed but by explicit calls of
// the program (moves_): the heap only grows.
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/unseen_holders.h"
#include "allocator/vmm/remap_observers.h"

namespace weir {

// ---- Pinned ranges ------------------------------------------------------------------------------

HeapError DeviceHeap::PinRange(uint64_t address, uint64_t bytes) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  MutexLock space(space_mu_);  // no change of the mapping is under way
  MutexLock lock(heap_mu_);
  return PinLocked({address, bytes});
}

HeapError HeapState::PinLocked(AddressRange range) {
  std::vector<Handle*> handles;
  if (HeapError error = FindHandles(range.begin, range.bytes, &handles); !error.ok()) return error;
  ++pinned_[{range.begin, range.bytes}];
  for (Handle* h : handles) {
    if (h->pins++ == 0) stats_.pinned_bytes += h->bytes;
  }
  return {};
}

HeapError DeviceHeap::UnpinRange(uint64_t address, uint64_t bytes) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  MutexLock space(space_mu_);
  MutexLock lock(heap_mu_);
  return UnpinLocked({address, bytes});
}

HeapError HeapState::UnpinLocked(AddressRange pinned) {
  const auto& [address, bytes] = pinned;
  const auto range = pinned_.find({address, bytes});
  if (range == pinned_.end()) {
    return {WEIR_ERROR_INVALID_ARGUMENT,
            absl::StrCat("the range of ", bytes, " bytes at 0x", absl::Hex(address),
                         " is not pinned: pass the pointer and the bytes of weir_pin_range")};
  }
  std::vector<Handle*> handles;
  if (HeapError error = FindHandles(address, bytes, &handles); !error.ok()) return error;
  for (Handle* h : handles) {
    if (--h->pins == 0) stats_.pinned_bytes -= h->bytes;
  }
  if (--range->second == 0) pinned_.erase(range);
  return {};
}

HeapError HeapState::FindHandles(uint64_t address, uint64_t bytes, std::vector<Handle*>* handles) {
  if (bytes == 0 || bytes > std::numeric_limits<uint64_t>::max() - address) {
    return {WEIR_ERROR_INVALID_ARGUMENT,
            absl::StrCat(bytes, " bytes at 0x", absl::Hex(address), " are no range")};
  }
  const uint64_t stamp = ++records_.stamp;
  for (uint64_t at = address; at < address + bytes;) {
    const Mapping* mapping = MappingAt(at);
    if (mapping == nullptr) {
      return {WEIR_ERROR_NOT_OWNED, absl::StrCat("0x", absl::Hex(at), " is not memory that Weir ",
                                                 "has mapped on device ", driver_->ordinal())};
    }
    // A range that goes on at a second address of the same handle counts it once.
    if (std::exchange(mapping->handle->stamp, stamp) != stamp) handles->push_back(mapping->handle);
    at = mapping->at + mapping->bytes;
  }
  return {};
}

const Mapping* HeapState::MappingAt(uint64_t address) {
  if (address - reservation_begin_ < reservation_bytes_) {
    const Mapping* mapping = PointerIndex::Get().FindMapping(address);
    return mapping != nullptr && !mapping->handle->stuck.load() ? mapping : nullptr;
  }
  for (const Handle* h : handles_.all()) {  // a segment
    if (h->mappings != nullptr && address - h->at() < h->bytes) return h->mappings;
  }
  return nullptr;
}

std::string HeapState::VerifyPins() {
  absl::flat_hash_map<const Handle*, uint64_t> pins;
  for (const auto& [range, count] : pinned_) {
    std::vector<Handle*> handles;
    if (const HeapError lost = FindHandles(range.first, range.second, &handles); !lost.ok())
      return absl::StrCat("a pinned range has lost its memory: ", lost.text);
    for (const Handle* h : handles) pins[h] += count;
  }
  uint64_t bytes = 0;
  for (const Handle* h : handles_.all()) {
    if (h->pins != pins[h])
      return absl::StrCat("the handle at 0x", absl::Hex(h->at()), " counts ", h->pins,
                          " pins, but ", pins[h], " ranges pin it");
    if (h->pins > 0) bytes += h->bytes;
  }
  if (bytes != stats_.pinned_bytes) return "pinned_bytes is not the sum of all pinned handles";
  return "";
}

// ---- Who may not know of changes ----------------------------------------------------------------

HeapError DeviceHeap::CheckNotObserving() {
  if (!RemapObservers::inside()) return {};
  return {WEIR_ERROR_IN_CALLBACK,
          "an observer of remaps must not make Weir call the driver: it may free, and allocate "
          "what lies free, but nothing that needs new or moved memory"};
}

bool DeviceHeap::MayMove() const {
  if (options_.compaction != Compaction::kAuto) return options_.compaction == Compaction::kOn;
  if (!RemapObservers::Get().observers().is_empty()) return true;
  const char* library = UnseenHolders::Get().Look();
  if (library == nullptr) return true;
  UnseenHolders::Get().Tell(library);
  return false;
}

void DeviceHeap::LookForHolders() {
  const bool moves = MayMove();
  MutexLock lock(heap_mu_);
  moves_ = moves;
}

}  // namespace weir
