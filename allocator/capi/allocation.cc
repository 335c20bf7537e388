// The C functions that allocate and free. Each checks its arguments, finds the device's heap and
// calls it; what they mean stands in weir/weir.h.
#include <cstdint>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "allocator/base/bytes.h"
#include "allocator/block/block.h"
#include "allocator/capi/last_error.h"
#include "allocator/capi/thread_device.h"
#include "allocator/pool/thread_caches.h"
#include "weir/weir.h"

namespace weir::capi {
namespace {

constexpr uint64_t kMaxAlignment = 2 * kMiB;

uint64_t AddressOf(const void* ptr) { return reinterpret_cast<uintptr_t>(ptr); }
void* PointerOf(uint64_t address) { return reinterpret_cast<void*>(address); }

HeapError CheckAlignment(uint64_t alignment) {
  if (IsPowerOfTwo(alignment) && alignment <= kMaxAlignment) return {};
  return {WEIR_ERROR_INVALID_ARGUMENT,
          absl::StrCat("alignment ", alignment, " is not a power of two of at most 2 MiB")};
}

// `find` gives the slot.
template <typename Find>
void* Allocate(size_t bytes, uint64_t alignment, Stream stream, Find find) noexcept {
  void* result = nullptr;
  Guarded([&] {
    HeapError error;
    if (alignment != kBlockAlignment) error = CheckAlignment(alignment);
    if (!error.ok()) return error;
    DeviceSlot* slot = find(&error);
    if (slot == nullptr) return error;
    const uint64_t address =
        slot->With([&](auto& heap) { return heap.Allocate(bytes, alignment, stream, &error); });
    result = PointerOf(address);
    return error;
  });
  return result;
}

[[gnu::noinline]] void* AllocateOnThread(size_t bytes, uint64_t alignment, Stream stream) noexcept {
  return Allocate(bytes, alignment, stream, &ThreadSlot);
}
void* AllocateOn(int device, size_t bytes, uint64_t alignment, Stream stream) noexcept {
  return Allocate(bytes, alignment, stream,
                  [device](HeapError* error) { return SlotOf(device, error); });
}

// What a cache does not serve; the thread's cache leads to the heap faster than the registry. Not
// inline, so that hits have no stack frame.
[[gnu::noinline]] void* AllocateFromHeap(ThreadCache* cache, size_t bytes, int device,
                                         Stream stream) noexcept {
  DeviceHeap* heap = cache != nullptr ? cache->heap() : nullptr;
  if (heap == nullptr || heap->driver().ordinal() != device) {
    return AllocateOn(device, bytes, kBlockAlignment, stream);
  }
  uint64_t address = 0;
  Guarded([&] {
    HeapError error;
    address = heap->Allocate(bytes, kBlockAlignment, stream, &error);
    return error;
  });
  return PointerOf(address);
}

// Calls fn(heap) with the heap that owns a pointer. For frees and what prepares them.
template <typename Fn>
int WithOwner(const void* ptr, Fn fn) noexcept {
  if (IsForked()) return WEIR_OK;
  return Guarded([&] {
    HeapError error;
    DeviceSlot* slot = OwnerOf(ptr, &error);
    return slot == nullptr ? error : slot->With(fn);
  });
}

// free(heap) frees the block.
template <typename Free>
[[gnu::noinline]] int FreeIntoHeap(const ThreadCache* cache, const void* ptr, Free free) noexcept {
  DeviceHeap* heap = cache != nullptr ? cache->heap() : nullptr;
  if (heap == nullptr || !heap->MayOwn(AddressOf(ptr))) return WithOwner(ptr, free);
  return Guarded([&] { return free(*heap); });
}

}  // namespace
}  // namespace weir::capi

using namespace weir::capi;  // NOLINT: the C functions are this file's only content
using weir::Block;
using weir::DeviceHeap;
using weir::HeapError;
using weir::kAnyStream;
using weir::kBlockAlignment;
using weir::PointerIndex;
using weir::ThreadCache;
using weir::ThreadCaches;

void* weir_malloc(size_t bytes) { return AllocateOnThread(bytes, kBlockAlignment, kAnyStream); }

void* weir_malloc_device(size_t bytes, int device) {
  return AllocateOn(device, bytes, kBlockAlignment, kAnyStream);
}

void* weir_aligned_alloc(size_t alignment, size_t bytes) {
  return AllocateOnThread(bytes, alignment, kAnyStream);
}

void* weir_aligned_alloc_device(size_t alignment, size_t bytes, int device) {
  return AllocateOn(device, bytes, alignment, kAnyStream);
}

void* weir_malloc_async(size_t bytes, weir_stream_t stream) {
  // A hit needs neither the registry nor, for small blocks, the heap.
  ThreadCache* cache = ThreadCaches::last();
  if (bytes <= ThreadCache::kMaxBytes && cache != nullptr) {
    const uint64_t address = cache->TryAllocate(bytes, stream, thread_device);
    if (address != 0) return PointerOf(address);
  }
  if (thread_device == kDeviceUnset) return AllocateOnThread(bytes, kBlockAlignment, stream);
  return AllocateFromHeap(cache, bytes, thread_device, stream);
}

void* weir_malloc_async_device(size_t bytes, int device, weir_stream_t stream) {
  ThreadCache* cache = ThreadCaches::last();
  if (bytes <= ThreadCache::kMaxBytes && cache != nullptr) {
    const uint64_t address = cache->TryAllocate(bytes, stream, device);
    if (address != 0) return PointerOf(address);
  }
  return AllocateFromHeap(cache, bytes, device, stream);
}

void* weir_malloc_padded_async_device(size_t bytes, size_t padded, int device,
                                      weir_stream_t stream) {
  void* result = nullptr;
  Guarded([&]() -> HeapError {
    if (padded < bytes || padded - bytes > bytes) {
      return {WEIR_ERROR_INVALID_ARGUMENT,
              absl::StrCat("padded is ", padded, " for ", bytes,
                           " bytes; it can be from bytes up to 2 * bytes")};
    }
    HeapError error;
    weir::DeviceSlot* slot = SlotOf(device, &error);
    if (slot == nullptr) return error;
    result = PointerOf(slot->With(
        [&](auto& heap) { return heap.Allocate(bytes, kBlockAlignment, stream, &error, padded); }));
    return error;
  });
  return result;
}

void* weir_aligned_alloc_async(size_t alignment, size_t bytes, weir_stream_t stream) {
  return AllocateOnThread(bytes, alignment, stream);
}

void* weir_aligned_alloc_async_device(size_t alignment, size_t bytes, int device,
                                      weir_stream_t stream) {
  return AllocateOn(device, bytes, alignment, stream);
}

void* weir_calloc(size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    SetLast(WEIR_ERROR_OUT_OF_MEMORY, "count * size is more than any device has");
    return nullptr;
  }
  void* ptr = weir_malloc(bytes);
  if (ptr == nullptr || weir_memset(ptr, 0, bytes) == WEIR_OK) return ptr;
  // The memset's failure is the one to report.
  const weir_status_t status = LastStatus();
  char text[512];
  std::snprintf(text, sizeof(text), "%s", LastText());
  weir_free(ptr);
  SetLast(status, text);
  return nullptr;
}

int weir_free(void* ptr) {
  if (ptr == nullptr) return WEIR_OK;
  return WithOwner(ptr, [ptr](auto& heap) { return heap.Free(AddressOf(ptr)); });
}

int weir_free_async(void* ptr, weir_stream_t stream) {
  if (ptr == nullptr) return WEIR_OK;
  ThreadCache* cache = ThreadCaches::last();
  Block* block = PointerIndex::Get().Find(AddressOf(ptr));
  if (block != nullptr && block->bytes <= ThreadCache::kMaxBytes && cache != nullptr &&
      cache->TryFree(block, AddressOf(ptr), stream)) {
    return WEIR_OK;
  }
  return FreeIntoHeap(cache, ptr,
                      [ptr, stream](auto& heap) { return heap.FreeAsync(AddressOf(ptr), stream); });
}

int weir_free_ordered(void* ptr) {
  if (ptr == nullptr) return WEIR_OK;
  ThreadCache* cache = ThreadCaches::last();
  Block* block = PointerIndex::Get().Find(AddressOf(ptr));
  if (block != nullptr && block->bytes <= ThreadCache::kMaxBytes && cache != nullptr &&
      cache->TryFreeOrdered(block, AddressOf(ptr))) {
    return WEIR_OK;
  }
  return FreeIntoHeap(cache, ptr, [ptr](auto& heap) { return heap.FreeOrdered(AddressOf(ptr)); });
}

int weir_record_use(void* ptr, weir_stream_t stream) {
  return WithOwner(ptr,
                   [ptr, stream](auto& heap) { return heap.RecordUse(AddressOf(ptr), stream); });
}

size_t weir_usable_size(const void* ptr) {
  if (ptr == nullptr || weir::IsForked()) return 0;
  size_t bytes = 0;
  // Not a failure: a pointer that is not Weir's has no usable bytes.
  weir::Registry* registry = weir::Registry::Existing();
  if (registry == nullptr) return 0;
  if (weir::DeviceSlot* slot = registry->OwnerOf(AddressOf(ptr))) {
    bytes = slot->With([ptr](auto& heap) { return heap.UsableSize(AddressOf(ptr)); });
  }
  return bytes;
}
