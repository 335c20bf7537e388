// The C functions for when memory is short: limits, memory made in advance, callbacks, tags, the
// report of a failure.
#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "allocator/capi/last_error.h"
#include "allocator/capi/thread_device.h"
#include "allocator/pool/memory_callbacks.h"
#include "allocator/pool/tags.h"
#include "weir/weir.h"

using namespace weir::capi;  // NOLINT: the C functions are this file's only content
using weir::DeviceSlot;
using weir::HeapError;
using weir::IsForked;
using weir::MemoryCallbacks;
using weir::Registry;
using weir::Tags;

int weir_set_memory_fraction(int device, double fraction) {
  return Guarded([&]() -> HeapError {
    if (!(fraction > 0 && fraction <= 1)) {
      return {WEIR_ERROR_INVALID_ARGUMENT,
              absl::StrCat("a fraction of ", fraction, ": it must be above 0 and at most 1")};
    }
    HeapError error;
    if (DeviceSlot* slot = SlotOf(device, &error)) {
      const auto total = static_cast<double>(slot->driver().total_bytes());
      slot->With([&](auto& heap) { heap.SetMemoryLimit(static_cast<uint64_t>(fraction * total)); });
    }
    return error;
  });
}

int weir_preallocate(int device, size_t bytes) {
  return Guarded([&]() -> HeapError {
    HeapError error;
    DeviceSlot* slot = SlotOf(device, &error);
    if (slot == nullptr) return error;
    if (slot->heap == nullptr) {
      return {WEIR_ERROR_CONFIGURATION, "nothing can be made in advance in mode:passthrough"};
    }
    return slot->heap->Preallocate(bytes);
  });
}

int weir_add_memory_callback(weir_memory_callback_t callback, void* user) {
  return Guarded([&]() -> HeapError {
    if (callback == nullptr) return {WEIR_ERROR_INVALID_ARGUMENT, "callback is NULL"};
    MemoryCallbacks::Get().Add({callback, user});
    return {};
  });
}

int weir_remove_memory_callback(weir_memory_callback_t callback, void* user) {
  if (IsForked()) return WEIR_OK;
  return Guarded([&]() -> HeapError {
    if (MemoryCallbacks::Get().Remove({callback, user})) return {};
    return {WEIR_ERROR_INVALID_ARGUMENT,
            "this callback was not added with this user pointer, or removed before"};
  });
}

int weir_push_tag(const char* name) {
  return Guarded([&]() -> HeapError {
    if (name == nullptr) return {WEIR_ERROR_INVALID_ARGUMENT, "name is NULL"};
    if (Tags::Push(name)) return {};
    return {WEIR_ERROR_INVALID_ARGUMENT,
            "the process has 65535 different tags: use the same names again"};
  });
}

int weir_pop_tag(void) {
  if (IsForked()) return WEIR_OK;
  return Guarded([&]() -> HeapError {
    if (Tags::Pop()) return {};
    return {WEIR_ERROR_INVALID_ARGUMENT, "the thread has pushed no tag"};
  });
}

size_t weir_oom_report(int device, int format, char* buffer, size_t size) {
  size_t length = 0;
  if (buffer != nullptr && size > 0) buffer[0] = '\0';
  Guarded([&]() -> HeapError {
    HeapError error;
    if (format != WEIR_REPORT_TEXT && format != WEIR_REPORT_JSON) {
      return {WEIR_ERROR_INVALID_ARGUMENT,
              absl::StrCat("there is no format ", format, " of reports")};
    }
    Registry* registry = Registry::Get(&error);
    if (registry == nullptr) return error;
    if (error = registry->CheckOrdinal(device); !error.ok()) return error;
    const DeviceSlot* slot = registry->ExistingDevice(device);
    const auto report =
        slot != nullptr && slot->heap != nullptr ? slot->heap->LastReport() : nullptr;
    if (report == nullptr) return error;
    const std::string text =
        format == WEIR_REPORT_JSON ? weir::OomJson(*report) : weir::OomText(*report);
    length = text.size();
    if (buffer != nullptr && size > 0) {
      const size_t copied = std::min(length, size - 1);
      std::memcpy(buffer, text.data(), copied);
      buffer[copied] = '\0';
    }
    return error;
  });
  return length;
}
