// weir/inspect.h: which states blocks have, what a segment is, and what other threads see.
#include <atomic>
#include <random>
#include <thread>

#include "allocator/pool/passthrough_heap.h"
#include "tests/pool/inspect_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/worker.h"

namespace weir {
namespace {

using test::HeapFixture;
using test::Show;
using test::Shown;
using test::ShownSegment;
using test::Worker;

weir_block_info_t Find(HeapFixture& f, uint64_t address) {
  weir_block_info_t block{};
  REQUIRE(f.heap().FindBlock(address, &block, nullptr).ok());
  return block;
}

TEST_CASE("a block is free, allocated or pending, as its caller and its streams say", "[inspect]") {
  HeapFixture f;
  const CUstream s = f.NewStream(), other = f.NewStream();
  for (const uint64_t bytes : {700, 70'000, 700'000, 7'000'000}) {
    INFO(bytes);
    const uint64_t at = f.Allocate(bytes, s);
    weir_block_info_t block = Find(f, at + bytes / 2);
    CHECK(block.address == at);
    CHECK(block.bytes == f.heap().UsableSize(at));
    CHECK(block.requested_bytes == bytes);
    CHECK(block.stream == s);
    CHECK(block.state == WEIR_BLOCK_ALLOCATED);

    f.FreeAsync(at, s);  // into the thread's cache, or as the kept block
    block = Find(f, at);
    CHECK(block.state == WEIR_BLOCK_FREE);
    CHECK(block.requested_bytes == 0);

    REQUIRE(f.Allocate(bytes, s) == at);
    sim::HoldStream(0, other);
    f.Read(other, at, 1);
    REQUIRE(f.heap().RecordUse(at, other).ok());
    CHECK(Find(f, at).state == WEIR_BLOCK_ALLOCATED);
    CHECK(Find(f, at).requested_bytes == bytes);
    f.FreeAsync(at, s);
    block = Find(f, at);
    CHECK(block.state == WEIR_BLOCK_PENDING);
    CHECK(block.requested_bytes == bytes);
    CHECK(block.stream == s);
    sim::ReleaseStream(0, other);
    sim::RunUntilIdle();
    REQUIRE(f.heap().Trim(SIZE_MAX).ok());
    REQUIRE(f.heap().EmptyCache().ok());
    CHECK(f.heap().FindBlock(at, nullptr, nullptr).code == WEIR_ERROR_NOT_OWNED);
  }
  CHECK(f.heap().FindBlock(0x1000, nullptr, nullptr).code == WEIR_ERROR_NOT_OWNED);
}

TEST_CASE("memory of weir_malloc is on any stream", "[inspect]") {
  HeapFixture f;
  const uint64_t small = f.Allocate(700, kAnyStream), large = f.Allocate(700'000, kAnyStream);
  CHECK(Find(f, small).stream == WEIR_ANY_STREAM);
  CHECK(Find(f, large).stream == WEIR_ANY_STREAM);
  const Shown shown = Show(f.heap());
  REQUIRE(shown.size() == 2);
  for (const ShownSegment& s : shown) {
    CHECK(s.info.stream == WEIR_ANY_STREAM);
    CHECK(s.info.is_mapped == 1);
    CHECK(s.info.is_large == (large - s.info.address < s.info.bytes ? 1 : 0));
  }
}

TEST_CASE("handles that touch are one segment, and a hole between them makes two", "[inspect]") {
  HeapOptions options;
  options.max_handle_bytes = 2 * kMiB;
  HeapFixture f({}, options);
  const CUstream s = f.NewStream();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(f.Allocate(4 * kMiB, s));
  REQUIRE(f.Stats().handles == 10);
  Shown shown = Show(f.heap());
  REQUIRE(shown.size() == 1);
  CHECK(shown[0].info.bytes == 20 * kMiB);
  CHECK(shown[0].info.is_large == 1);
  CHECK(shown[0].blocks.size() == 5);

  f.FreeAsync(blocks[2], s);
  REQUIRE(Show(f.heap())[0].blocks.size() == 5);
  REQUIRE(f.heap().EmptyCache().ok());
  shown = Show(f.heap());
  REQUIRE(shown.size() == 2);
  CHECK(shown[0].info.bytes == 8 * kMiB);
  CHECK(shown[1].info.bytes == 8 * kMiB);
  CHECK(shown[0].info.address == blocks[0]);
  CHECK(shown[1].info.address == blocks[3]);
}

TEST_CASE("spares are reserved and in no segment", "[inspect]") {
  HeapFixture f;
  REQUIRE(f.heap().Preallocate(64 * kMiB).ok());
  CHECK(Show(f.heap()).empty());
  f.Allocate(3 * kMiB);
  const Shown shown = Show(f.heap());
  REQUIRE(shown.size() == 1);
  weir_size_stats_t small, large;
  f.heap().GetSizeStats(&small, &large);
  CHECK(large.reserved_bytes == shown[0].info.bytes);
  CHECK(small.reserved_bytes == 0);
  CHECK(small.peak_reserved_bytes == 0);
  CHECK(f.Stats().reserved_bytes == 64 * kMiB);
}

TEST_CASE("what another thread has cached is free", "[inspect]") {
  HeapFixture f;
  const CUstream s = f.NewStream();
  Worker worker;
  std::vector<uint64_t> blocks(300);
  worker.Do([&] {
    HeapError error;
    for (uint64_t& at : blocks) at = f.heap().Allocate(2048, 512, s, &error);
    for (const uint64_t at : blocks) error = f.heap().FreeAsync(at, s);
  });
  const Shown shown = Show(f.heap());
  CHECK(test::WhatIsWrongIn(shown) == "");
  for (const ShownSegment& segment : shown) CHECK(segment.info.active_bytes == 0);
  CHECK(Find(f, blocks.back()).state == WEIR_BLOCK_FREE);
  test::RequireStatsAreShown(f.heap(), shown);
}

TEST_CASE("passthrough shows each block as a segment", "[inspect]") {
  test::SimDevice device{sim::Config{}};
  PassthroughHeap heap(device.Create(0, false), HeapOptions());
  REQUIRE(device.entries().CtxPushCurrent(device.PrimaryContext(0)) == CUDA_SUCCESS);
  CHECK(Show(heap).empty());
  const CUstream s = device.NewStream(0);
  std::map<uint64_t, uint64_t> live;
  for (const uint64_t bytes : {0, 1, 700, 262144, 262145, 5'000'000}) {
    for (const uint64_t alignment : {uint64_t{512}, 2 * kMiB}) {
      HeapError error;
      live[heap.Allocate(bytes, alignment, s, &error)] = bytes;
      INFO(error.text);
      REQUIRE(error.ok());
    }
  }
  for (; !live.empty(); live.erase(live.begin())) {
    const Shown shown = Show(heap);
    CHECK(test::WhatIsWrongIn(shown) == "");
    REQUIRE(shown.size() == live.size());
    test::RequireStatsAreShown(heap, shown);
    for (const ShownSegment& segment : shown) {
      CHECK(segment.info.is_mapped == 0);
      CHECK(segment.info.stream == s);
    }
    for (const auto& [at, bytes] : live) {
      weir_block_info_t block{};
      weir_segment_info_t segment{};
      REQUIRE(heap.FindBlock(at, &block, &segment).ok());
      CHECK(block.address == at);
      CHECK(block.bytes == bytes);
      CHECK(block.requested_bytes == bytes);
      CHECK(block.state == WEIR_BLOCK_ALLOCATED);
      CHECK(segment.is_large == (bytes > 256 * kKiB ? 1 : 0));
    }
    REQUIRE(heap.FreeOrdered(live.begin()->first).ok());
    CHECK(heap.FindBlock(live.begin()->first, nullptr, nullptr).code == WEIR_ERROR_NOT_OWNED);
  }
  CHECK(Show(heap).empty());
}

TEST_CASE("threads allocate and free while others look", "[inspect][threads]") {
  const uint64_t seed = test::Seed();
  HeapFixture f(test::Device(256 * kMiB));
  constexpr size_t kThreads = 3;
  std::vector<CUstream> streams;
  for (size_t t = 0; t < kThreads; ++t) streams.push_back(f.NewStream());
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      if (!f.EnterDevice()) ++wrong;
      std::mt19937_64 random(seed + t);
      std::vector<uint64_t> live;
      while (!done) {
        if (live.size() < 100 && random() % 2 == 0) {
          HeapError error;
          const uint64_t bytes = random() % (uint64_t{1} << (random() % 21));
          const uint64_t at = f.heap().Allocate(bytes, 512, streams[t], &error);
          if (at == 0) ++wrong;
          live.push_back(at);
          // The caller's own block stands still.
          weir_block_info_t block{};
          if (random() % 16 == 0 &&
              (!f.heap().FindBlock(at, &block, nullptr).ok() || block.requested_bytes != bytes ||
               block.state != WEIR_BLOCK_ALLOCATED)) {
            ++wrong;
          }
        } else if (!live.empty()) {
          std::swap(live[random() % live.size()], live.back());
          const HeapError error = random() % 8 == 0
                                      ? f.heap().FreeAsync(live.back(), streams[(t + 1) % kThreads])
                                      : f.heap().FreeOrdered(live.back());
          if (!error.ok()) ++wrong;
          live.pop_back();
        }
      }
      for (const uint64_t at : live) {
        if (!f.heap().FreeOrdered(at).ok()) ++wrong;
      }
    });
  }
  // Some looks at what is in use; the first may come before the threads do.
  std::string broken;
  for (int seen = 0; seen < 50 && broken.empty() && wrong == 0;) {
    const Shown shown = Show(f.heap());
    broken = test::WhatIsWrongIn(shown);
    uint64_t allocated = 0;
    for (const ShownSegment& segment : shown) allocated += segment.info.allocated_bytes;
    if (allocated > 0) ++seen;
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(broken == "");
  CHECK(wrong == 0);
  test::RequireStatsAreShown(f.heap(), Show(f.heap()));
  f.RequireValid();
}

}  // namespace
}  // namespace weir
