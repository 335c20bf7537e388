// The C functions of weir/inspect.h.
#include "weir/inspect.h"

#include "allocator/capi/last_error.h"
#include "allocator/capi/thread_device.h"
#include "allocator/pool/inspection.h"

using namespace weir::capi;  // NOLINT: the C functions are this file's only content
using weir::DeviceSlot;
using weir::HeapError;

int weir_visit_segments(int device, weir_segment_visitor_t visit, void* user) {
  return Guarded([&] {
    if (visit == nullptr) return NullArgument("visit");
    weir::Inspection inspection;
    const HeapError error = IfInUse(device, [&](auto& heap) { return heap.Inspect(&inspection); });
    if (error.ok()) inspection.Visit(visit, user);
    return error;
  });
}

int weir_find_block(const void* ptr, weir_block_info_t* block, weir_segment_info_t* segment) {
  return Guarded([&] {
    HeapError error;
    DeviceSlot* slot = OwnerOf(ptr, &error);
    if (slot == nullptr) return error;
    const auto address = reinterpret_cast<uintptr_t>(ptr);
    return slot->With([&](auto& heap) { return heap.FindBlock(address, block, segment); });
  });
}

int weir_get_size_stats(int device, weir_size_stats_t* small, weir_size_stats_t* large) {
  return Guarded([&] {
    if (small == nullptr) return NullArgument("small");
    if (large == nullptr) return NullArgument("large");
    weir_size_stats_t of_small = {}, of_large = {};
    const HeapError error = IfInUse(device, [&](auto& heap) {
      heap.GetSizeStats(&of_small, &of_large);
      return HeapError();
    });
    if (error.ok()) {
      *small = of_small;
      *large = of_large;
    }
    return error;
  });
}
