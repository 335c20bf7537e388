// Caches under visits of every kind while their threads use them; run under ThreadSanitizer too.
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "tests/pool/heap_fixture.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

using test::HeapFixture;

// Slots through which blocks pass from thread to thread.
using Slots = std::vector<std::atomic<uint64_t>>;

// Allocates and frees until told to stop. Returns how many calls failed.
int UseHeap(DeviceHeap& heap, Slots& slots, Stream own, Stream shared, uint64_t seed,
            const std::atomic<bool>& stop) {
  std::mt19937_64 random(seed);
  int wrong = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    const uint64_t pick = random() % 100;
    const uint64_t bytes = pick < 3    ? 1 + random() % (2 * kMiB)
                           : pick < 20 ? 1 + random() % (256 * kKiB)
                                       : 1 + random() % (uint64_t{1} << (random() % 15));
    const Stream stream = random() % 2 == 0 ? own : shared;
    HeapError error;
    const uint64_t made = heap.Allocate(bytes, 512, stream, &error);
    if (made == 0) {
      wrong += error.code != WEIR_ERROR_OUT_OF_MEMORY;
      continue;
    }
    if (random() % 64 == 0) wrong += !heap.RecordUse(made, own).ok();
    uint64_t at = made;
    if (random() % 4 == 0) at = slots[random() % slots.size()].exchange(made);
    if (at == 0) continue;
    const HeapError freed =
        random() % 64 == 0 ? heap.Free(at) : heap.FreeAsync(at, at == made ? stream : shared);
    wrong += !freed.ok();
  }
  return wrong;
}

TEST_CASE("visitors of every kind and threads that use and end their caches get along",
          "[cache][threads]") {
  const uint64_t seed = test::Seed();
  sim::Config config;
  config.memory_bytes = 256 * kMiB;
  HeapFixture f(config);
  constexpr size_t kThreads = 3;
  std::vector<Stream> streams;
  for (size_t i = 0; i <= kThreads; ++i) streams.push_back(f.NewStream());
  Slots slots(64);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      wrong += UseHeap(f.heap(), slots, streams[t], streams[kThreads], seed + t, stop);
    });
  }
  threads.emplace_back([&] {  // threads that come and go
    for (uint64_t i = 0; !stop; ++i) {
      std::thread([&] {
        std::atomic<bool> stop_soon{false};
        std::thread inner([&] {
          wrong +=
              UseHeap(f.heap(), slots, streams[i % kThreads], nullptr, seed + 100 + i, stop_soon);
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        stop_soon = true;
        inner.join();
      }).join();
    }
  });
  std::mt19937_64 random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(800);
  std::string broken;
  while (std::chrono::steady_clock::now() < end) {
    weir_stats_t s;
    f.heap().GetStats(&s);
    // Of one instant, whatever the threads do meanwhile.
    if (s.requested_bytes > s.allocated_bytes || s.allocated_bytes > s.active_bytes ||
        s.active_bytes > s.reserved_bytes || s.requested_bytes > s.peak_requested_bytes ||
        s.allocated_bytes > s.peak_allocated_bytes || s.active_bytes > s.peak_active_bytes ||
        s.allocations > s.peak_allocations) {
      ++wrong;
    }
    switch (random() % 6) {
      case 0:
        f.heap().ResetPeaks();
        break;
      case 1:
        wrong += !f.heap().EmptyCache().ok();
        break;
      case 2:
        wrong += !f.heap().Trim(random() % (32 * kMiB)).ok();
        break;
      case 3:
        broken = f.heap().Verify();
        break;
      // Another stream gets the handle's value at once.
      case 4:
        wrong += !f.heap().StreamDestroyed(streams[random() % streams.size()]).ok();
        break;
      default:
        break;
    }
    if (!broken.empty()) break;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  REQUIRE(broken.empty());
  REQUIRE(wrong == 0);
  for (auto& slot : slots) {
    if (slot != 0) f.Free(slot);
  }
  REQUIRE(f.heap().EmptyCache().ok());
  f.RequireValid();
  const weir_stats_t s = f.Stats();
  REQUIRE(s.requested_bytes == 0);
  REQUIRE(s.allocated_bytes == 0);
  REQUIRE(s.active_bytes == 0);
  REQUIRE(s.allocations == 0);
  REQUIRE(s.active_blocks == 0);
  REQUIRE(sim::UsedBytes(0) == 0);
}

TEST_CASE("blocks that one thread allocates and another frees do not pile up", "[cache][threads]") {
  HeapFixture f;
  const CUstream s = f.NewStream();
  Slots slots(32);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread consumer([&] {
    while (!stop) {
      for (auto& slot : slots) {
        const uint64_t at = slot.exchange(0);
        if (at != 0) wrong += !f.heap().FreeAsync(at, s).ok();
      }
    }
  });
  // 64 objects of a class are a cache's own; what two threads hold back is bounded by that.
  for (int i = 0; i < 20000; ++i) {
    std::atomic<uint64_t>& slot = slots[static_cast<size_t>(i) % slots.size()];
    while (slot.load() != 0) std::this_thread::yield();
    HeapError error;
    const uint64_t at = f.heap().Allocate(4096, 512, s, &error);
    wrong += at == 0;
    slot = at;
  }
  stop = true;
  consumer.join();
  for (auto& slot : slots) {
    if (slot != 0) f.FreeAsync(slot, s);
  }
  REQUIRE(wrong == 0);
  const weir_stats_t stats = f.Stats();
  REQUIRE(stats.peak_allocations <= 33);
  REQUIRE(stats.peak_reserved_bytes <= 2 * kMiB);
  f.RequireValid();
}

}  // namespace
}  // namespace weir
