// When memory may be used again: the rules of stream order, proved by the happens-before checker.
#include "tests/pool/heap_fixture.h"

namespace weir {

using test::HeapFixture;

TEST_CASE("memory freed on its stream is reused there at once, in stream order", "[order]") {
  HeapFixture f;
  const CUstream s = f.NewStream();
  sim::HoldStream(0, s);  // the device is far behind
  for (uint64_t bytes : {uint64_t{2000}, 4 * kMiB}) {
    const uint64_t a = f.Allocate(bytes, s);
    f.Write(s, a, bytes);
    f.FreeAsync(a, s);
    REQUIRE(f.Allocate(bytes, s) == a);
    f.Write(s, a, bytes);
  }
  sim::ReleaseStream(0, s);
  f.RequireNoRaces();
}

TEST_CASE("memory freed on another stream is not reused before that stream has got there",
          "[order][reports]") {  // CUDA.jl 780
  HeapFixture f;
  const CUstream owner = f.NewStream(), other = f.NewStream();
  for (uint64_t bytes : {uint64_t{2000}, 4 * kMiB}) {
    const uint64_t a = f.Allocate(bytes, owner);
    sim::HoldStream(0, other);
    f.Write(other, a, bytes);
    f.FreeAsync(a, other);
    for (int i = 0; i < 100; ++i) REQUIRE(f.Allocate(bytes, owner) != a);
    sim::ReleaseStream(0, other);
    sim::RunUntilIdle();
    bool reused = false;
    // Markers are looked at when the stream's own memory is used up, not before.
    for (int i = 0; i < 2000 && !reused; ++i) {
      const uint64_t b = f.Allocate(bytes, owner);
      f.Write(owner, b, bytes);
      reused = b == a;
    }
    REQUIRE(reused);
  }
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a recorded use delays reuse until the use stream has got there", "[order]") {
  HeapFixture f;
  const CUstream owner = f.NewStream(), user = f.NewStream();
  const uint64_t a = f.Allocate(4 * kMiB, owner);
  sim::HoldStream(0, user);
  f.Read(user, a, 4 * kMiB);
  REQUIRE(f.heap().RecordUse(a, user).ok());
  REQUIRE(f.heap().RecordUse(a, user).ok());  // twice is once
  f.FreeAsync(a, owner);
  const uint64_t b = f.Allocate(4 * kMiB, owner);
  REQUIRE(b != a);
  f.Write(owner, b, 4 * kMiB);
  sim::ReleaseStream(0, user);
  sim::RunUntilIdle();
  const uint64_t c = f.Allocate(4 * kMiB, owner);
  REQUIRE(c == a);
  f.Write(owner, c, 4 * kMiB);
  f.RequireNoRaces();
}

TEST_CASE("weir_free waits for every stream, also those Weir has never seen", "[order]") {
  HeapFixture f;
  const CUstream unseen = f.NewStream();
  const uint64_t a = f.Allocate(4 * kMiB, kAnyStream);
  sim::HoldStream(0, unseen);
  f.Write(unseen, a, 4 * kMiB);
  f.Free(a);
  const uint64_t b = f.Allocate(4 * kMiB, kAnyStream);
  REQUIRE(b != a);
  f.Write(nullptr, b, 4 * kMiB);
  sim::ReleaseStream(0, unseen);
  sim::RunUntilIdle();
  const uint64_t c = f.Allocate(4 * kMiB, kAnyStream);
  REQUIRE(c == a);
  f.Write(f.NewStream(), c, 4 * kMiB);
  f.RequireNoRaces();
}

TEST_CASE("context markers are batched: many frees, one event", "[order]") {
  HeapFixture f;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(f.Allocate(600, kAnyStream));
  sim::ResetCallCounts();
  for (uint64_t at : blocks) f.Free(at);
  for (int i = 0; i < 2000; ++i) f.Allocate(600, kAnyStream);
  REQUIRE(sim::CallCount("cuCtxRecordEvent") == 1);
}

TEST_CASE("idle memory of one stream serves another only when its work is complete", "[order]") {
  sim::Config config;
  config.memory_bytes = 64 * kMiB;
  HeapFixture f(config);
  const CUstream first = f.NewStream(), second = f.NewStream();
  const uint64_t a = f.Allocate(40 * kMiB, first);
  f.Write(first, a, 40 * kMiB);
  f.FreeAsync(a, first);
  // Not enough is left, so the second stream gets the first one's memory, by whatever way.
  const uint64_t b = f.Allocate(40 * kMiB, second);
  f.Write(second, b, 40 * kMiB);
  const weir_stats_t s = f.Stats();
  REQUIRE(s.remapped_bytes + s.borrowed_blocks > 0);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a handle is not moved while the newest free in it is incomplete", "[order]") {
  // Two blocks share a handle. The first is freed early and kept; the second is freed later, behind
  // a recorded use, so that it is coalesced before the kept one.
  sim::Config config;
  config.memory_bytes = 64 * kMiB;
  HeapFixture f(config);
  const CUstream s = f.NewStream(), user = f.NewStream(), other = f.NewStream();
  const uint64_t a = f.Allocate(kMiB, s), b = f.Allocate(kMiB, s), c = f.Allocate(kMiB, other);
  f.FreeAsync(a, s);
  f.FreeAsync(c, s);             // deferred: the next miss closes the epoch of a's free
  f.Allocate(52 * kMiB, other);  // 8 MiB are left
  sim::RunUntilIdle();
  f.Allocate(kMiB, other);
  sim::HoldStream(0, s);
  f.Write(s, b, kMiB, "late writer");
  REQUIRE(f.heap().RecordUse(b, user).ok());
  f.FreeAsync(b, s);
  HeapError error;
  // Only with the handle of a and b this fits; waiting for it never ends while s is held.
  REQUIRE(f.heap().Allocate(10 * kMiB, 512, other, &error) == 0);
  sim::ReleaseStream(0, s);
  f.RequireNoUnorderedAccess();
  f.RequireValid();
}

TEST_CASE("the host does not wait while new memory can be made", "[order]") {
  HeapFixture f;
  const CUstream busy = f.NewStream(), other = f.NewStream();
  const uint64_t a = f.Allocate(300 * kMiB, busy);
  sim::HoldStream(0, busy);
  f.Write(busy, a, 300 * kMiB);
  f.FreeAsync(a, busy);
  f.Allocate(300 * kMiB, other);  // beyond the soft limit, with 300 MiB idle and incomplete
  REQUIRE(f.Stats().waits == 0);
  sim::ReleaseStream(0, busy);
  f.RequireNoRaces();
}

TEST_CASE("a stream destroyed without a word costs its memory nothing but a context marker",
          "[order]") {
  sim::Config config;
  config.memory_bytes = 256 * kMiB;
  HeapFixture f(config);
  const CUstream dying = f.NewStream(), other = f.NewStream();
  f.FreeAsync(f.Allocate(200 * kMiB, dying), dying);
  f.device().DestroyStream(dying);
  f.Allocate(200 * kMiB, other);
  REQUIRE(f.heap().driver().has_vmm());
  f.RequireValid();
}

TEST_CASE("a capture keeps a trim from what needs proof, and from nothing else",
          "[order][capture]") {
  HeapFixture f;
  const CUstream s = f.NewStream(), other = f.NewStream();
  const uint64_t a = f.Allocate(100 * kMiB, other);
  const uint64_t any = f.Allocate(8 * kMiB, kAnyStream);
  f.FreeAsync(a, other);
  f.device().BeginCapture(s);
  f.FreeAsync(f.Allocate(kMiB, s), s);
  f.Free(any);
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(f.Stats().reserved_bytes <= 20 * kMiB);
  REQUIRE(f.device().CaptureSurvives(s));
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(f.Stats().reserved_bytes == 0);
}

TEST_CASE("a program that does not tell of a use is caught by the checker", "[order]") {
  HeapFixture f;
  const CUstream owner = f.NewStream(), user = f.NewStream();
  const uint64_t a = f.Allocate(4 * kMiB, owner);
  sim::HoldStream(0, user);
  f.Read(user, a, 4 * kMiB, "forgotten read");
  f.FreeAsync(a, owner);  // no RecordUse: reuse without a marker
  REQUIRE(f.Allocate(4 * kMiB, owner) == a);
  f.Write(owner, a, 4 * kMiB, "next owner's write");
  sim::ReleaseStream(0, user);
  sim::RunUntilIdle();
  REQUIRE(sim::CheckerReports().size() == 1);
  const std::string text = sim::CheckerReports()[0].text;
  REQUIRE(text.find("forgotten read") != std::string::npos);
  REQUIRE(text.find("next owner's write") != std::string::npos);
}

TEST_CASE("the memory of a destroyed stream is proved complete through the context (cuml 2632)",
          "[order][reports]") {
  sim::Config config;
  config.memory_bytes = 64 * kMiB;
  HeapFixture f(config);
  const CUstream dying = f.NewStream(), other = f.NewStream();
  const uint64_t a = f.Allocate(40 * kMiB, dying);
  f.Write(dying, a, 40 * kMiB);
  f.FreeAsync(a, dying);
  REQUIRE(f.heap().StreamDestroyed(dying).ok());
  f.device().DestroyStream(dying);
  const uint64_t b = f.Allocate(40 * kMiB, other);
  f.Write(other, b, 40 * kMiB);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a miss does not disturb a stream capture", "[order][capture]") {
  HeapFixture f;
  const CUstream s = f.NewStream(), other = f.NewStream();
  f.FreeAsync(f.Allocate(4 * kMiB, other), s);
  f.Free(f.Allocate(4 * kMiB, kAnyStream));  // wants a context marker, which a capture forbids
  f.device().BeginCapture(s);
  f.Allocate(4 * kMiB, kAnyStream);
  const uint64_t a = f.Allocate(16 * kMiB, other);
  f.FreeAsync(a, s);
  f.Allocate(17 * kMiB, s);
  f.heap().EmptyCache().ok();
  REQUIRE(f.device().CaptureSurvives(s));
  REQUIRE(f.heap().EmptyCache().ok());
}

TEST_CASE("under capture a miss uses what needs no proof, and does not fail for want of one",
          "[order][capture]") {
  sim::Config config;
  config.memory_bytes = 200 * kMiB;
  HeapFixture f(config);
  const CUstream s = f.NewStream(), other = f.NewStream();
  const uint64_t a = f.Allocate(100 * kMiB, other);
  sim::HoldStream(0, other);
  f.Write(other, a, 100 * kMiB);
  f.FreeAsync(a, other);  // idle, but nothing may prove it complete
  f.device().BeginCapture(s);
  f.Allocate(90 * kMiB, s);
  REQUIRE(f.device().CaptureSurvives(s));
  sim::ReleaseStream(0, other);
  f.RequireNoRaces();
}

TEST_CASE("streams of different priorities are streams like any other", "[order]") {
  sim::Config config;
  config.memory_bytes = 64 * kMiB;
  HeapFixture f(config);
  CUstream urgent = nullptr, patient = nullptr;
  const auto create =
      f.device().Find<PFN_cuStreamCreateWithPriority_v5050>("cuStreamCreateWithPriority", 5050);
  REQUIRE(create(&urgent, CU_STREAM_NON_BLOCKING, -5) == CUDA_SUCCESS);
  REQUIRE(create(&patient, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS);
  for (int i = 0; i < 20; ++i) {
    const CUstream first = i % 2 == 0 ? urgent : patient, second = i % 2 == 0 ? patient : urgent;
    const uint64_t large = f.Allocate(40 * kMiB, first), small = f.Allocate(3000, first);
    f.Write(first, large, 40 * kMiB);
    f.Write(first, small, 3000);
    f.device().OrderAfter(first, second);
    f.Read(second, large, 40 * kMiB);
    f.FreeAsync(large, second);
    f.FreeAsync(small, first);
  }
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a marker that could not be recorded is recorded when it is needed again", "[order]") {
  HeapFixture f;
  const CUstream s = f.NewStream(), user = f.NewStream();
  f.Allocate(700, user);
  f.FreeAsync(f.Allocate(8 * kMiB, s), user);
  sim::Fault fault;
  fault.entry = "cuEventRecord";
  fault.nth = 1;
  fault.result = CUDA_ERROR_UNKNOWN;
  sim::InjectFault(fault);
  HeapError error;
  f.heap().Allocate(8 * kMiB, 512, s, &error);
  sim::ClearFaults();
  for (int i = 0; i < 3; ++i) {
    f.Allocate(8 * kMiB, s);
    sim::RunUntilIdle();
  }
  const weir_stats_t stats = f.Stats();
  REQUIRE(stats.active_bytes == stats.allocated_bytes);  // nothing waits any more
}

}  // namespace weir
