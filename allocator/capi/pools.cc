// The C functions about capture pools.
#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/capi/last_error.h"
#include "allocator/capi/thread_device.h"
#include "allocator/pool/device_heap_restore.h"
#include "weir/inspect.h"
#include "weir/weir.h"

namespace weir::capi {
namespace {

// A pool's number says its device: the upper half is the device's number plus one.
constexpr int kDeviceShift = 32;

HeapError NoPools() {
  return {WEIR_ERROR_CONFIGURATION,
          "there are no capture pools in mode:passthrough, where every free goes to the driver"};
}

// Calls fn(heap) with the heap that the pool is of.
template <typename Fn>
int WithPool(weir_pool_t pool, Fn fn) noexcept {
  return Guarded([&]() -> HeapError {
    const Registry* registry = Registry::Existing();
    const uint64_t device = (pool >> kDeviceShift) - 1;  // 0 makes it huge
    DeviceSlot* slot = registry == nullptr || device > INT_MAX
                           ? nullptr
                           : registry->ExistingDevice(static_cast<int>(device));
    if (slot == nullptr) {
      return {WEIR_ERROR_INVALID_ARGUMENT,
              absl::StrCat("0x", absl::Hex(pool), " is no capture pool")};
    }
    return slot->heap == nullptr ? NoPools() : fn(*slot->heap);
  });
}

}  // namespace
}  // namespace weir::capi

using namespace weir::capi;  // NOLINT: the C functions are this file's only content
using weir::DeviceHeap;
using weir::DeviceSlot;
using weir::HeapError;
using weir::IsForked;

int weir_pool_create(int device, weir_pool_t* pool) {
  return weir_pool_create_with(device, nullptr, pool);
}

int weir_pool_create_with(int device, const weir_pool_options_t* options, weir_pool_t* pool) {
  return Guarded([&]() -> HeapError {
    static std::atomic<uint32_t> last{0};
    HeapError error;
    if (pool == nullptr) return {WEIR_ERROR_INVALID_ARGUMENT, "pool is NULL"};
    if (options != nullptr && std::ranges::any_of(options->unused_, std::identity{})) {
      return {WEIR_ERROR_INVALID_ARGUMENT,
              "weir_pool_create_with: unused_ of the options must be 0; set them to {0} first"};
    }
    DeviceSlot* slot = SlotOf(device, &error);
    if (slot == nullptr) return error;
    if (slot->heap == nullptr) return NoPools();
    const weir_pool_t made = (static_cast<uint64_t>(device) + 1) << kDeviceShift | ++last;
    error = slot->heap->CreatePool(made, options == nullptr ? weir_pool_options_t{} : *options);
    if (error.ok()) *pool = made;
    return error;
  });
}

int weir_pool_retain(weir_pool_t pool) {
  return WithPool(pool, [pool](DeviceHeap& heap) { return heap.RetainPool(pool); });
}

int weir_pool_begin(weir_pool_t pool) {
  return WithPool(pool,
                  [pool](DeviceHeap& heap) { return heap.BeginRoute(pool, nullptr, nullptr); });
}

int weir_pool_begin_filter(weir_pool_t pool, weir_pool_filter_t filter, void* user) {
  return WithPool(pool, [=](DeviceHeap& heap) -> HeapError {
    if (filter == nullptr) return {WEIR_ERROR_INVALID_ARGUMENT, "filter is NULL"};
    return heap.BeginRoute(pool, filter, user);
  });
}

int weir_pool_end(weir_pool_t pool) {
  if (IsForked()) return WEIR_OK;
  return WithPool(pool, [pool](DeviceHeap& heap) { return heap.EndRoute(pool); });
}

int weir_pool_set_limit(weir_pool_t pool, size_t bytes) {
  return WithPool(pool, [=](DeviceHeap& heap) { return heap.SetPoolLimit(pool, bytes); });
}

int weir_pool_set_use_on_oom(weir_pool_t pool, int value) {
  return WithPool(pool, [=](DeviceHeap& heap) { return heap.SetPoolUseOnOom(pool, value != 0); });
}

int weir_pool_set_no_split(weir_pool_t pool) {
  return WithPool(pool, [=](DeviceHeap& heap) { return heap.SetPoolNoSplit(pool); });
}

int weir_pool_empty(weir_pool_t pool) {
  return WithPool(pool, [=](DeviceHeap& heap) { return heap.EmptyPool(pool); });
}

int weir_pool_restore(weir_pool_t pool, const weir_block_info* blocks, size_t count) {
  return WithPool(pool, [=](DeviceHeap& heap) -> HeapError {
    if (blocks == nullptr && count > 0) return {WEIR_ERROR_INVALID_ARGUMENT, "blocks is NULL"};
    std::vector<DeviceHeap::PoolRestore::Wanted> wanted;
    wanted.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const weir_block_info& b = blocks[i];
      wanted.push_back({b.address, b.bytes, b.requested_bytes, b.stream});
    }
    return DeviceHeap::PoolRestore(heap, pool).Run(std::move(wanted));
  });
}

int weir_pool_release(weir_pool_t pool) {
  if (IsForked()) return WEIR_OK;
  return WithPool(pool, [pool](DeviceHeap& heap) { return heap.ReleasePool(pool); });
}
