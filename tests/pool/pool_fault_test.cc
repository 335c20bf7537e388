// Every driver call is made to fail at every position of pools with sources, pools that lend, pools
// without splitting, and returns to earlier states.
#include "allocator/pool/device_heap_restore.h"
#include "tests/pool/fault_sweep.h"
#include "tests/pool/pool_source.h"

namespace weir::test {
namespace {

struct PoolsLife : CaptureFixture {
  explicit PoolsLife(bool vmm) : CaptureFixture(Device(64 * kMiB, vmm)) {
    source.make = [this](size_t bytes) { return std::exchange(next_, next_ + bytes); };
  }

  uint64_t TryAllocate(uint64_t pool, uint64_t bytes, Stream stream) {
    if (pool != 0) Begin(pool);
    HeapError error;
    const uint64_t at = heap().Allocate(bytes, kBlockAlignment, stream, &error);
    if (pool != 0) End(pool);
    if (at == 0) REQUIRE_FALSE(error.text.empty());
    return at;
  }
  void FreeIf(uint64_t at, Stream stream) {
    // A free fails only where the heap could not learn what stream it is for.
    if (at != 0 && !heap().FreeAsync(at, stream).ok()) Free(at);
  }

  void Run() {
    weir_pool_options_t lends = {};
    lends.use_on_oom = 1;
    weir_pool_options_t whole = {};
    whole.no_split = 1;
    const uint64_t given = NewPool(source.Options()), lending = NewPool(lends),
                   unsplit = NewPool(whole), both = NewPool(source.Options(true, true));
    std::vector<uint64_t> blocks;
    for (const uint64_t pool : {given, lending, unsplit, both}) {
      for (const uint64_t bytes : {uint64_t{900}, uint64_t{70000}, 3 * kMiB, 12 * kMiB}) {
        blocks.push_back(TryAllocate(pool, bytes, stream_));
      }
      FreeIf(blocks.back(), other_);
      blocks.pop_back();
    }
    RequireValid();
    // More than is left: from the pools that lend.
    const uint64_t first = TryAllocate(0, 20 * kMiB, other_),
                   second = TryAllocate(0, 11 * kMiB, other_);
    RequireValid();
    FreeIf(first, other_);
    FreeIf(second, other_);
    heap().EmptyPool(unsplit).ok();
    heap().EmptyPool(given).ok();
    RequireValid();
    ReturnTo(given, stream_);
    for (const uint64_t pool : {given, lending, unsplit, both}) Release(pool);
    RequireValid();
    for (const uint64_t at : blocks) FreeIf(at, stream_);
    heap().EmptyCache().ok();
    RequireValid();
  }

  void ReturnTo(uint64_t pool, Stream stream) {
    const uint64_t block = TryAllocate(pool, 2 * kMiB, stream);
    if (block == 0) return;
    // Of another pool's, and so refused; changes nothing, whatever fails.
    CHECK_FALSE(DeviceHeap::PoolRestore(heap(), pool).Run({{1 << 20, 512, 512, stream}}).ok());
    CHECK(heap().UsableSize(block) == 2 * kMiB);
    FreeIf(block, stream);
  }

  PoolSource source{device()};

 private:
  const CUstream stream_ = NewStream(), other_ = NewStream();
  uint64_t next_ = uint64_t{1} << 45;
};

TEST_CASE("whichever driver call fails, pools with sources and pools that lend lose nothing",
          "[sources][fault]") {
  const bool vmm = GENERATE(true, false);
  const CUresult code = GENERATE(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN);
  const int reached = ForEachFault(HeapEntries(), /*then=*/"", code, [&](FaultPoint& point) {
    PoolsLife f(vmm);
    point.Arm();
    f.Run();
    point.Clear();
    f.RequireAllIsGivenBack();
    CHECK(f.source.segments() == 0);
    CHECK(f.source.wrong() == 0);
    CHECK(f.source.returned() == static_cast<int>(f.source.asked().size()));
  });
  CHECK(reached > 30);
}

TEST_CASE("whatever goes on to fail, pools with sources and pools that lend stay consistent",
          "[sources][fault]") {
  const bool vmm = GENERATE(true, false);
  const char* const then = GENERATE(
      values<const char*>({"cuMemUnmap", "cuMemRelease", "cuMemFree", "cuMemMap", "cuMemSetAccess",
                           "cuEventQuery", "cuEventRecord", "cuCtxSynchronize"}));
  const int reached = ForEachFault(HeapEntries(), then, CUDA_ERROR_UNKNOWN, [&](FaultPoint& point) {
    PoolsLife f(vmm);
    point.Arm();
    f.Run();
    point.Clear();
    REQUIRE(f.heap().EmptyCache().ok());
    f.RequireValid();
    CHECK(f.source.segments() == 0);
    CHECK(f.source.wrong() == 0);
    CHECK(f.source.returned() == static_cast<int>(f.source.asked().size()));
  });
  CHECK(reached > 20);
}

TEST_CASE("whichever driver call fails, a pool returns to a state or stays as it is",
          "[restore][fault]") {
  using Wanted = DeviceHeap::PoolRestore::Wanted;
  const char* const then =
      GENERATE(values<const char*>({"", "cuEventQuery", "cuEventSynchronize", "cuCtxSynchronize"}));
  const bool vmm = GENERATE(true, false);
  const int reached = ForEachFault(HeapEntries(), then, CUDA_ERROR_UNKNOWN, [&](FaultPoint& point) {
    CaptureFixture f(Device(64 * kMiB, vmm));
    const CUstream stream = f.NewStream(), other = f.NewStream();
    const uint64_t pool = f.NewPool();
    f.Begin(pool);
    std::vector<Wanted> state;
    for (const uint64_t bytes : {uint64_t{900}, uint64_t{70000}, 3 * kMiB}) {
      const uint64_t at = f.Allocate(bytes, stream);
      state.push_back({at, f.heap().UsableSize(at), bytes, stream});
    }
    const uint64_t extra = f.Allocate(2 * kMiB, stream);
    f.End(pool);
    for (const Wanted& block :
         state) {  // on another stream, so that there is something to wait for
      f.Write(other, block.address, block.bytes);
      f.FreeAsync(block.address, other);
    }
    point.Arm();
    const HeapError error = DeviceHeap::PoolRestore(f.heap(), pool).Run(state);
    point.Clear();
    f.RequireValid();
    if (!error.ok()) {
      CHECK(f.heap().UsableSize(extra) == 2 * kMiB);
      for (const Wanted& block : state) CHECK(f.heap().UsableSize(block.address) == 0);
      REQUIRE(DeviceHeap::PoolRestore(f.heap(), pool).Run(state).ok());
    }
    CHECK(f.heap().UsableSize(extra) == 0);
    for (const Wanted& block : state) {
      CHECK(f.heap().UsableSize(block.address) == block.bytes);
      f.FreeAsync(block.address, stream);
    }
    f.Release(pool);
    f.RequireAllIsGivenBack();
  });
  CHECK(reached >= 1);
}

}  // namespace
}  // namespace weir::test
