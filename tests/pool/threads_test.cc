// Many threads on one heap; run under ThreadSanitizer too.
#include <atomic>
#include <random>
#include <thread>

#include "tests/pool/heap_fixture.h"
#include "tests/support/seed.h"

namespace weir {

using test::HeapFixture;

TEST_CASE("threads allocate, free for each other and trim at the same time", "[threads]") {
  const uint64_t seed = test::Seed();
  sim::Config config;
  config.memory_bytes = 256 * kMiB;
  HeapFixture f(config);
  constexpr int kThreads = 4, kSteps = 2000;
  std::vector<Stream> streams;
  for (int i = 0; i < kThreads; ++i) streams.push_back(f.NewStream());
  // Slots through which blocks pass from thread to thread.
  std::vector<std::atomic<uint64_t>> slots(64);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + static_cast<uint64_t>(t));
      const Stream stream = streams[static_cast<size_t>(t)];
      for (int i = 0; i < kSteps; ++i) {
        const uint64_t bytes = 1 + random() % (uint64_t{1} << (random() % 22));
        HeapError error;
        uint64_t at =
            f.heap().Allocate(bytes, 512, random() % 4 == 0 ? kAnyStream : stream, &error);
        if (at == 0 && error.code != WEIR_ERROR_OUT_OF_MEMORY) ++wrong;
        at = slots[random() % slots.size()].exchange(at);
        if (at != 0) {
          const HeapError freed =
              random() % 2 == 0 ? f.heap().Free(at) : f.heap().FreeAsync(at, stream);
          if (!freed.ok()) ++wrong;
        }
        if (random() % 500 == 0 && !f.heap().Trim(random() % (32 * kMiB)).ok()) ++wrong;
        if (random() % 500 == 0 && !f.heap().Verify().empty()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(wrong == 0);
  for (auto& slot : slots) {
    if (slot != 0) REQUIRE(f.heap().Free(slot).ok());
  }
  REQUIRE(f.heap().EmptyCache().ok());
  f.RequireValid();
  REQUIRE(f.Stats().requested_bytes == 0);
  REQUIRE(sim::UsedBytes(0) == 0);
}

TEST_CASE("a trim never takes memory that is handed out and freed again meanwhile", "[threads]") {
  const uint64_t seed = test::Seed();
  sim::Config config;
  config.memory_bytes = 256 * kMiB;
  HeapFixture f(config);
  std::vector<Stream> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(f.NewStream());
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < streams.size(); ++t) {
    threads.emplace_back([&, t] {
      if (!f.EnterDevice()) ++wrong;
      std::mt19937_64 random(seed + t);
      for (int i = 0; i < 1500; ++i) {
        const uint64_t bytes = kMiB + random() % (8 * kMiB);
        HeapError error;
        const uint64_t at = f.heap().Allocate(bytes, 512, streams[t], &error);
        if (at == 0) continue;
        if (sim::Launch(streams[t], "write", {{at, bytes, true}}) != CUDA_SUCCESS) ++wrong;
        if (!f.heap().FreeAsync(at, streams[t]).ok()) ++wrong;
      }
    });
  }
  std::thread trimmer([&] {
    while (!stop) {
      if (!f.heap().EmptyCache().ok()) ++wrong;
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  trimmer.join();
  REQUIRE(wrong == 0);
  f.RequireNoRaces();
  f.RequireValid();
}

}  // namespace weir
