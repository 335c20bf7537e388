// The C functions for memory whose physical pages others hold: pinned ranges, observers of remaps.
#include "absl/strings/str_cat.h"
#include "allocator/capi/last_error.h"
#include "allocator/capi/thread_device.h"
#include "allocator/vmm/remap_observers.h"
#include "weir/weir.h"

using namespace weir::capi;  // NOLINT: the C functions are this file's only content
using weir::DeviceSlot;
using weir::HeapError;
using weir::IsForked;
using weir::RemapObserver;
using weir::RemapObservers;

namespace {

// Calls fn(heap) with the heap that has the address.
template <typename Fn>
int WithHeapOf(const void* ptr, Fn fn) {
  return Guarded([&]() -> HeapError {
    HeapError error;
    const DeviceSlot* slot = OwnerOf(ptr, &error);
    if (slot == nullptr) return error;
    if (slot->heap == nullptr) {
      return {WEIR_ERROR_CONFIGURATION,
              "nothing can be pinned in mode:passthrough, where memory stays until it is freed"};
    }
    return fn(*slot->heap);
  });
}

// Of observers and watchers; `name` is what a caller calls one.
int Add(RemapObservers::List& list, const RemapObserver& added, const char* name) {
  return Guarded([&]() -> HeapError {
    if (added.function == nullptr) return NullArgument(name);
    list.Add(added);
    return {};
  });
}

int Remove(RemapObservers::List& list, const RemapObserver& removed, const char* name) {
  if (IsForked()) return WEIR_OK;
  return Guarded([&]() -> HeapError {
    if (list.Remove(removed)) return {};
    return {
        WEIR_ERROR_INVALID_ARGUMENT,
        absl::StrCat("this ", name, " was not added with this user pointer, or removed before")};
  });
}

}  // namespace

int weir_pin_range(const void* ptr, size_t bytes) {
  return WithHeapOf(
      ptr, [&](auto& heap) { return heap.PinRange(reinterpret_cast<uintptr_t>(ptr), bytes); });
}

int weir_unpin_range(const void* ptr, size_t bytes) {
  if (IsForked()) return WEIR_OK;
  return WithHeapOf(
      ptr, [&](auto& heap) { return heap.UnpinRange(reinterpret_cast<uintptr_t>(ptr), bytes); });
}

int weir_observe_remap(weir_remap_observer_t observer, void* user) {
  return Add(RemapObservers::Get().observers(), {observer, user}, "observer");
}

int weir_unobserve_remap(weir_remap_observer_t observer, void* user) {
  return Remove(RemapObservers::Get().observers(), {observer, user}, "observer");
}

int weir_watch_remap(weir_remap_observer_t watcher, void* user) {
  return Add(RemapObservers::Get().watchers(), {watcher, user}, "watcher");
}

int weir_unwatch_remap(weir_remap_observer_t watcher, void* user) {
  return Remove(RemapObservers::Get().watchers(), {watcher, user}, "watcher");
}
