// Failures about limits, about memory that is given back or kept, and about what is told of it,
// that users of other allocators reported, each as a rule that holds here. Placement:
// reports_placement_test.cc.
#include <random>

#include "allocator/pool/oom_report.h"
#include "tests/pool/heap_fixture.h"
#include "tests/pool/preset.h"
#include "tests/support/seed.h"

namespace weir {

using test::Device;
using test::HeapFixture;
using test::OptionsFrom;

TEST_CASE("the limit counts what is reserved, and cached memory makes room below it (cupy 7678)",
          "[reports]") {
  const bool vmm = GENERATE(true, false);
  HeapOptions options;
  options.memory_limit = 100 * kMiB;
  options.vmm = vmm;
  HeapFixture f({}, options);
  for (int i = 0; i < 4; ++i) {
    f.FreeAsync(f.Allocate(static_cast<uint64_t>(20 + 18 * i) * kMiB));
    f.FreeAsync(f.Allocate(60 * kMiB, kAnyStream), kAnyStream);
  }
  REQUIRE(f.Stats().peak_reserved_bytes <= 100 * kMiB);
  f.RequireValid();
}

TEST_CASE("a limit counts the physical memory that Weir holds, and nothing else (cupy 5177)",
          "[reports]") {
  HeapOptions options;
  options.vmm = GENERATE(true, false);
  options.memory_limit = 100 * kMiB;
  HeapFixture f(Device(256 * kMiB), options);
  sim::SetOtherProcessBytes(0, 100 * kMiB);
  const uint64_t a = f.Allocate(100 * kMiB);  // all that the limit says, with no reserve taken off
  REQUIRE(f.Stats().reserved_bytes == 100 * kMiB);
  REQUIRE(sim::UsedBytes(0) == 100 * kMiB);
  HeapError error;
  REQUIRE(f.heap().Allocate(1, kBlockAlignment, nullptr, &error) == 0);
  REQUIRE(error.text.find("limit") != std::string::npos);
  f.FreeAsync(a);  // cached memory counts, and makes room
  const uint64_t b = f.Allocate(60 * kMiB, f.NewStream());
  f.Write(nullptr, b, 60 * kMiB);
  REQUIRE(f.Stats().peak_reserved_bytes == 100 * kMiB);
  f.RequireValid();
}

TEST_CASE("what a limit leaves is there for other libraries at any time (CUDA.jl 718)",
          "[reports]") {  // CUDA.jl 1670, 1698, 2040
  const std::string preset = GENERATE("mode:default", "mode:tight", "mode:serving", "vmm:off");
  const uint64_t limit = 96 * kMiB;
  HeapOptions options = OptionsFrom(preset);
  options.memory_limit = limit;
  HeapFixture f(Device(128 * kMiB), options);
  std::mt19937_64 random(test::Seed());
  const Stream streams[] = {nullptr, f.NewStream(), f.NewStream(), kAnyStream};
  std::vector<std::pair<uint64_t, Stream>> live;
  for (int i = 0; i < 600; ++i) {
    if (random() % 5 < 3 || live.empty()) {
      const Stream s = streams[random() % 4];
      const uint64_t bytes = 1 + random() % (uint64_t{1} << (12 + random() % 14));
      HeapError error;
      const uint64_t at = f.heap().Allocate(bytes, kBlockAlignment, s, &error);
      if (at != 0) live.emplace_back(at, s);
    } else {
      std::swap(live[random() % live.size()], live.back());
      f.FreeAsync(live.back().first, live.back().second);
      live.pop_back();
    }
    REQUIRE(sim::UsedBytes(0) <= limit);
  }
  REQUIRE(f.Stats().out_of_memory > 0);
  REQUIRE(f.Stats().peak_reserved_bytes <= limit);
  CUdeviceptr library = 0;
  REQUIRE(f.device().entries().MemAlloc(&library, 128 * kMiB - limit) == CUDA_SUCCESS);
  f.RequireValid();
}

TEST_CASE("a free does no more work when more is reserved (CUDA.jl 1540)", "[reports]") {
  std::map<std::string, uint64_t> calls[2];
  for (const bool large : {false, true}) {
    HeapFixture f(Device(uint64_t{200} << 30));
    const CUstream s = f.NewStream(), other = f.NewStream();
    f.Allocate(kMiB, other);
    std::vector<uint64_t> blocks;
    for (int i = 0; i < (large ? 20000 : 2000); ++i) blocks.push_back(f.Allocate(4 * kMiB, s));
    for (size_t i = blocks.size() - 1600; i < blocks.size(); ++i) {
      if (i % 4 == 0) REQUIRE(f.heap().RecordUse(blocks[i], other).ok());
    }
    sim::ResetCallCounts();
    for (size_t i = blocks.size() - 1600; i < blocks.size(); ++i) {
      if (i % 4 == 1) {
        f.FreeAsync(blocks[i], other);
      } else if (i % 4 == 2) {
        f.Free(blocks[i]);
      } else {
        f.FreeAsync(blocks[i], s);
      }
    }
    calls[large] = sim::CallCounts();
    f.RequireValid();
  }
  REQUIRE(calls[0] == calls[1]);
  uint64_t sum = 0;
  for (const auto& [entry, count] : calls[1]) {
    INFO(entry);
    REQUIRE(entry.find("cuMem") == std::string::npos);
    REQUIRE(entry.find("Synchronize") == std::string::npos);
    sum += count;
  }
  REQUIRE(sum < 1600);
}

TEST_CASE("a synchronization gives nothing back, so the next round calls no driver (rmm 2510)",
          "[reports]") {  // rmm 2512; cuda-python 771
  HeapFixture f;
  const CUstream s = f.NewStream();
  for (int round = 0; round < 4; ++round) {
    if (round == 1) sim::ResetCallCounts();
    std::vector<uint64_t> blocks;
    for (uint64_t i = 1; i < 20; ++i) blocks.push_back(f.Allocate(i * 3 * kMiB, s));
    for (uint64_t at : blocks) f.FreeAsync(at, s);
    REQUIRE(f.device().entries().StreamSynchronize(s) == CUDA_SUCCESS);
    REQUIRE(f.device().entries().CtxSynchronize() == CUDA_SUCCESS);
  }
  auto calls = sim::CallCounts();
  REQUIRE(calls["cuStreamSynchronize"] == 3);
  REQUIRE(calls["cuCtxSynchronize"] == 3);
  REQUIRE(calls.size() == 2);
}

TEST_CASE("what an emptied cache still holds is named with the blocks that live there (cupy 6616)",
          "[reports]") {  // cupy 578
  HeapFixture f(Device(64 * kMiB));
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 32; ++i) {
    blocks.push_back(f.Allocate(kMiB + 512 * kKiB));
    f.Allocate(512 * kKiB);
  }
  for (uint64_t at : blocks) f.FreeAsync(at);
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(f.Stats().reserved_bytes == 64 * kMiB);  // not one granule is without a live block
  HeapError error;
  REQUIRE(f.heap().Allocate(4 * kMiB, kBlockAlignment, nullptr, &error) == 0);
  const auto report = f.heap().LastReport();
  REQUIRE(report->by_size[0].bytes_each == 512 * kKiB);
  REQUIRE(report->by_size[0].blocks == 32);
  REQUIRE(report->of(OomReport::Reason::kPartlyUsed).bytes == 48 * kMiB);
  const std::string text = OomText(*report);
  INFO(text);
  REQUIRE(text.find("512.0 KiB") != std::string::npos);
  REQUIRE(text.find("48.0 MiB") != std::string::npos);
}

}  // namespace weir
