// Host memory that runs out at any point of a call that changes much: a borrow, a miss, a stitch, a
// merge, a trim.
//
// Its own program, because it replaces operator new.
#include <new>
#include <utility>
#include <vector>

#include "tests/pool/failing_new.h"
#include "tests/pool/heap_fixture.h"
#include "tests/support/catch.h"

namespace weir {

using test::Device;
using test::HeapFixture;

namespace {

// Runs `call` with the n-th allocation of host memory failing, for each n below `most`, on a fresh
// heap that `prepare` has filled. Whether it fails or not the heap stays whole, and when `finish`
// has freed what there is, nothing remains.
template <typename Prepare, typename Call, typename Finish>
void FailEveryAllocation(long most, const sim::Config& config, const HeapOptions& options,
                         Prepare prepare, Call call, Finish finish) {
  for (long after = 0; after < most; ++after) {
    INFO("fails after " << after);
    HeapFixture f(config, options);
    auto state = prepare(f);
    fail_after = after;
    try {
      call(f, state);
    } catch (const std::bad_alloc&) {
    }
    fail_after = -1;
    f.RequireValid();
    finish(f, state);
    REQUIRE(f.heap().EmptyCache().ok());
    f.RequireValid();
    REQUIRE(f.Stats().active_bytes == 0);
    REQUIRE(sim::UsedBytes(0) == 0);
  }
}

struct State {
  CUstream one, two;
  std::vector<uint64_t> blocks;
  uint64_t at = 0;
};

uint64_t TryAllocate(HeapFixture& f, uint64_t bytes, Stream stream) {
  HeapError error;
  return f.heap().Allocate(bytes, 512, stream, &error);
}

}  // namespace

TEST_CASE("a request that borrows and lacks host memory leaves the heap whole", "[host_memory]") {
  for (const uint64_t bytes : {uint64_t{700}, 100 * kKiB, kMiB}) {
    FailEveryAllocation(
        80, Device(16 * kMiB), {},
        [](HeapFixture& f) {
          State s{f.NewStream(), f.NewStream(), {}};
          std::vector<uint64_t> fillers;
          for (int i = 0; i < 8; ++i) {
            s.blocks.push_back(f.Allocate(512 * kKiB, s.one));
            fillers.push_back(f.Allocate(kMiB + 512 * kKiB, s.one));
          }
          for (uint64_t at : fillers) {
            f.Write(s.one, at, 512);
            f.FreeAsync(at, s.one);
          }
          return s;
        },
        [bytes](HeapFixture& f, State& s) { s.at = TryAllocate(f, bytes, s.two); },
        [](HeapFixture& f, State& s) {
          if (s.at != 0) f.FreeAsync(s.at, s.two);
          for (uint64_t at : s.blocks) f.FreeAsync(at, s.one);
        });
  }
}

TEST_CASE("a miss that lacks host memory leaves the heap whole, and no memory is lost",
          "[host_memory]") {
  for (const bool vmm : {true, false}) {
    HeapOptions options;
    options.vmm = vmm;
    FailEveryAllocation(
        120, Device((vmm ? 64 : 128) * kMiB), options,
        [](HeapFixture& f) {
          State s{f.NewStream(), f.NewStream(), {}};
          for (int i = 0; i < 12; ++i) s.blocks.push_back(f.Allocate(5 * kMiB, s.one));
          for (uint64_t at : s.blocks) {
            f.Write(s.one, at, 512);
            f.FreeAsync(at, s.one);
          }
          return s;
        },
        [](HeapFixture& f, State& s) { s.at = TryAllocate(f, 40 * kMiB, s.two); },
        [](HeapFixture& f, State& s) {
          if (s.at != 0) f.FreeAsync(s.at, s.two);
        });
  }
}

TEST_CASE("frees that waited are not lost when host memory runs out", "[host_memory]") {
  FailEveryAllocation(
      40, {}, {},
      [](HeapFixture& f) {
        State s{f.NewStream(), f.NewStream(), {}};
        for (int i = 0; i < 20; ++i) s.blocks.push_back(f.Allocate(kMiB, s.one));
        for (uint64_t at : s.blocks) f.FreeAsync(at, s.two);
        return s;
      },
      [](HeapFixture& f, State& s) { s.at = TryAllocate(f, 40 * kMiB, s.two); },
      [](HeapFixture& f, State& s) {
        if (s.at != 0) f.FreeAsync(s.at, s.two);
      });
}

TEST_CASE("a free behind another stream either takes effect or fails", "[host_memory]") {
  for (long after = 0; after < 6; ++after) {
    INFO("fails after " << after);
    HeapFixture f;
    const CUstream s = f.NewStream(), user = f.NewStream();
    f.FreeAsync(f.Allocate(700, user), user);
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 70; ++i) blocks.push_back(f.Allocate(40 * kKiB, s));
    for (uint64_t at : blocks) {
      const uint64_t before = f.Stats().allocations;
      bool failed = false;
      fail_after = after;
      try {
        static_cast<void>(f.heap().FreeAsync(at, user).ok());
      } catch (const std::bad_alloc&) {
        failed = true;
      }
      fail_after = -1;
      if (!failed) continue;
      REQUIRE(f.Stats().allocations == before);
      f.FreeAsync(at, user);
    }
    REQUIRE(f.heap().EmptyCache().ok());
    REQUIRE(f.Stats().active_blocks == 0);
    f.RequireValid();
  }
}

TEST_CASE("trims and destroyed streams that lack host memory leave the heap whole",
          "[host_memory]") {
  for (const bool destroy : {false, true}) {
    FailEveryAllocation(
        40, {}, {},
        [destroy](HeapFixture& f) {
          State s{f.NewStream(), f.NewStream(), {}};
          for (int i = 0; i < 10; ++i) s.blocks.push_back(f.Allocate(3 * kMiB, s.one));
          for (uint64_t at : s.blocks) f.FreeAsync(at, s.one);
          f.FreeAsync(f.Allocate(700, s.two), s.two);
          if (destroy) REQUIRE(f.heap().EmptyCache().ok());
          return s;
        },
        [destroy](HeapFixture& f, State& s) {
          static_cast<void>(
              (destroy ? f.heap().StreamDestroyed(s.one) : f.heap().EmptyCache()).ok());
        },
        [](HeapFixture&, State&) {});
  }
}

TEST_CASE("a failure whose report lacks host memory leaves the heap whole", "[host_memory]") {
  HeapOptions options;
  options.record_stacks = 1;
  FailEveryAllocation(
      60, Device(64 * kMiB), options,
      [](HeapFixture& f) {
        State s{f.NewStream(), f.NewStream(), {}};
        for (int i = 0; i < 12; ++i) s.blocks.push_back(f.Allocate(5 * kMiB, s.one));
        s.blocks.push_back(f.Allocate(700, s.one));
        return s;
      },
      [](HeapFixture& f, State& s) { s.at = TryAllocate(f, 40 * kMiB, s.two); },
      [](HeapFixture& f, State& s) {
        REQUIRE(s.at == 0);
        for (uint64_t at : s.blocks) f.FreeAsync(at, s.one);
      });
}

TEST_CASE("memory made in advance and given back of itself survives a lack of host memory",
          "[host_memory]") {
  HeapOptions options;
  options.release_threshold = 4 * kMiB;
  options.gc_threshold = 0.2;
  FailEveryAllocation(
      120, Device(64 * kMiB), options,
      [](HeapFixture& f) {
        State s{f.NewStream(), f.NewStream(), {}};
        for (int i = 0; i < 6; ++i) s.blocks.push_back(f.Allocate(5 * kMiB, s.one));
        for (uint64_t at : s.blocks) f.FreeAsync(at, s.one);
        return s;
      },
      [](HeapFixture& f, State& s) {
        s.at = TryAllocate(f, 7 * kMiB, s.two);
        static_cast<void>(f.heap().Preallocate(50 * kMiB).ok());
      },
      [](HeapFixture& f, State& s) {
        if (s.at != 0) f.FreeAsync(s.at, s.two);
      });
}

TEST_CASE("a history of requests that lacks host memory is begun anew", "[host_memory]") {
  HeapOptions options;
  options.stitch = true;
  FailEveryAllocation(
      40, Device(64 * kMiB), options,
      [](HeapFixture& f) {
        return State{f.NewStream(), f.NewStream(), {}};
      },
      [](HeapFixture& f, State& s) { s.at = TryAllocate(f, 5 * kMiB, s.one); },
      [](HeapFixture& f, State& s) {
        if (s.at != 0) f.FreeAsync(s.at, s.one);
        f.FreeAsync(f.Allocate(7 * kMiB, s.one), s.one);
      });
}

TEST_CASE("a stitched request that lacks host memory leaves the heap whole, and no block is lost",
          "[host_memory]") {
  HeapOptions options;
  options.stitch = true;
  options.alias_bound = 0;  // trims further addresses as soon as there are some
  options.soft_limit = 0;
  options.soft_limit_slack = 0;
  options.soft_limit_until = 1;
  options.max_handle_bytes = 2 * kMiB;
  // A period whose last request is too large for any free block.
  const auto period = [](HeapFixture& f, State& s) {
    for (int i = 0; i < 8; ++i) s.blocks.push_back(f.Allocate(3 * kMiB, s.one));
    for (size_t i = 0; i < 8; i += 2) f.FreeAsync(std::exchange(s.blocks[i], 0), s.one);
  };
  const auto end_period = [](HeapFixture& f, State& s) {
    if (s.at != 0) f.FreeAsync(std::exchange(s.at, 0), s.one);
    for (uint64_t at : s.blocks) {
      if (at != 0) f.FreeAsync(at, s.one);
    }
    s.blocks.clear();
  };
  uint64_t stitched = 0;
  FailEveryAllocation(
      60, Device(64 * kMiB), options,
      [&](HeapFixture& f) {
        State s{f.NewStream(), f.NewStream(), {}};
        for (int i = 0; i < 60; ++i) {
          period(f, s);
          s.at = f.Allocate(8 * kMiB, s.one);
          end_period(f, s);
          if (i == 58) REQUIRE(f.heap().EmptyCache().ok());
        }
        REQUIRE(f.heap().EmptyCache().ok());
        period(f, s);
        return s;
      },
      [&](HeapFixture& f, State& s) {
        const uint64_t before = f.Stats().stitched_bytes;
        s.at = TryAllocate(f, 8 * kMiB, s.one);
        stitched += f.Stats().stitched_bytes - before;
      },
      end_period);
  REQUIRE(stitched > 0);
}

TEST_CASE("a merge that fails and lacks host memory for the reason loses nothing",
          "[host_memory]") {
  HeapOptions options;
  options.mesh = Meshing::kCompact;
  for (const char* entry : {"cuMemUnmap", "cuMemMap", "cuMemSetAccess"}) {
    INFO(entry);
    FailEveryAllocation(
        60, Device(64 * kMiB), options,
        [](HeapFixture& f) {
          State s{f.NewStream(), f.NewStream(), {}};
          std::vector<uint64_t> others;
          for (int i = 0; i < 24; ++i) {
            (i % 6 == 0 ? s.blocks : others).push_back(f.Allocate(700 * kKiB, s.one));
          }
          for (uint64_t at : others) f.FreeAsync(at, s.one);
          REQUIRE(f.heap().EmptyCache().ok());
          return s;
        },
        [entry](HeapFixture& f, State&) {
          sim::Fault fault;
          fault.entry = entry;
          sim::InjectFault(fault);
          weir_compact_options_t compact{};
          compact.merge = 1;
          compact.keep_bytes = SIZE_MAX;
          weir_compact_result_t result{};
          try {
            static_cast<void>(f.heap().Compact(compact, &result).ok());
          } catch (const std::bad_alloc&) {
          }
          sim::ClearFaults();
        },
        [](HeapFixture& f, State& s) {
          int readable = 0;
          for (uint64_t at : s.blocks) {
            REQUIRE(sim::Launch(s.one, "look", {}, [&readable, at](sim::KernelMemory& memory) {
                      char byte = 0;
                      readable += memory.Read(at, &byte, 1) ? 1 : 0;
                    }) == CUDA_SUCCESS);
          }
          sim::RunUntilIdle();
          REQUIRE(readable == static_cast<int>(s.blocks.size()));
          for (uint64_t at : s.blocks) f.FreeAsync(at, s.one);
        });
  }
}

}  // namespace weir
