// Many threads on one heap; run under ThreadSanitizer too.
#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "tests/pool/heap_fixture.h"
#include "tests/pool/preset.h"
#include "tests/support/seed.h"

namespace weir {

using test::HeapFixture;

TEST_CASE("threads allocate, free for each other and trim at the same time", "[threads]") {
  const uint64_t seed = test::Seed();
  // No thread gives the device work here, so that granules may be merged.
  const char* conf = GENERATE(values<const char*>({"mode:default", "mode:tight", "mode:serving"}));
  INFO(conf);
  HeapFixture f(test::Device(256 * kMiB), test::OptionsFrom(conf));
  constexpr int kThreads = 4, kSteps = 1000;
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

// What CUB's CachingDeviceAllocator gets wrong: it offers a block before the event that guards it
// is recorded, so that another thread can take it in between.
TEST_CASE("a block is offered to nobody while the marker that guards it is being recorded",
          "[threads]") {
  HeapOptions options;
  options.marker_bytes = 1;  // a free records the marker at once
  options.thread_cache_bytes = 0;
  HeapFixture f({}, options);
  const CUstream owner = f.NewStream(), user = f.NewStream();
  for (uint64_t bytes : {uint64_t{4096}, 4 * kMiB}) {
    const uint64_t p = f.Allocate(bytes, owner);
    f.FreeAsync(f.Allocate(bytes, owner), owner);  // so that the other thread has a hit
    sim::HoldStream(0, user);                      // its work on the block goes on
    f.device().OrderAfter(owner, user);
    f.Write(user, p, bytes);
    uint64_t q = 0;
    sim::OnNextCall("cuEventRecord", [&] {
      std::thread([&] {
        HeapError error;
        q = f.heap().Allocate(bytes, 512, owner, &error);
      }).join();
    });
    f.FreeAsync(p, user);
    REQUIRE(q != 0);
    REQUIRE(q != p);
    f.Write(owner, q, bytes);
    sim::ReleaseStream(0, user);
    f.FreeAsync(q, owner);
  }
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("memory handed out again while a miss asks about it is not taken away", "[threads]") {
  sim::Config config;
  config.memory_bytes = 64 * kMiB;
  HeapFixture f(config);
  const CUstream first = f.NewStream(), second = f.NewStream();
  const uint64_t a = f.Allocate(40 * kMiB, first);
  f.Write(first, a, 40 * kMiB);
  f.FreeAsync(a, first);
  uint64_t again = 0;
  sim::OnNextCall("cuEventRecord", [&] {
    std::thread([&] {
      HeapError error;
      again = f.heap().Allocate(40 * kMiB, 512, first, &error);
    }).join();
  });
  HeapError error;
  const uint64_t b = f.heap().Allocate(40 * kMiB, 512, second, &error);
  REQUIRE(again == a);
  REQUIRE(b == 0);
  REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
  f.Write(first, a, 40 * kMiB);
  f.RequireNoRaces();
  f.RequireValid();
}

// Random programs of several host threads on streams that run in threads of their own.
TEST_CASE("programs of many threads and streams keep contents and order", "[threads]") {
  const uint64_t seed = test::Seed();
  // Merging would need that no thread gives the device work meanwhile.
  const char* conf =
      GENERATE(values<const char*>({"mode:default", "mode:tight,mesh:never", "mode:serving"}));
  INFO(conf);
  sim::Config config = test::Device(128 * kMiB);
  config.executor = sim::Executor::kThreaded;
  HeapFixture f(config, test::OptionsFrom(conf));
  constexpr int kThreads = 4, kSteps = 800;
  std::vector<Stream> streams{nullptr};
  for (int i = 0; i < kThreads; ++i) streams.push_back(f.NewStream());
  struct Passed {
    uint64_t at = 0, bytes = 0;
    Stream stream = nullptr;  // on which it was last used
    uint8_t pattern = 0;
  };
  std::mutex mu;
  std::vector<Passed> shared;  // pieces that pass from thread to thread
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      if (!f.EnterDevice()) ++wrong;
      std::mt19937_64 random(seed + static_cast<uint64_t>(t));
      const auto touch = [&](const Passed& p, bool write) {
        const Passed piece = p;
        const auto result = sim::Launch(piece.stream, write ? "write" : "check",
                                        {{piece.at, 1, write}}, [&wrong, piece, write](auto& view) {
                                          uint8_t value = piece.pattern;
                                          if (write) {
                                            view.Write(piece.at, &value, 1);
                                            return;
                                          }
                                          view.Read(piece.at, &value, 1);
                                          if (value != piece.pattern) ++wrong;
                                        });
        if (result != CUDA_SUCCESS) ++wrong;
      };
      for (int i = 0; i < kSteps; ++i) {
        Passed mine;
        mine.bytes = 1 + random() % (uint64_t{1} << (random() % 23));
        mine.stream = streams[random() % streams.size()];
        mine.pattern = static_cast<uint8_t>(random());
        HeapError error;
        mine.at = f.heap().Allocate(mine.bytes, 512, mine.stream, &error);
        if (mine.at != 0) {
          touch(mine, true);
          const std::lock_guard<std::mutex> lock(mu);
          shared.push_back(mine);
        } else if (error.code != WEIR_ERROR_OUT_OF_MEMORY) {
          ++wrong;
        }
        Passed other;
        {
          const std::lock_guard<std::mutex> lock(mu);
          if (shared.size() < 40 && i + 1 < kSteps) continue;
          if (shared.empty()) continue;
          std::swap(shared[random() % shared.size()], shared.back());
          other = shared.back();
          shared.pop_back();
        }
        const Stream user = streams[random() % streams.size()];
        const bool crosses = user != other.stream && random() % 3 == 0;
        HeapError freed;
        touch(other, false);
        if (crosses) {
          if (!f.device().OrderAfterQuietly(other.stream, user)) ++wrong;
          Passed there = other;
          there.stream = user;
          touch(there, false);
          if (random() % 2 == 0) {
            freed = f.heap().FreeAsync(other.at, user);
          } else {
            if (!f.heap().RecordUse(other.at, user).ok()) ++wrong;
            freed = f.heap().FreeAsync(other.at, other.stream);
          }
        } else {
          freed = random() % 8 == 0 ? f.heap().Free(other.at)
                                    : f.heap().FreeAsync(other.at, other.stream);
        }
        if (!freed.ok()) ++wrong;
        if (random() % 400 == 0 && !f.heap().EmptyCache().ok()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Passed& piece : shared) f.FreeAsync(piece.at, piece.stream);
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(wrong == 0);
  f.RequireNoRaces();
  f.RequireValid();
  REQUIRE(sim::UsedBytes(0) == 0);
}

}  // namespace weir
