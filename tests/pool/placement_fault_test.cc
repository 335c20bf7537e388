// Merges, compaction and stitching when driver calls fail, or other threads free meanwhile.
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/pool/capture_fixture.h"
#include "tests/pool/fault_sweep.h"
#include "tests/pool/preset.h"

namespace weir {
namespace {

using test::CaptureFixture;
using test::OptionsFrom;

// A device full of halves of granules, every second of them freed, so that pairs of granules can be
// merged and nothing else makes room for a large block.
class Halves {
 public:
  explicit Halves(CaptureFixture& f) : f_(f), stream_(f.NewStream()) {
    std::vector<uint64_t> all;
    for (;;) {
      HeapError error;
      const uint64_t at = f.heap().Allocate(kMiB, kBlockAlignment, stream_, &error);
      if (at == 0) break;
      all.push_back(at);
    }
    REQUIRE(all.size() >= sim::CurrentConfig().memory_bytes / kMiB - 4);
    for (size_t i = 0; i < all.size(); ++i) {
      // The first half of an even granule, the second of an odd one.
      const bool first_half = all[i] % (2 * kMiB) == 0, even = all[i] % (4 * kMiB) < 2 * kMiB;
      if (first_half == even) {
        f.Fill(stream_, all[i], kMiB, static_cast<uint8_t>(i));
        live_.emplace_back(all[i], static_cast<uint8_t>(i));
      } else {
        f.FreeAsync(all[i], stream_);
      }
    }
  }
  CUstream stream() const { return stream_; }
  const std::vector<std::pair<uint64_t, uint8_t>>& live() const { return live_; }

  void RequireContents() {
    for (const auto& [at, value] : live_) f_.CheckNow(stream_, at, kMiB, value);
  }
  // May run in another thread, so it asserts nothing. How many frees failed.
  int FreeAll() {
    int failed = 0;
    for (const auto& [at, value] : live_) failed += f_.heap().FreeAsync(at, stream_).ok() ? 0 : 1;
    live_.clear();
    return failed;
  }

 private:
  CaptureFixture& f_;
  const CUstream stream_;
  std::vector<std::pair<uint64_t, uint8_t>> live_;
};

HeapError CompactAll(CaptureFixture& f, weir_compact_result_t* result) {
  weir_compact_options_t options{};
  options.merge = 1;
  return f.heap().Compact(options, result);
}

}  // namespace

TEST_CASE("a request that only merging makes room for is served, and contents stay",
          "[placement]") {
  CaptureFixture f(test::Device(64 * kMiB), OptionsFrom("mode:tight"));
  Halves halves(f);
  const uint64_t large = f.Allocate(20 * kMiB, halves.stream());
  REQUIRE(f.Stats().merged_granules > 0);
  f.Fill(halves.stream(), large, 20 * kMiB, 0x5a);
  halves.RequireContents();
  f.CheckNow(halves.stream(), large, 20 * kMiB, 0x5a);
  f.RequireValid();
  f.FreeAsync(large, halves.stream());
  REQUIRE(halves.FreeAll() == 0);
  f.RequireAllIsGivenBack();
  f.RequireNoRaces();
}

TEST_CASE("blocks that another thread frees while they are merged are free afterwards",
          "[placement]") {
  for (const char* entry : {"cuCtxSynchronize", "cuMemcpyAsync", "cuMemUnmap", "cuMemMap"}) {
    INFO(entry);
    CaptureFixture f(test::Device(64 * kMiB), OptionsFrom("mode:tight"));
    Halves halves(f);
    int failed = 0;
    sim::OnNextCall(entry, [&] { std::thread([&] { failed = halves.FreeAll(); }).join(); });
    weir_compact_result_t result{};
    REQUIRE(CompactAll(f, &result).ok());
    REQUIRE(failed == 0);
    REQUIRE(halves.live().empty());
    f.RequireValid();
    const uint64_t at = f.Allocate(50 * kMiB, halves.stream());
    f.Fill(halves.stream(), at, 50 * kMiB, 1);
    f.CheckNow(halves.stream(), at, 50 * kMiB, 1);
    f.FreeAsync(at, halves.stream());
    f.RequireAllIsGivenBack();
    f.RequireNoRaces();
  }
}

TEST_CASE("whichever driver call of a merge fails, contents and heap stay", "[placement]") {
  const CUresult code = GENERATE(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN);
  uint64_t merged = 0;
  const auto run = [&](test::FaultPoint& point) {
    CaptureFixture f(test::Device(20 * kMiB), OptionsFrom("mode:tight"));
    Halves halves(f);
    point.Arm();
    weir_compact_result_t result{};
    const HeapError error = CompactAll(f, &result);
    if (!error.ok()) REQUIRE_FALSE(error.text.empty());
    point.Clear();
    f.RequireValid();
    halves.RequireContents();
    REQUIRE(f.Stats().reserved_bytes == sim::UsedBytes(0));
    // What it left undone is done the next time.
    REQUIRE(CompactAll(f, &result).ok());
    f.RequireValid();
    halves.RequireContents();
    if (f.heap().driver().has_vmm()) REQUIRE(f.Stats().merged_granules >= 4);
    merged += result.merged_granules;
    REQUIRE(halves.FreeAll() == 0);
    f.RequireAllIsGivenBack();
    f.RequireNoRaces();
  };
  REQUIRE(test::ForEachFault(test::HeapEntries(), /*then=*/"", code, run) > 25);
  REQUIRE(merged > 0);
}

TEST_CASE("when a merge can neither be done nor undone, the rest of the heap works on",
          "[placement]") {
  const std::vector<std::string> entries{"cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                                         "cuCtxSynchronize"};
  for (const std::string& then : entries) {
    const auto run = [](test::FaultPoint& point) {
      CaptureFixture f(test::Device(20 * kMiB), OptionsFrom("mode:tight"));
      Halves halves(f);
      point.Arm();
      weir_compact_result_t result{};
      CompactAll(f, &result).ok();
      point.Clear();
      f.RequireValid();
      REQUIRE(f.Stats().reserved_bytes == sim::UsedBytes(0));
      REQUIRE(halves.FreeAll() == 0);
      REQUIRE(f.heap().EmptyCache().ok());
      f.RequireValid();
      REQUIRE(f.Stats().reserved_bytes == sim::UsedBytes(0));
      // What is handed out now is mapped, once: a write would fault, or change another block.
      std::vector<uint64_t> blocks;
      for (uint8_t i = 0; i < 20; ++i) {
        HeapError error;
        const uint64_t at = f.heap().Allocate(kMiB, kBlockAlignment, halves.stream(), &error);
        if (at == 0) break;
        f.Fill(halves.stream(), at, kMiB, i);
        blocks.push_back(at);
      }
      for (uint8_t i = 0; i < blocks.size(); ++i) f.CheckNow(halves.stream(), blocks[i], kMiB, i);
      f.RequireNoRaces();
      f.RequireValid();
    };
    REQUIRE(test::ForEachFault(entries, then, CUDA_ERROR_OUT_OF_MEMORY, run) > 15);
  }
}

TEST_CASE("memory that a merge has lost is not handed out by the kept block, caches or spans",
          "[placement]") {
  for (const uint64_t bytes : {uint64_t{2000}, 200 * kKiB, 700 * kKiB}) {
    INFO(bytes);
    CaptureFixture f(test::Device(64 * kMiB), OptionsFrom("mode:tight"));
    const CUstream s = f.NewStream();
    std::vector<uint64_t> blocks;
    const uint64_t first = f.Allocate(bytes, s);
    blocks.push_back(first);
    for (int i = 1; blocks.back() - first < 16 * kMiB && i < 20000; ++i)
      blocks.push_back(f.Allocate(bytes, s));
    std::vector<uint64_t> live;
    for (size_t i = 0; i < blocks.size(); ++i) {
      // One in a granule is left, not always at the same place.
      const uint64_t granule = blocks[i] / (2 * kMiB);
      const bool is_left = live.empty() || (granule > live.back() / (2 * kMiB) &&
                                            blocks[i] % (2 * kMiB) >= granule % 2 * kMiB);
      if (is_left) {
        live.push_back(blocks[i]);
      } else {
        f.FreeAsync(blocks[i], s);
      }
    }
    REQUIRE(f.heap().EmptyCache().ok());
    sim::Fault fault;
    fault.entry = "cuMemMap";
    fault.every_later_too = true;
    sim::InjectFault(fault);
    weir_compact_result_t result{};
    CompactAll(f, &result).ok();
    sim::ClearFaults();
    f.RequireValid();
    // Also in between: the caches and the kept block serve the request after a free.
    for (const uint64_t at : live) {
      f.FreeAsync(at, s);
      std::vector<uint64_t> next;
      for (int i = 0; i < 80; ++i) {
        next.push_back(f.Allocate(bytes, s));
        f.Fill(s, next.back(), bytes, 7);
        f.CheckNow(s, next.back(), bytes, 7);
        if (bytes > 100 * kKiB) break;
      }
      for (const uint64_t each : next) f.FreeAsync(each, s);
    }
    f.RequireNoRaces();
    f.RequireValid();
  }
}

}  // namespace weir
