#include "allocator/capi/thread_device.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace weir::capi {

constinit thread_local int thread_device = kDeviceUnset;

int ThreadDevice(const Registry& registry) {
  if (thread_device == kDeviceUnset) thread_device = std::max(0, registry.driver().CurrentDevice());
  return thread_device;
}

void SetThreadDevice(int ordinal) { thread_device = ordinal; }

DeviceSlot* SlotOf(int device, HeapError* error) {
  Registry* registry = Registry::Get(error);
  if (registry == nullptr) return nullptr;
  return registry->Device(device, error);
}

DeviceSlot* ThreadSlot(HeapError* error) {
  Registry* registry = Registry::Get(error);
  if (registry == nullptr) return nullptr;
  return registry->Device(ThreadDevice(*registry), error);
}

DeviceSlot* OwnerOf(const void* ptr, HeapError* error) {
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  Registry* registry = Registry::Existing();
  DeviceSlot* slot = registry == nullptr ? nullptr : registry->OwnerOf(address);
  if (slot == nullptr) {
    *error = HeapError(WEIR_ERROR_NOT_OWNED,
                       absl::StrCat("0x", absl::Hex(address), " is not memory of Weir"));
  }
  return slot;
}

DeviceSlot* StreamSlot(weir_stream_t stream, HeapError* error) {
  Registry* registry = Registry::Get(error);
  if (registry == nullptr) return nullptr;
  DeviceSlot* slot = registry->Device(ThreadDevice(*registry), error);
  if (slot == nullptr || reinterpret_cast<uintptr_t>(stream) <= 2) return slot;
  int ordinal = 0;
  if (DriverStatus status = slot->driver().StreamDevice(stream, &ordinal); !status.ok()) {
    *error = HeapError(WEIR_ERROR_INVALID_ARGUMENT,
                       absl::StrCat("not a stream of CUDA: ", status.ToString()));
    return nullptr;
  }
  return registry->Device(ordinal, error);
}

}  // namespace weir::capi
