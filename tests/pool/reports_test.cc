// Failures that users of other allocators reported, each as a rule that holds here. More of them
// stand beside what they are about, with [reports].
#include "tests/pool/heap_fixture.h"

namespace weir {

using test::Device;
using test::HeapFixture;

TEST_CASE("a request routed to a pool gets what ordinary memory has idle (pytorch 159674)",
          "[reports]") {
  HeapFixture f(Device(100 * kMiB));
  const CUstream side = f.NewStream();
  const uint64_t a = f.Allocate(80 * kMiB, side);
  f.Write(side, a, 80 * kMiB);
  f.FreeAsync(a, side);
  REQUIRE(f.heap().CreatePool(1).ok());
  REQUIRE(f.heap().BeginRoute(1, nullptr, nullptr).ok());
  const uint64_t b = f.Allocate(90 * kMiB);
  f.Write(nullptr, b, 90 * kMiB);
  REQUIRE(f.heap().EndRoute(1).ok());
  f.FreeAsync(b);
  REQUIRE(f.heap().ReleasePool(1).ok());
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("an emptied cache holds no more than the granules in use (pytorch 46379, 69526)",
          "[reports]") {
  HeapFixture f;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(f.Allocate(5 * kMiB));
  const uint64_t kept = blocks[50];
  for (uint64_t at : blocks) {
    if (at != kept) f.FreeAsync(at);
  }
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(f.Stats().reserved_bytes <= 8 * kMiB);  // 5 MiB touch up to four granules
  REQUIRE(sim::UsedBytes(0) == f.Stats().reserved_bytes);
}

TEST_CASE("idle memory of every stream is used before a request fails (pytorch 110194)",
          "[reports]") {
  const bool vmm = GENERATE(true, false);
  HeapOptions options;
  options.vmm = vmm;
  HeapFixture f(Device(512 * kMiB), options);
  for (int i = 0; i < 8; ++i) {
    const CUstream s = f.NewStream();
    std::vector<uint64_t> blocks;
    for (int j = 0; j < 3; ++j) {
      blocks.push_back(f.Allocate(20 * kMiB, s));
      f.Write(s, blocks.back(), 20 * kMiB);
    }
    for (uint64_t at : blocks) f.FreeAsync(at, s);
  }
  const uint64_t at = f.Allocate(500 * kMiB);
  f.Write(nullptr, at, 500 * kMiB);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("memory that queued work uses is not given back (tensorflow-directml 341)", "[reports]") {
  HeapOptions options;
  options.gc_threshold = 0.1;
  options.release_threshold = 0;
  HeapFixture f(Device(512 * kMiB), options);
  const CUstream s = f.NewStream();
  for (int i = 0; i < 20; ++i) {
    sim::HoldStream(0, s);
    const uint64_t at = f.Allocate((10 + static_cast<uint64_t>(i)) * kMiB, s);
    f.Write(s, at, 10 * kMiB);
    f.FreeAsync(at, s);
    f.Allocate(kMiB, f.NewStream());  // a miss, at whose end memory is given back
    REQUIRE(f.heap().Trim(UINT64_MAX).ok());
    sim::ReleaseStream(0, s);
    f.RequireNoRaces();
  }
  f.RequireValid();
}

TEST_CASE("cheaper rungs come first: complete, idle, borrowed, then waiting (Paddle 79427)",
          "[reports]") {
  HeapFixture f(Device(64 * kMiB));
  const CUstream held = f.NewStream(), done = f.NewStream();
  // Idle and complete: moved. Idle and not complete: only when nothing else is left.
  const uint64_t complete = f.Allocate(20 * kMiB, done);
  const uint64_t pending = f.Allocate(20 * kMiB, held);
  f.Write(done, complete, 512);
  f.Write(held, pending, 512);
  f.FreeAsync(complete, done);
  sim::RunUntilIdle();
  f.Write(held, pending, 512);
  sim::HoldStream(0, held);
  f.FreeAsync(pending, held);
  f.Allocate(40 * kMiB);  // 24 MiB of the device, 16 MiB moved
  REQUIRE(f.Stats().waits == 0);
  REQUIRE(f.Stats().served_waited == 0);
  sim::ReleaseStream(0, held);
  f.Allocate(20 * kMiB);
  f.RequireNoRaces();
}

TEST_CASE("a free part of a larger block serves a smaller request (onnxruntime 14474)",
          "[reports]") {
  HeapFixture f;
  f.FreeAsync(f.Allocate(400 * kMiB));
  const uint64_t before = f.Stats().reserved_bytes;
  for (int i = 0; i < 39; ++i) f.Allocate(static_cast<uint64_t>(10240 - i) * kKiB);
  REQUIRE(f.Stats().reserved_bytes == before);
}

TEST_CASE("memory grows by what is asked, not by powers of two (onnxruntime 15983)", "[reports]") {
  HeapFixture f(Device(20ull * 1024 * kMiB));
  for (int i = 0; i < 17; ++i) f.Allocate(1000 * kMiB);
  const weir_stats_t s = f.Stats();
  REQUIRE(s.reserved_bytes <= s.active_bytes + s.active_bytes / 20);
}

TEST_CASE("sizes that grow leave nothing behind (llama.cpp 22107, 23446)", "[reports]") {
  HeapFixture f(Device(300 * kMiB));
  uint64_t at = f.Allocate(2 * kMiB);
  for (uint64_t mib = 3; mib < 140; ++mib) {
    const uint64_t next = f.Allocate(mib * kMiB);  // both live: at most 2 * 139 MiB
    f.FreeAsync(at);
    at = next;
  }
  REQUIRE(f.Stats().reserved_bytes <= 300 * kMiB);
  f.RequireValid();
}

}  // namespace weir
