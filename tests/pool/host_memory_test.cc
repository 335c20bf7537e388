// Host memory that runs out at any point of a call: the call fails, the heap is what it was before.
//
// Its own program, because it replaces operator new.
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/block/handle_table.h"
#include "tests/pool/failing_new.h"
#include "tests/pool/heap_fixture.h"
#include "tests/support/catch.h"

namespace weir {

using test::HeapFixture;

TEST_CASE("a free that lacks host memory changes nothing, uses included", "[host_memory]") {
  for (long after = 0; after < 6; ++after) {
    INFO("fails after " << after);
    HeapFixture f;
    const CUstream s = f.NewStream(), user = f.NewStream();
    const uint64_t at = f.Allocate(4 * kMiB, s);
    sim::HoldStream(0, user);
    f.Read(user, at, 4 * kMiB);
    REQUIRE(f.heap().RecordUse(at, user).ok());
    const weir_stats_t before = f.Stats();
    bool failed = false;
    fail_after = after;
    try {
      f.heap().FreeAsync(at, s).ok();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    fail_after = -1;
    if (failed) {
      REQUIRE(f.Stats().allocations == before.allocations);
      f.RequireValid();
      f.FreeAsync(at, s);  // the use is still known: the block waits for it
    }
    REQUIRE(f.Stats().deferred_frees == 1);
    REQUIRE(f.Allocate(4 * kMiB, s) != at);
    sim::ReleaseStream(0, user);
    f.RequireNoRaces();
    f.RequireValid();
  }
}

TEST_CASE("an allocation from free memory that lacks host memory changes nothing",
          "[host_memory]") {
  for (long after = 0; after < 6; ++after) {
    INFO("fails after " << after);
    HeapFixture f;
    f.FreeAsync(f.Allocate(200 * kKiB));  // the small arena has memory
    const weir_stats_t before = f.Stats();
    HeapError error;
    fail_after = after;
    uint64_t at = 0;
    try {
      at = f.heap().Allocate(700, 512, nullptr, &error);
    } catch (const std::bad_alloc&) {
    }
    fail_after = -1;
    f.RequireValid();
    if (at == 0) REQUIRE(f.Stats().allocated_bytes == before.allocated_bytes);
    f.FreeAsync(f.Allocate(700));
    f.RequireValid();
  }
}

TEST_CASE("reserved handle records cannot fail", "[host_memory]") {
  HandleTable table;
  table.Reserve(20);
  std::vector<Handle*> handles;
  handles.reserve(20);
  fail_after = 0;
  for (int i = 0; i < 20; ++i) handles.push_back(table.New(2 * kMiB));
  for (Handle* handle : handles) table.Delete(handle);
  fail_after = -1;
  REQUIRE(table.all().empty());
}

TEST_CASE("records that a change holds back are not used up by others", "[host_memory]") {
  RecordPool<Block> pool;
  pool.Hold(100);
  for (int i = 0; i < 1000; ++i) pool.New();
  pool.Unhold(100);
  fail_after = 0;
  for (int i = 0; i < 100; ++i) pool.New();
  fail_after = -1;
  SUCCEED();
}

TEST_CASE("hits go on while another thread holds the heap lock", "[host_memory][cache]") {
  HeapFixture f;
  const CUstream s = f.NewStream();
  const uint64_t used = f.Allocate(4 * kMiB);
  constexpr uint64_t kSizes[] = {100, 4096, 50000, 200000};
  for (uint64_t bytes : kSizes) f.FreeAsync(f.Allocate(bytes, s), s);
  Gate under_lock;
  std::thread holder([&] {  // a use is written down under the heap lock, in host memory
    gate = &under_lock;
    f.heap().RecordUse(used, s).ok();
    gate = nullptr;
  });
  while (!under_lock.reached) std::this_thread::yield();
  std::atomic<bool> counted{false};
  std::thread waiting([&] {  // for the lock
    weir_stats_t stats;
    f.heap().GetStats(&stats);
    counted = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  int hits = 0;
  for (int i = 0; i < 1000; ++i) {
    for (uint64_t bytes : kSizes) {
      HeapError error;
      const uint64_t at = f.heap().Allocate(bytes, 512, s, &error);
      hits += at != 0 && f.heap().FreeAsync(at, s).ok();
    }
  }
  const bool was_held = !counted;
  under_lock.open = true;
  holder.join();
  waiting.join();
  REQUIRE(was_held);
  REQUIRE(hits == 4000);
  f.RequireValid();
}

}  // namespace weir
