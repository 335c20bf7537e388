// What tests of thread caches have in common.
#ifndef WEIR_TESTS_POOL_CACHE_HELPERS_H_
#define WEIR_TESTS_POOL_CACHE_HELPERS_H_

#include "allocator/pool/thread_caches.h"
#include "tests/pool/heap_fixture.h"
#include "tests/support/worker.h"

namespace weir::test {

// On both sides of every border between the ways a cache keeps blocks.
inline constexpr uint64_t kCachedSizes[] = {1,     512,       4096,   3 * kKiB,   32 * kKiB,
                                            32769, 33 * kKiB, 100000, 200 * kKiB, 256 * kKiB};

// What the calling thread caches.
inline uint64_t CachedBytes(const DeviceHeap& heap, Stream stream) {
  const ThreadCache* cache = ThreadCaches::Find(&heap, stream);
  return cache == nullptr ? 0 : cache->cached_bytes();
}

// From any thread: 0 if the heap has none.
inline uint64_t AllocateIn(Worker& worker, DeviceHeap& heap, uint64_t bytes, Stream stream) {
  uint64_t at = 0;
  worker.Do([&] {
    HeapError error;
    at = heap.Allocate(bytes, kBlockAlignment, stream, &error);
  });
  return at;
}
inline weir_status_t FreeIn(Worker& worker, DeviceHeap& heap, uint64_t at, Stream stream) {
  weir_status_t code = WEIR_OK;
  worker.Do([&] { code = heap.FreeAsync(at, stream).code; });
  return code;
}
inline uint64_t CachedIn(Worker& worker, const DeviceHeap& heap, Stream stream) {
  uint64_t bytes = 0;
  worker.Do([&] { bytes = CachedBytes(heap, stream); });
  return bytes;
}

}  // namespace weir::test

#endif  // WEIR_TESTS_POOL_CACHE_HELPERS_H_
