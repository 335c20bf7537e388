// The calling thread's device. Kept by Weir, because a hit must not ask the driver.
#ifndef WEIR_CAPI_THREAD_DEVICE_H_
#define WEIR_CAPI_THREAD_DEVICE_H_

#include "allocator/pool/registry.h"

namespace weir::capi {

// What the thread gave to SetThreadDevice; before that, the device of the CUDA context that was
// current at its first call of this function, else 0.
int ThreadDevice(const Registry& registry);
void SetThreadDevice(int ordinal);

// The same without asking anybody; kDeviceUnset before that. For hits.
inline constexpr int kDeviceUnset = -1;
extern constinit thread_local int thread_device __attribute__((tls_model("initial-exec")));

// What calls are about; null with the reason in *error. The device with a number:
DeviceSlot* SlotOf(int device, HeapError* error);
// The calling thread's device:
DeviceSlot* ThreadSlot(HeapError* error);
// The device whose block begins at the pointer, or WEIR_ERROR_NOT_OWNED.
DeviceSlot* OwnerOf(const void* ptr, HeapError* error);
// The device of a stream: the thread's for the special streams, else that of its context.
DeviceSlot* StreamSlot(weir_stream_t stream, HeapError* error);

// Calls fn(heap) if the device is in use; a device that is not has nothing to give back or to
// count, and is not started for that.
template <typename Fn>
HeapError IfInUse(int device, Fn fn) {
  HeapError error;
  Registry* registry = Registry::Get(&error);
  if (registry == nullptr) return error;
  if (error = registry->CheckOrdinal(device); !error.ok()) return error;
  DeviceSlot* slot = registry->ExistingDevice(device);
  return slot == nullptr ? HeapError() : slot->With(fn);
}

}  // namespace weir::capi

#endif  // WEIR_CAPI_THREAD_DEVICE_H_
