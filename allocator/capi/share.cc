// The C functions about memory that other devices and other processes use.
#include "weir/share.h"

#include "absl/strings/str_cat.h"
#include "allocator/capi/last_error.h"
#include "allocator/capi/thread_device.h"
#include "allocator/pool/device_heap_share.h"

using namespace weir::capi;  // NOLINT: the C functions are this file's only content
using weir::DeviceHeap;
using weir::DeviceSlot;
using weir::HeapError;
using weir::Registry;

namespace {

HeapError NotInPassthrough() {
  return {WEIR_ERROR_CONFIGURATION,
          "in mode:passthrough memory is not mapped by Weir: use cudaIpcGetMemHandle"};
}

uint64_t AddressOf(const void* ptr) { return reinterpret_cast<uintptr_t>(ptr); }

// Calls fn(sharing) for the heap that has the address.
template <typename Fn>
HeapError WithSharingOf(const void* ptr, Fn fn) {
  HeapError error;
  const DeviceSlot* slot = OwnerOf(ptr, &error);
  if (slot == nullptr) return error;
  if (slot->heap == nullptr) return NotInPassthrough();
  return fn(DeviceHeap::Sharing(*slot->heap));
}

}  // namespace

int weir_enable_peer_access(int device, int peer) {
  return Guarded([&]() -> HeapError {
    HeapError error;
    const DeviceSlot* slot = SlotOf(device, &error);
    if (slot == nullptr || SlotOf(peer, &error) == nullptr) return error;
    if (device == peer) return {};
    if (slot->heap != nullptr) return DeviceHeap::Sharing(*slot->heap).EnablePeerAccess(peer);
    const weir::DriverStatus status = slot->driver().OpenClassicTo(peer);
    if (status.ok()) return {};
    return {WEIR_ERROR_DRIVER, absl::StrCat("device ", device, ": ", status.ToString())};
  });
}

int weir_export(const void* ptr, uint64_t* handle_bytes, int* fds, size_t capacity,
                weir_export_t* result) {
  return Guarded([&]() -> HeapError {
    if (result == nullptr || (capacity > 0 && (handle_bytes == nullptr || fds == nullptr))) {
      return {WEIR_ERROR_INVALID_ARGUMENT, "weir_export: result or an array is NULL"};
    }
    return WithSharingOf(ptr, [&](DeviceHeap::Sharing sharing) {
      return sharing.Export(AddressOf(ptr), handle_bytes, fds, capacity, result);
    });
  });
}

int weir_unexport(const void* ptr) {
  if (weir::IsForked()) return WEIR_OK;
  return Guarded([&] {
    return WithSharingOf(
        ptr, [&](DeviceHeap::Sharing sharing) { return sharing.Unexport(AddressOf(ptr)); });
  });
}

int weir_import(int device, const int* fds, const uint64_t* handle_bytes, size_t count,
                void** ptr) {
  return Guarded([&]() -> HeapError {
    if (ptr == nullptr || fds == nullptr || handle_bytes == nullptr) {
      return {WEIR_ERROR_INVALID_ARGUMENT, "weir_import: ptr or an array is NULL"};
    }
    HeapError error;
    const DeviceSlot* slot = SlotOf(device, &error);
    if (slot == nullptr) return error;
    if (slot->heap == nullptr) return NotInPassthrough();
    uint64_t address = 0;
    error = DeviceHeap::Sharing(*slot->heap).Import(fds, handle_bytes, count, &address);
    if (error.ok()) *ptr = reinterpret_cast<void*>(address);
    return error;
  });
}

int weir_close_import(void* ptr) {
  if (weir::IsForked()) return WEIR_OK;
  return Guarded([&]() -> HeapError {
    HeapError error(WEIR_ERROR_NOT_OWNED,
                    absl::StrCat("0x", absl::Hex(AddressOf(ptr)),
                                 " was not returned by weir_import, or was closed"));
    const Registry* registry = Registry::Existing();
    for (int i = 0; registry != nullptr && i < registry->device_count(); ++i) {
      const DeviceSlot* slot = registry->ExistingDevice(i);
      if (slot == nullptr || slot->heap == nullptr) continue;
      error = DeviceHeap::Sharing(*slot->heap).CloseImport(AddressOf(ptr));
      if (error.code != WEIR_ERROR_NOT_OWNED) break;
    }
    return error;
  });
}
