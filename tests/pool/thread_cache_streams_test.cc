// Thread caches of special and of destroyed streams, of several devices, of heaps that are gone.
#include <memory>
#include <set>

#include "tests/pool/cache_helpers.h"

namespace weir {
namespace {

using namespace test;  // NOLINT: the fixture and the helpers

const Stream kLegacy = reinterpret_cast<Stream>(uintptr_t{1});
const Stream kPerThread = reinterpret_cast<Stream>(uintptr_t{2});

TEST_CASE("a destroyed stream's cached memory waits for the context, also from its successor",
          "[cache][order]") {
  HeapFixture f;
  const CUstream s = f.NewStream();
  Worker worker;
  for (uint64_t bytes : kCachedSizes) {
    INFO(bytes);
    sim::HoldStream(0, s);
    std::set<uint64_t> before;
    for (Worker* thread : {static_cast<Worker*>(nullptr), &worker}) {
      const uint64_t at =
          thread == nullptr ? f.Allocate(bytes, s) : AllocateIn(*thread, f.heap(), bytes, s);
      f.Write(s, at, bytes);
      before.insert(at);
    }
    f.FreeAsync(*before.begin(), s);
    REQUIRE(FreeIn(worker, f.heap(), *before.rbegin(), s) == WEIR_OK);
    REQUIRE(f.heap().StreamDestroyed(s).ok());
    REQUIRE(CachedBytes(f.heap(), s) == 0);
    REQUIRE(CachedIn(worker, f.heap(), s) == 0);
    // A handle of the same value is another stream for the heap.
    for (int i = 0; i < 70; ++i) {
      REQUIRE(before.count(f.Allocate(bytes, s)) == 0);
      REQUIRE(before.count(AllocateIn(worker, f.heap(), bytes, s)) == 0);
    }
    f.RequireValid();
    sim::ReleaseStream(0, s);
    sim::RunUntilIdle();
  }
}

TEST_CASE("each thread has its own per-thread default stream", "[cache][order]") {
  HeapFixture f;
  Worker worker;
  for (uint64_t bytes : kCachedSizes) {
    INFO(bytes);
    const uint64_t a = f.Allocate(bytes, kPerThread);
    f.FreeAsync(a, kPerThread);
    const uint64_t b = AllocateIn(worker, f.heap(), bytes, kPerThread);
    REQUIRE(b != a);
    REQUIRE(f.Allocate(bytes, kPerThread) == a);
    const uint64_t deferred = f.Stats().deferred_frees;
    REQUIRE(FreeIn(worker, f.heap(), a, kPerThread) == WEIR_OK);
    REQUIRE(f.Stats().deferred_frees == deferred + 1);
    f.FreeAsync(b, kPerThread);
    REQUIRE(f.Stats().deferred_frees == deferred + 2);
    f.RequireValid();
  }
}

TEST_CASE("the two names of the legacy stream are one stream", "[cache]") {
  HeapFixture f;
  for (uint64_t bytes : kCachedSizes) {
    const uint64_t a = f.Allocate(bytes, kLegacy);
    f.FreeAsync(a, nullptr);
    REQUIRE(f.Allocate(bytes, nullptr) == a);
    f.FreeAsync(a, kLegacy);
    REQUIRE(f.Allocate(bytes, kLegacy) == a);
  }
  REQUIRE(f.Stats().deferred_frees == 0);
}

TEST_CASE("the default stream of one device is not that of another", "[cache]") {
  sim::Config config;
  config.devices = 2;
  HeapFixture f(config);
  HeapError error;
  const std::unique_ptr<DeviceHeap> second =
      DeviceHeap::Create(f.device().Create(1), HeapOptions(), &error);
  REQUIRE(second != nullptr);
  for (int round = 0; round < 3; ++round) {
    for (uint64_t bytes : kCachedSizes) {
      for (DeviceHeap* heap : {&f.heap(), second.get()}) {
        const uint64_t at = heap->Allocate(bytes, 512, nullptr, &error);
        REQUIRE(heap->MayOwn(at));
        REQUIRE(heap->FreeAsync(at, nullptr).ok());
        REQUIRE(heap->Allocate(bytes, 512, nullptr, &error) == at);
        REQUIRE(heap->FreeAsync(at, nullptr).ok());
      }
    }
  }
  REQUIRE(f.Stats().allocations == 0);
  f.RequireValid();
  REQUIRE(second->Verify().empty());
  REQUIRE(second->EmptyCache().ok());
}

TEST_CASE("a thread's caches outlive their heap, and serve one at the same address", "[cache]") {
  test::SimDevice device;
  auto survivor = std::make_unique<Worker>();
  for (int round = 0; round < 4; ++round) {
    HeapError error;
    std::unique_ptr<DeviceHeap> heap = DeviceHeap::Create(device.Create(0), HeapOptions(), &error);
    REQUIRE(heap != nullptr);
    Worker ends_after_heap;
    for (Worker* worker : {survivor.get(), &ends_after_heap}) {
      for (uint64_t bytes : kCachedSizes) {
        const uint64_t at = AllocateIn(*worker, *heap, bytes, nullptr);
        REQUIRE(heap->MayOwn(at));
        REQUIRE(FreeIn(*worker, *heap, at, nullptr) == WEIR_OK);
        REQUIRE(AllocateIn(*worker, *heap, bytes, nullptr) == at);
        REQUIRE(FreeIn(*worker, *heap, at, nullptr) == WEIR_OK);
      }
    }
    REQUIRE(heap->Verify().empty());
    if (round == 3) survivor.reset();
    REQUIRE(heap->EmptyCache().ok());
    heap.reset();
  }
}

TEST_CASE("a heap forgets the caches of ended threads, whoever has the records next", "[cache]") {
  sim::Config config;
  config.devices = 2;
  HeapFixture f(config);
  HeapError error;
  const std::unique_ptr<DeviceHeap> second =
      DeviceHeap::Create(f.device().Create(1), HeapOptions(), &error);
  REQUIRE(second != nullptr);
  for (DeviceHeap* heap : {&f.heap(), second.get()}) {
    Worker worker;  // the second has the record of the first
    const uint64_t at = AllocateIn(worker, *heap, 4096, nullptr);
    REQUIRE(FreeIn(worker, *heap, at, nullptr) == WEIR_OK);
    const uint64_t cached = CachedIn(worker, *heap, nullptr);
    REQUIRE(cached > 0);
    if (heap == second.get()) {
      REQUIRE(f.heap().EmptyCache().ok());
      f.RequireValid();
      REQUIRE(CachedIn(worker, *heap, nullptr) == cached);
    }
  }
  REQUIRE(second->Verify().empty());
}

}  // namespace
}  // namespace weir
