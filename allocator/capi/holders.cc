// The C functions for memory whose physical pages others hold: pinned ranges, observers of remaps.
#include "allocator/capi/last_error.h"
#include "allocator/capi/thread_device.h"
#include "allocator/vmm/remap_observers.h"
#include "weir/weir.h"

using namespace weir::capi;  // NOLINT: the C functions are this file's only content
using weir::DeviceSlot;
using weir::HeapError;
using weir::IsForked;
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
  return Guarded([&]() -> HeapError {
    if (observer == nullptr) return {WEIR_ERROR_INVALID_ARGUMENT, "observer is NULL"};
    RemapObservers::Get().Add({observer, user});
    return {};
  });
}

int weir_watch_remap(weir_remap_observer_t watcher, void* user) {
  return Guarded([&]() -> HeapError {
    if (watcher == nullptr) return {WEIR_ERROR_INVALID_ARGUMENT, "watcher is NULL"};
    RemapObservers::Get().AddWatcher({watcher, user});
    return {};
  });
}

int weir_unwatch_remap(weir_remap_observer_t watcher, void* user) {
  if (IsForked()) return WEIR_OK;
  return Guarded([&]() -> HeapError {
    if (RemapObservers::Get().RemoveWatcher({watcher, user})) return {};
    return {WEIR_ERROR_INVALID_ARGUMENT,
            "this watcher was not added with this user pointer, or removed before"};
  });
}

int weir_unobserve_remap(weir_remap_observer_t observer, void* user) {
  if (IsForked()) return WEIR_OK;
  return Guarded([&]() -> HeapError {
    if (RemapObservers::Get().Remove({observer, user})) return {};
    return {WEIR_ERROR_INVALID_ARGUMENT,
            "this observer was not added with this user pointer, or removed before"};
  });
}
