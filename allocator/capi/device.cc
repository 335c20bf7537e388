// The C functions about devices: selection, copies, giving memory back, statistics, checks.
#include <algorithm>
#include <cstdint>
#include <functional>

#include "absl/strings/str_cat.h"
#include "allocator/base/bytes.h"
#include "allocator/block/pointer_index.h"
#include "allocator/capi/last_error.h"
#include "allocator/capi/thread_device.h"
#include "weir/weir.h"

#ifndef WEIR_VERSION
#error "the build gives the project's version as WEIR_VERSION"
#endif

namespace weir::capi {
namespace {

HeapError FromDriver(const DriverStatus& status) {
  if (status.ok()) return {};
  const bool misuse = status.error_class() == DriverErrorClass::kMisuse;
  return {misuse ? WEIR_ERROR_INVALID_ARGUMENT : WEIR_ERROR_DRIVER, status.ToString()};
}

// On a device that is not in use, in whole granules as far as anybody knows them yet.
HeapError WouldFitUnused(const Registry& registry, int device, uint64_t bytes, bool* fits,
                         uint64_t* missing) {
  uint64_t free = 0, total = 0;
  const DriverStatus status = registry.driver().MemGetInfo(device, &free, &total);
  if (!status.ok()) return FromDriver(status);
  const bool exact = registry.options().passthrough;
  uint64_t got = std::min(free, registry.options().ForDevice(total).memory_limit);
  if (!exact) got = AlignDown(got, PointerIndex::kGranule);
  const uint64_t least = std::max<uint64_t>(bytes, 1);
  const uint64_t needed = exact || least > total ? least : AlignUp(least, PointerIndex::kGranule);
  *fits = needed <= got;
  *missing = *fits ? 0 : needed - got;
  return {};
}

// Queues a copy in a stream, or with `wait` in the legacy stream of the device that owns one of the
// pointers (the thread's device if Weir owns neither).
template <typename Queue>
int Transfer(const void* dst, const void* src, size_t bytes, weir_stream_t stream, bool wait,
             Queue queue) noexcept {
  return Guarded([&] {
    HeapError error;
    if (bytes == 0) return error;
    DeviceSlot* slot = nullptr;
    if (wait) {
      const Registry* registry = Registry::Get(&error);
      if (registry == nullptr) return error;
      for (const void* pointer : {dst, src}) {
        if (slot == nullptr) slot = registry->OwnerOf(reinterpret_cast<uintptr_t>(pointer));
      }
    }
    if (slot == nullptr) slot = StreamSlot(stream, &error);
    if (slot == nullptr) return error;
    DriverStatus status = queue(slot->driver());
    if (status.ok() && wait) status = slot->driver().SynchronizeStream(stream);
    return FromDriver(status);
  });
}

int Copy(void* dst, const void* src, size_t bytes, weir_stream_t stream, bool wait) noexcept {
  if (bytes != 0 && (dst == nullptr || src == nullptr)) {
    return SetLast(WEIR_ERROR_INVALID_ARGUMENT, "a copy from or to NULL");
  }
  return Transfer(dst, src, bytes, stream, wait, [&](const DeviceDriver& driver) {
    return driver.Copy(reinterpret_cast<uintptr_t>(dst), reinterpret_cast<uintptr_t>(src), bytes,
                       stream);
  });
}

int Fill(void* dst, int value, size_t bytes, weir_stream_t stream, bool wait) noexcept {
  if (bytes != 0 && dst == nullptr) {
    return SetLast(WEIR_ERROR_INVALID_ARGUMENT, "a memset of NULL");
  }
  return Transfer(dst, nullptr, bytes, stream, wait, [&](const DeviceDriver& driver) {
    return driver.Fill(reinterpret_cast<uintptr_t>(dst), static_cast<uint8_t>(value), bytes,
                       stream);
  });
}

}  // namespace
}  // namespace weir::capi

using namespace weir::capi;  // NOLINT: the C functions are this file's only content
using weir::DeviceSlot;
using weir::HeapError;
using weir::IsForked;
using weir::Registry;

// ---- Configuration and devices ----

int weir_configure(const char* options) {
  return Guarded([&]() -> HeapError {
    return options == nullptr ? NullArgument("options") : Registry::Configure(options);
  });
}

int weir_device_count(int* count) {
  return Guarded([&] {
    HeapError error;
    if (count == nullptr) return NullArgument("count");
    if (Registry* registry = Registry::Get(&error)) *count = registry->device_count();
    return error;
  });
}

int weir_set_device(int device) {
  return Guarded([&] {
    HeapError error;
    Registry* registry = Registry::Get(&error);
    if (registry == nullptr) return error;
    error = registry->CheckOrdinal(device);
    if (error.ok()) SetThreadDevice(device);
    return error;
  });
}

int weir_get_device(int* device) {
  return Guarded([&] {
    HeapError error;
    if (device == nullptr) return NullArgument("device");
    if (Registry* registry = Registry::Get(&error)) *device = ThreadDevice(*registry);
    return error;
  });
}

int weir_mem_get_info(int device, size_t* free_bytes, size_t* total_bytes) {
  return Guarded([&] {
    HeapError error;
    if (free_bytes == nullptr) return NullArgument("free_bytes");
    if (total_bytes == nullptr) return NullArgument("total_bytes");
    DeviceSlot* slot = SlotOf(device, &error);
    if (slot == nullptr) return error;
    uint64_t free = 0;
    uint64_t total = 0;
    error = slot->With([&](auto& heap) { return heap.MemGetInfo(&free, &total); });
    if (!error.ok()) return error;
    *free_bytes = free;
    *total_bytes = total;
    return error;
  });
}

int weir_would_fit(int device, size_t bytes, weir_stream_t stream, int* fits,
                   size_t* missing_bytes) {
  return Guarded([&] {
    HeapError error;
    if (fits == nullptr) return NullArgument("fits");
    Registry* registry = Registry::Get(&error);
    if (registry == nullptr) return error;
    if (error = registry->CheckOrdinal(device); !error.ok()) return error;
    bool would_fit = false;
    uint64_t missing = 0;
    if (DeviceSlot* slot = registry->ExistingDevice(device)) {
      error = slot->With(
          [&](auto& heap) { return heap.WouldFit(bytes, stream, &would_fit, &missing); });
    } else {
      error = WouldFitUnused(*registry, device, bytes, &would_fit, &missing);
    }
    if (!error.ok()) return error;
    *fits = would_fit ? 1 : 0;
    if (missing_bytes != nullptr) *missing_bytes = missing;
    return error;
  });
}

int weir_stream_destroyed(weir_stream_t stream) {
  if (IsForked()) return WEIR_OK;
  return Guarded([&] {
    HeapError error;
    Registry* registry = Registry::Existing();
    for (int i = 0; registry != nullptr && error.ok() && i < registry->device_count(); ++i) {
      DeviceSlot* slot = registry->ExistingDevice(i);
      if (slot == nullptr) continue;
      error = slot->With([&](auto& heap) { return heap.StreamDestroyed(stream); });
    }
    return error;
  });
}

// ---- Copies ----

int weir_memcpy(void* dst, const void* src, size_t bytes) {
  return Copy(dst, src, bytes, /*stream=*/nullptr, /*wait=*/true);
}

int weir_memset(void* dst, int value, size_t bytes) {
  return Fill(dst, value, bytes, /*stream=*/nullptr, /*wait=*/true);
}

int weir_memcpy_async(void* dst, const void* src, size_t bytes, weir_stream_t stream) {
  return Copy(dst, src, bytes, stream, /*wait=*/false);
}

int weir_memset_async(void* dst, int value, size_t bytes, weir_stream_t stream) {
  return Fill(dst, value, bytes, stream, /*wait=*/false);
}

// ---- Giving memory back ----

int weir_empty_cache(int device) {
  return Guarded([&] { return IfInUse(device, [](auto& heap) { return heap.EmptyCache(); }); });
}

int weir_trim(int device, size_t keep_bytes) {
  return Guarded(
      [&] { return IfInUse(device, [&](auto& heap) { return heap.Trim(keep_bytes); }); });
}

int weir_compact(int device, const weir_compact_options_t* options, weir_compact_result_t* result) {
  return Guarded([&] {
    const weir_compact_options_t all = {.keep_bytes = 0, .max_ms = 0, .merge = 1, .unused_ = {}};
    weir_compact_result_t done = {};
    if (options != nullptr && std::ranges::any_of(options->unused_, std::identity{})) {
      return HeapError(WEIR_ERROR_INVALID_ARGUMENT,
                       "weir_compact: unused_ of the options must be 0; set them to {0} first");
    }
    const HeapError error = IfInUse(device, [&](auto& heap) {
      return heap.Compact(options != nullptr ? *options : all, &done);
    });
    if (result != nullptr) *result = done;
    return error;
  });
}

int weir_set_memory_limit(int device, size_t bytes) {
  return Guarded([&] {
    HeapError error;
    if (DeviceSlot* slot = SlotOf(device, &error)) {
      slot->With([&](auto& heap) { heap.SetMemoryLimit(bytes); });
    }
    return error;
  });
}

// ---- Statistics and checks ----

int weir_get_stats(int device, weir_stats_t* stats) {
  return Guarded([&] {
    if (stats == nullptr) return NullArgument("stats");
    weir_stats_t result = {};
    result.memory_limit = UINT64_MAX;
    HeapError error = IfInUse(device, [&](auto& heap) {
      heap.GetStats(&result);
      return HeapError();
    });
    if (error.ok()) *stats = result;
    return error;
  });
}

int weir_reset_peak_stats(int device) {
  return Guarded([&] {
    return IfInUse(device, [](auto& heap) {
      heap.ResetPeaks();
      return HeapError();
    });
  });
}

int weir_verify(void) {
  return Guarded([&] {
    HeapError error = weir::DeviceHeap::CheckNotObserving();
    Registry* registry = Registry::Existing();
    for (int i = 0; registry != nullptr && error.ok() && i < registry->device_count(); ++i) {
      DeviceSlot* slot = registry->ExistingDevice(i);
      if (slot == nullptr) continue;
      const std::string broken = slot->With([](auto& heap) { return heap.Verify(); });
      if (broken.empty()) continue;
      error = HeapError(WEIR_ERROR_CORRUPT, absl::StrCat("device ", i, ": ", broken));
    }
    return error;
  });
}

const char* weir_last_error(void) { return LastText(); }
weir_status_t weir_last_status(void) { return LastStatus(); }
const char* weir_version(void) { return WEIR_VERSION; }
