// Pinned ranges in random programs, under faults and in threads: peers keep their pages.
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "tests/pool/pins_fixture.h"
#include "tests/support/seed.h"

namespace weir {

using test::DecayingOptions;
using test::Device;
using test::HeapFixture;

namespace {

// Random allocations and frees on three streams, of which some blocks are registered by a peer for
// a while, longer than they live. Without the pins it must go wrong.
struct RandomResult {
  int broken = 0;      // peers that lost their pages
  int mismatches = 0;  // what a peer wrote and the program did not read
  weir_stats_t stats{};
};
RandomResult RunRandom(const HeapOptions& options, bool vmm, bool pin, uint64_t seed, int steps) {
  struct Registered {
    std::unique_ptr<sim::Peer> peer;
    uint64_t at, bytes;
  };
  HeapFixture f(Device(128 * kMiB, vmm), options);
  std::mt19937_64 random(seed);
  std::vector<Stream> streams{nullptr, f.NewStream(), f.NewStream()};
  std::map<uint64_t, std::pair<uint64_t, Stream>> live;
  std::vector<Registered> registered;
  uint64_t repeated = 0;
  RandomResult result;
  const auto unregister = [&](size_t i) {
    const Registered r = std::exchange(registered[i], std::move(registered.back()));
    registered.pop_back();
    if (pin) REQUIRE(f.heap().UnpinRange(r.at, r.bytes).ok());
  };
  const auto free = [&](std::map<uint64_t, std::pair<uint64_t, Stream>>::iterator block) {
    f.Write(block->second.second, block->first, block->second.first);
    f.FreeAsync(block->first, block->second.second);
    live.erase(block);
  };
  for (int step = 0; step < steps; ++step) {
    const uint64_t pick = random() % 100;
    auto some = live.lower_bound(live.empty() ? 0 : live.begin()->first + random() % kGiB);
    if (some == live.end()) some = live.begin();
    if (pick < 45 || live.empty()) {
      const Stream stream = streams[random() % 2 == 0 ? 0 : random() % streams.size()];
      uint64_t bytes = 300 * kKiB + random() % (uint64_t{1} << (19 + random() % 7));
      // One stream repeats the same sequence, so that stitching has something to recognize.
      constexpr uint64_t kPeriod[] = {9, 4, 14, 6, 21, 2, 11};
      if (stream == nullptr) bytes = kPeriod[repeated++ % std::size(kPeriod)] * kMiB;
      HeapError error;
      const uint64_t at = f.heap().Allocate(bytes, 512, stream, &error);
      if (at != 0) {
        live[at] = {bytes, stream};
        f.Write(stream, at, bytes);
      }
    } else if (pick < 80) {
      free(some);
    } else if (pick < 88 && registered.size() < 4) {
      const uint64_t offset = random() % some->second.first;
      const uint64_t at = some->first + offset;
      const uint64_t bytes = 1 + random() % (some->second.first - offset);
      if (pin) REQUIRE(f.heap().PinRange(at, bytes).ok());
      registered.push_back({std::make_unique<sim::Peer>(at, bytes), at, bytes});
    } else if (pick < 93 && !registered.empty()) {
      unregister(random() % registered.size());
    } else if (pick < 95) {
      REQUIRE(test::Compact(f, SIZE_MAX).ok());
    } else if (pick < 98) {
      REQUIRE(f.heap().Trim(random() % (64 * kMiB)).ok());
    } else {
      sim::RunUntilIdle();
    }
    for (const Registered& r : registered) result.broken += r.peer->StillMapped() ? 0 : 1;
    if (pin && step % 16 == 0) {
      f.RequireValid();
      sim::RunUntilIdle();
      for (const Registered& r : registered) {
        const auto value = static_cast<uint8_t>(random());
        r.peer->Write(0, &value, 1);
        uint8_t seen = 0;
        const uint64_t at = r.at;
        // On the legacy stream, which nothing orders with the others: it declares no access.
        REQUIRE(sim::Launch(nullptr, "look", {}, [&seen, at](sim::KernelMemory& memory) {
                  memory.Read(at, &seen, 1);
                }) == CUDA_SUCCESS);
        sim::RunUntilIdle();
        result.mismatches += seen == value ? 0 : 1;
      }
    }
    if (result.broken > 0) break;
  }
  result.stats = f.Stats();
  while (!registered.empty()) unregister(0);
  while (!live.empty()) free(live.begin());
  if (pin) {
    f.RequireNoRaces();
    REQUIRE(f.Stats().pinned_bytes == 0);
    REQUIRE(f.heap().EmptyCache().ok());
    REQUIRE(sim::UsedBytes(0) == 0);
  }
  return result;
}

}  // namespace

TEST_CASE("peers keep their pinned pages whatever the program does", "[pins][model]") {
  const uint64_t seed = test::Seed();
  uint64_t remapped = 0, stitched = 0, merged = 0;
  for (uint64_t round = 0; round < 8; ++round) {
    HeapOptions options = DecayingOptions(/*stitch=*/round % 2 == 1);
    if (round % 4 < 2) options.release_threshold = UINT64_MAX;
    if (round % 4 < 2) options.idle_decay = 0;
    const bool vmm = round < 6;
    INFO("round " << round);
    const RandomResult pinned = RunRandom(options, vmm, true, seed + round, 1500);
    REQUIRE(pinned.broken == 0);
    REQUIRE(pinned.mismatches == 0);
    REQUIRE(RunRandom(options, vmm, false, seed + round, 1500).broken > 0);
    remapped += pinned.stats.remapped_bytes;
    merged += pinned.stats.merged_granules;
    stitched += pinned.stats.stitched_bytes;
  }
  REQUIRE(remapped > 0);
  REQUIRE(stitched > 0);
  REQUIRE(merged > 0);
}

TEST_CASE("peers keep their pinned pages whichever driver call fails", "[pins][fault]") {
  const bool vmm = GENERATE(true, false);
  const bool for_ever = GENERATE(false, true);
  int faults = 0;
  for (const char* entry : {"cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap",
                            "cuMemSetAccess", "cuMemAlloc", "cuMemFree", "cuEventRecord"}) {
    for (uint64_t nth = 1; nth <= 12; ++nth) {
      INFO(entry << " call " << nth << " fails");
      HeapFixture f(Device(72 * kMiB, vmm));
      const CUstream side = f.NewStream();
      const uint64_t block = f.Allocate(9 * kMiB);
      const uint64_t other = f.Allocate(20 * kMiB);
      REQUIRE(f.heap().PinRange(block, 9 * kMiB).ok());
      const sim::Peer peer(block, 9 * kMiB);
      f.FreeAsync(block);
      sim::ResetCallCounts();
      sim::Fault fault;
      fault.entry = entry;
      fault.nth = nth;
      fault.every_later_too = for_ever;
      sim::InjectFault(fault);
      HeapError error;
      const uint64_t a = f.heap().Allocate(30 * kMiB, 512, side, &error);
      REQUIRE(peer.StillMapped());
      f.heap().FreeAsync(other, nullptr).ok();
      const uint64_t b = f.heap().Allocate(15 * kMiB, 512, side, &error);
      REQUIRE(peer.StillMapped());
      f.heap().Trim(0).ok();
      REQUIRE(peer.StillMapped());
      faults += sim::CallCount(entry) >= nth ? 1 : 0;
      sim::ClearFaults();
      for (const uint64_t at : {a, b}) {
        if (at != 0) REQUIRE(f.heap().Free(at).ok());
      }
      REQUIRE(f.heap().EmptyCache().ok());
      f.RequireValid();
      REQUIRE(peer.StillMapped());
      REQUIRE(f.heap().UnpinRange(block, 9 * kMiB).ok());
      f.RequireNoRaces();
    }
  }
  REQUIRE(faults > (vmm ? 10 : 2));
}

TEST_CASE("threads pin while others run short of memory", "[pins][threads]") {
  sim::Config config = Device(96 * kMiB);
  config.executor = sim::Executor::kThreaded;
  HeapFixture f(config);
  std::atomic<int> broken{0}, failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    const CUstream stream = f.NewStream();
    threads.emplace_back([&, t, stream] {
      if (!f.EnterDevice()) ++failed;
      std::mt19937_64 random(static_cast<uint64_t>(t));
      for (int i = 0; i < 150; ++i) {
        HeapError error;
        const uint64_t bytes = kMiB + random() % (20 * kMiB);
        const uint64_t at = f.heap().Allocate(bytes, 512, stream, &error);
        if (at == 0) continue;
        if (i % 3 != 0) {
          failed += f.heap().FreeAsync(at, stream).ok() ? 0 : 1;
          continue;
        }
        failed += f.heap().PinRange(at, bytes).ok() ? 0 : 1;
        {
          const sim::Peer peer(at, bytes);
          failed += f.heap().FreeAsync(at, stream).ok() ? 0 : 1;
          const uint64_t next = f.heap().Allocate(bytes / 2, 512, stream, &error);
          broken += peer.StillMapped() ? 0 : 1;
          if (next != 0) failed += f.heap().FreeAsync(next, stream).ok() ? 0 : 1;
        }
        failed += f.heap().UnpinRange(at, bytes).ok() ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failed == 0);
  REQUIRE(broken == 0);
  f.RequireValid();
  REQUIRE(f.Stats().pinned_bytes == 0);
  f.RequireNoRaces();
}

}  // namespace weir
