// What a miss tries before it fails: waiting for as little as possible, callbacks, limits.
#include <functional>

#include "allocator/pool/memory_callbacks.h"
#include "tests/pool/heap_fixture.h"

namespace weir {
namespace {

using test::Device;
using test::HeapFixture;

HeapError TryAllocate(HeapFixture& f, uint64_t bytes, Stream stream, uint64_t* at) {
  HeapError error;
  *at = f.heap().Allocate(bytes, kBlockAlignment, stream, &error);
  return error;
}

// A function of the test as a callback, for a scope.
class Callback {
 public:
  using Function = std::function<size_t(uint64_t bytes_needed)>;
  explicit Callback(Function function) : function_(std::move(function)) {
    MemoryCallbacks::Get().Add({&Call, this});
  }
  ~Callback() { MemoryCallbacks::Get().Remove({&Call, this}); }
  int calls() const { return calls_; }

 private:
  static size_t Call(int device, size_t bytes_needed, void* user) {
    auto* self = static_cast<Callback*>(user);
    ++self->calls_;
    return device == 0 ? self->function_(bytes_needed) : 0;
  }
  const Function function_;
  int calls_ = 0;
};

// A block of the default stream whose free waits for work of another stream.
uint64_t FreeBehind(HeapFixture& f, uint64_t bytes, Stream user) {
  const uint64_t at = f.Allocate(bytes);
  f.Write(user, at, bytes);
  REQUIRE(f.heap().RecordUse(at, user).ok());
  return at;
}

}  // namespace

TEST_CASE("the host waits for the oldest deferred free only, if that is enough", "[ladder]") {
  HeapFixture f(Device(64 * kMiB));
  const CUstream first = f.NewStream(), second = f.NewStream();
  const uint64_t a = FreeBehind(f, 30 * kMiB, first);
  const uint64_t b = FreeBehind(f, 30 * kMiB, second);
  f.FreeAsync(a);
  f.FreeAsync(b);
  sim::HoldStream(0, second);  // a wait for it would be a deadlock
  const uint64_t c = f.Allocate(30 * kMiB);
  f.Write(nullptr, c, 30 * kMiB);
  REQUIRE(f.Stats().waits == 1);
  REQUIRE(f.Stats().served_waited == 1);
  REQUIRE(sim::CheckerReports().empty());
  sim::ReleaseStream(0, second);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("work that is complete is not waited for, however new its free is", "[ladder]") {
  HeapFixture f(Device(64 * kMiB));
  const CUstream held = f.NewStream(), done = f.NewStream();
  const uint64_t a = FreeBehind(f, 30 * kMiB, held);
  const uint64_t b = FreeBehind(f, 30 * kMiB, done);
  sim::HoldStream(0, held);
  f.FreeAsync(a);
  f.FreeAsync(b);
  sim::RunUntilIdle();
  HeapError error;
  // The marker is recorded by the miss itself, so it may need one more look.
  const uint64_t c = f.Allocate(30 * kMiB);
  REQUIRE(c != 0);
  REQUIRE(f.Stats().waits == 0);
  REQUIRE(sim::CheckerReports().empty());
  sim::ReleaseStream(0, held);
  f.RequireNoRaces();
}

TEST_CASE("as many deferred frees as needed are waited for, in the order of the frees",
          "[ladder]") {
  HeapFixture f(Device(80 * kMiB));
  std::vector<CUstream> streams;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 4; ++i) {
    streams.push_back(f.NewStream());
    blocks.push_back(FreeBehind(f, 18 * kMiB, streams.back()));
  }
  for (const size_t i : {size_t{2}, size_t{0}, size_t{3}, size_t{1}}) f.FreeAsync(blocks[i]);
  sim::HoldStream(0, streams[1]);
  sim::HoldStream(0, streams[3]);
  const uint64_t c = f.Allocate(40 * kMiB);  // two blocks and what the device has left
  f.Write(nullptr, c, 40 * kMiB);
  REQUIRE(f.Stats().waits <= 2);
  REQUIRE(sim::CheckerReports().empty());
  for (CUstream stream : streams) sim::ReleaseStream(0, stream);
  f.RequireNoRaces();
}

TEST_CASE("without the rung wait the host never waits, and fails instead", "[ladder]") {
  HeapOptions options;
  options.ladder.wait = false;
  HeapFixture f(Device(64 * kMiB), options);
  const CUstream side = f.NewStream();
  const uint64_t a = FreeBehind(f, 50 * kMiB, side);
  sim::HoldStream(0, side);
  f.FreeAsync(a);
  uint64_t at = 0;
  REQUIRE(TryAllocate(f, 50 * kMiB, nullptr, &at).code == WEIR_ERROR_OUT_OF_MEMORY);
  // Nor for idle memory of another stream.
  const uint64_t b = f.Allocate(10 * kMiB, side);
  f.Write(side, b, 10 * kMiB);
  f.FreeAsync(b, side);
  REQUIRE(TryAllocate(f, 12 * kMiB, nullptr, &at).code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(f.Stats().waits == 0);
  REQUIRE(sim::CheckerReports().empty());
  sim::ReleaseStream(0, side);
  sim::RunUntilIdle();
  f.FreeAsync(f.Allocate(50 * kMiB));
}

TEST_CASE("without the rung borrow a stream leaves other streams' granules alone", "[ladder]") {
  HeapOptions options;
  options.ladder.borrow = false;
  HeapFixture f(Device(16 * kMiB), options);
  const CUstream lender = f.NewStream(), taker = f.NewStream();
  std::vector<uint64_t> fillers;
  for (int i = 0; i < 8; ++i) {
    f.Allocate(512 * kKiB, lender);
    fillers.push_back(f.Allocate(kMiB + 512 * kKiB, lender));
  }
  for (uint64_t at : fillers) f.FreeAsync(at, lender);
  uint64_t at = 0;
  REQUIRE(TryAllocate(f, kMiB, taker, &at).code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(f.Stats().borrowed_blocks == 0);
}

TEST_CASE("a callback is told exactly what is missing (cudf-spark 6768)", "[ladder][reports]") {
  const uint64_t too_little = GENERATE(0, 2 * kMiB);
  HeapFixture f(Device(128 * kMiB));
  std::vector<uint64_t> granules;
  for (int i = 0; i < 50; ++i) granules.push_back(f.Allocate(2 * kMiB));
  uint64_t needed = 0;
  const Callback callback([&](uint64_t bytes_needed) -> size_t {
    if (needed != 0) return 0;
    needed = bytes_needed;
    size_t freed = 0;
    for (; freed + too_little < bytes_needed; freed += 2 * kMiB) {
      f.FreeAsync(granules.back());
      granules.pop_back();
    }
    return freed;
  });
  uint64_t at = 0;
  const HeapError error = TryAllocate(f, 60 * kMiB, nullptr, &at);
  REQUIRE(needed == 32 * kMiB);  // 28 MiB are left on the device
  REQUIRE((at != 0) == (too_little == 0));
  if (at == 0) REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(f.Stats().served_callbacks == (at != 0 ? 1 : 0));
  f.RequireValid();
}

TEST_CASE("callbacks are asked before a request fails, and not before", "[ladder]") {
  HeapFixture f(Device(64 * kMiB));
  const CUstream side = f.NewStream();
  const uint64_t a = FreeBehind(f, 50 * kMiB, side);
  f.FreeAsync(a);
  const Callback callback([](uint64_t) -> size_t { return 0; });
  const uint64_t b = f.Allocate(50 * kMiB);  // waits
  REQUIRE(callback.calls() == 0);
  uint64_t at = 0;
  REQUIRE(TryAllocate(f, 50 * kMiB, nullptr, &at).code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(callback.calls() == 1);
  f.FreeAsync(b);
}

TEST_CASE("callbacks are asked again as long as they free something", "[ladder]") {
  HeapFixture f(Device(64 * kMiB));
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 120; ++i) blocks.push_back(f.Allocate(512 * kKiB));
  std::vector<uint64_t> needs;
  const Callback callback([&](uint64_t needed) -> size_t {
    needs.push_back(needed);
    f.FreeAsync(blocks.back());
    blocks.pop_back();
    return 512 * kKiB;
  });
  const uint64_t at = f.Allocate(20 * kMiB);
  REQUIRE(at != 0);
  REQUIRE(std::is_sorted(needs.rbegin(), needs.rend()));
  REQUIRE(f.Stats().out_of_memory == 0);
  f.RequireValid();
}

TEST_CASE("after each callback that frees Weir looks again, and asks no further one", "[ladder]") {
  HeapFixture f(Device(64 * kMiB));
  uint64_t a = f.Allocate(60 * kMiB);
  const Callback first([&](uint64_t) -> size_t {
    f.FreeAsync(a);
    return 60 * kMiB;
  });
  const Callback second([](uint64_t) -> size_t { return 0; });
  f.Allocate(60 * kMiB);
  REQUIRE(first.calls() == 1);
  REQUIRE(second.calls() == 0);
}

TEST_CASE("a callback that makes room without freeing bytes has made room", "[ladder]") {
  HeapOptions options;
  options.memory_limit = 20 * kMiB;
  HeapFixture f(Device(64 * kMiB), options);
  f.Allocate(15 * kMiB);
  const Callback callback([&](uint64_t needed) -> size_t {
    f.heap().SetMemoryLimit(20 * kMiB + needed);
    return 0;
  });
  uint64_t at = 0;
  const HeapError error = TryAllocate(f, 15 * kMiB, nullptr, &at);
  INFO(error.text);
  REQUIRE(error.ok());
  REQUIRE(callback.calls() == 1);
  f.RequireValid();
}

TEST_CASE("a callback that only says that it frees does not keep the thread", "[ladder]") {
  HeapFixture f(Device(64 * kMiB));
  f.Allocate(60 * kMiB);
  const Callback liar([](uint64_t needed) -> size_t { return needed; });
  uint64_t at = 0;
  REQUIRE(TryAllocate(f, 60 * kMiB, nullptr, &at).code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(liar.calls() <= 2);
}

TEST_CASE("a request inside a callback asks no callbacks", "[ladder]") {
  HeapFixture f(Device(64 * kMiB));
  const uint64_t a = f.Allocate(50 * kMiB);
  int depth = 0, deepest = 0;
  const Callback callback([&](uint64_t) -> size_t {
    deepest = std::max(deepest, ++depth);
    uint64_t at = 0;
    HeapError error;
    at = f.heap().Allocate(40 * kMiB, 512, nullptr, &error);
    if (at != 0 || error.code != WEIR_ERROR_OUT_OF_MEMORY) deepest = 100;
    at = f.heap().Allocate(2 * kMiB, 512, nullptr, &error);  // hits and misses that fit are served
    if (at == 0 || !f.heap().FreeAsync(at, nullptr).ok()) deepest = 100;
    if (!f.heap().FreeAsync(a, nullptr).ok()) deepest = 100;
    --depth;
    return 50 * kMiB;
  });
  const uint64_t b = f.Allocate(50 * kMiB);
  REQUIRE(deepest == 1);
  REQUIRE(callback.calls() == 1);
  f.FreeAsync(b);
  f.RequireValid();
}

TEST_CASE("a callback may destroy the stream of the request and give memory back", "[ladder]") {
  HeapFixture f(Device(64 * kMiB));
  const CUstream s = f.NewStream(), other = f.NewStream();
  const uint64_t a = f.Allocate(30 * kMiB, s);
  const uint64_t b = f.Allocate(30 * kMiB, other);
  const Callback callback([&](uint64_t) -> size_t {
    static_cast<void>(f.heap().FreeAsync(a, s).ok());
    static_cast<void>(f.heap().FreeAsync(b, other).ok());
    static_cast<void>(f.heap().StreamDestroyed(s).ok());
    static_cast<void>(f.heap().EmptyCache().ok());
    return 60 * kMiB;
  });
  const uint64_t c = f.Allocate(50 * kMiB, s);
  f.Write(s, c, 50 * kMiB);
  f.FreeAsync(c, s);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("callbacks may add and remove callbacks, also themselves", "[ladder]") {
  HeapFixture f(Device(64 * kMiB));
  f.Allocate(50 * kMiB);
  struct Lists {
    int calls = 0;
    static size_t Remove(int, size_t, void* user) {
      auto* self = static_cast<Lists*>(user);
      ++self->calls;
      if (!MemoryCallbacks::Get().Remove({&Remove, user})) self->calls = 100;
      for (int i = 0; i < 100; ++i) MemoryCallbacks::Get().Add({&Count, user});
      return 0;
    }
    static size_t Count(int, size_t, void* user) {
      ++static_cast<Lists*>(user)->calls;
      return 0;
    }
  };
  Lists lists;
  MemoryCallbacks::Get().Add({&Lists::Remove, &lists});
  MemoryCallbacks::Get().Add({&Lists::Count, &lists});
  uint64_t at = 0;
  REQUIRE(TryAllocate(f, 50 * kMiB, nullptr, &at).code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(lists.calls == 2);  // those that were there when the request began
  REQUIRE(TryAllocate(f, 50 * kMiB, nullptr, &at).code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(lists.calls == 103);
  while (MemoryCallbacks::Get().Remove({&Lists::Count, &lists})) continue;
}

TEST_CASE("without the rung callbacks none is asked", "[ladder]") {
  HeapOptions options;
  options.ladder.callbacks = false;
  HeapFixture f(Device(64 * kMiB), options);
  f.Allocate(50 * kMiB);
  const Callback callback([](uint64_t) -> size_t { return 0; });
  uint64_t at = 0;
  REQUIRE(TryAllocate(f, 50 * kMiB, nullptr, &at).code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(callback.calls() == 0);
}

TEST_CASE("a capture pool takes no more physical memory than its limit", "[ladder]") {
  const bool vmm = GENERATE(true, false);
  HeapOptions options;
  options.vmm = vmm;
  HeapFixture f(Device(512 * kMiB), options);
  REQUIRE(f.heap().CreatePool(7).ok());
  REQUIRE(f.heap().SetPoolLimit(7, 40 * kMiB).ok());
  REQUIRE(f.heap().BeginRoute(7, nullptr, nullptr).ok());
  const uint64_t a = f.Allocate(24 * kMiB);
  uint64_t at = 0;
  const HeapError error = TryAllocate(f, 24 * kMiB, nullptr, &at);
  REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(error.text.find("limit of the capture pool") != std::string::npos);
  REQUIRE(f.heap().LastReport()->ladder.missing > 0);
  REQUIRE(f.Stats().reserved_bytes <= 40 * kMiB);
  f.FreeAsync(a);
  f.FreeAsync(f.Allocate(24 * kMiB));  // from what the pool has
  REQUIRE(f.heap().SetPoolLimit(7, UINT64_MAX).ok());
  f.FreeAsync(f.Allocate(100 * kMiB));
  REQUIRE(f.heap().EndRoute(7).ok());
  f.FreeAsync(f.Allocate(100 * kMiB));
  REQUIRE(f.heap().ReleasePool(7).ok());
  REQUIRE(f.heap().SetPoolLimit(7, 1).code == WEIR_ERROR_INVALID_ARGUMENT);
  f.RequireValid();
}

TEST_CASE("the missing bytes are exact at a limit", "[ladder]") {
  for (const bool enough : {true, false}) {
    HeapOptions options;
    options.memory_limit = 100 * kMiB;
    HeapFixture f({}, options);
    f.Allocate(60 * kMiB);
    uint64_t at = 0;
    REQUIRE(TryAllocate(f, 70 * kMiB, nullptr, &at).code == WEIR_ERROR_OUT_OF_MEMORY);
    const uint64_t missing = f.heap().LastReport()->ladder.missing;
    f.heap().SetMemoryLimit(100 * kMiB + missing - (enough ? 0 : 1));
    REQUIRE(TryAllocate(f, 70 * kMiB, nullptr, &at).ok() == enough);
  }
}

TEST_CASE("a callback may end the stream of the request, whose history is begun anew then",
          "[ladder]") {
  HeapOptions options;
  options.stitch = true;
  HeapFixture f(Device(64 * kMiB), options);
  const CUstream s = f.NewStream();
  uint64_t held = f.Allocate(40 * kMiB, s);
  Callback callback([&](uint64_t) {
    REQUIRE(f.heap().StreamDestroyed(s).ok());
    f.Free(held);
    return 40 * kMiB;
  });
  f.FreeAsync(f.Allocate(50 * kMiB, s), s);
  REQUIRE(callback.calls() == 1);
  f.FreeAsync(f.Allocate(50 * kMiB, s), s);
  f.RequireValid();
}

TEST_CASE("every miss that was served is counted by its rung", "[ladder]") {
  HeapFixture f(Device(64 * kMiB));
  const CUstream side = f.NewStream();
  f.FreeAsync(f.Allocate(20 * kMiB));
  const uint64_t a = FreeBehind(f, 50 * kMiB, side);
  f.FreeAsync(a);
  f.FreeAsync(f.Allocate(50 * kMiB));
  f.FreeAsync(f.Allocate(60 * kMiB, side), side);
  const weir_stats_t s = f.Stats();
  REQUIRE(s.served_mapped >= 1);
  REQUIRE(s.served_complete + s.served_mapped + s.served_borrowed + s.served_waited +
              s.served_merged + s.served_callbacks ==
          s.misses - s.out_of_memory);
}

}  // namespace weir
