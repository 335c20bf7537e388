// Pinned ranges: whoever holds the physical pages keeps seeing what the addresses show. A simulated
// peer holds them and goes on reading and writing.
#include <array>
#include <memory>
#include <random>
#include <thread>

#include "tests/pool/heap_fixture.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

using test::HeapFixture;

sim::Config Device(uint64_t bytes, bool vmm = true) {
  sim::Config config;
  config.memory_bytes = bytes;
  config.vmm = vmm;
  return config;
}

// What a kernel finds at an address.
uint64_t ReadBack(uint64_t at) {
  uint64_t value = 0;
  REQUIRE(sim::Launch(nullptr, "look", {{at, sizeof(value), false}},
                      [&value, at](sim::KernelMemory& memory) {
                        memory.Read(at, &value, sizeof(value));
                      }) == CUDA_SUCCESS);
  sim::RunUntilIdle();
  return value;
}

// A peer registers a block of 12 MiB, which is then freed while the program runs short of memory,
// trims, and lets memory decay. Returns whether the addresses show the peer's pages at the end.
bool PeerSurvives(HeapFixture& f, sim::PeerHold how, bool pin) {
  const uint64_t bytes = 12 * kMiB;
  const uint64_t block = f.Allocate(bytes);
  const uint64_t other = f.Allocate(8 * kMiB);
  if (pin) REQUIRE(f.heap().PinRange(block + 512, bytes - 1024).ok());
  auto peer = std::make_unique<sim::Peer>(block, bytes, how);
  uint64_t mark = 0x1234567;
  const auto peer_writes = [&] {
    ++mark;
    for (const uint64_t offset : {uint64_t{0}, 5 * kMiB, bytes - 8})
      peer->Write(offset, &mark, sizeof(mark));
  };
  const auto require_seen = [&] {
    for (const uint64_t offset : {uint64_t{0}, 5 * kMiB, bytes - 8}) {
      uint64_t here = 0;
      peer->Read(offset, &here, sizeof(here));
      REQUIRE(here == mark);
      REQUIRE(ReadBack(block + offset) == mark);
    }
  };
  peer_writes();
  require_seen();
  f.FreeAsync(block);
  f.FreeAsync(other);

  // 96 MiB are there, 12 of them are pinned: another stream needs what else is idle.
  const CUstream side = f.NewStream();
  const uint64_t large = f.Allocate(60 * kMiB, side);
  f.Write(side, large, 60 * kMiB);
  bool mapped = peer->StillMapped();
  if (pin) {
    // It is free memory where it is: a block there sees what the peer writes.
    const uint64_t again = f.Allocate(bytes);
    REQUIRE(again == block);
    peer_writes();
    require_seen();
    f.FreeAsync(again);
  }
  f.FreeAsync(large, side);
  REQUIRE(f.heap().Trim(20 * kMiB).ok());
  REQUIRE(f.heap().EmptyCache().ok());
  mapped = peer->StillMapped() && mapped;
  if (pin) {
    REQUIRE(f.Stats().reserved_bytes == f.Stats().pinned_bytes);
    peer_writes();
    require_seen();
  }
  const uint64_t more = f.Allocate(70 * kMiB, side);
  f.FreeAsync(more, side);
  f.heap().Trim(SIZE_MAX).ok();  // idle decay
  mapped = peer->StillMapped() && mapped;
  f.RequireValid();

  // Afterwards it is memory like any other.
  peer.reset();
  if (pin) REQUIRE(f.heap().UnpinRange(block + 512, bytes - 1024).ok());
  REQUIRE(f.Stats().pinned_bytes == 0);
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(sim::UsedBytes(0) == 0);
  return mapped;
}

sim::PeerHold AnyHold() {
  return GENERATE(sim::PeerHold::kRegistration, sim::PeerHold::kExport, sim::PeerHold::kRetain);
}

HeapOptions DecayingOptions(bool stitch) {
  HeapOptions options;
  options.stitch = stitch;
  options.idle_decay = 1e-9;
  options.release_threshold = 0;
  return options;
}

bool Reported(const std::string& part) {
  for (const sim::Report& report : sim::CheckerReports()) {
    if (report.text.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a pinned range survives misses, moves, trims and decay", "[pins]") {
  HeapFixture f(Device(96 * kMiB, GENERATE(true, false)), DecayingOptions(GENERATE(false, true)));
  REQUIRE(PeerSurvives(f, AnyHold(), /*pin=*/true));
  f.RequireNoRaces();
}

TEST_CASE("the same program without the pin corrupts the peer's memory", "[pins]") {
  HeapFixture f(Device(96 * kMiB, GENERATE(true, false)), DecayingOptions(GENERATE(false, true)));
  REQUIRE_FALSE(PeerSurvives(f, AnyHold(), /*pin=*/false));
  REQUIRE(Reported("remapped under a peer"));
}

TEST_CASE("pins are counted, and undone by the same range", "[pins]") {
  HeapFixture f;
  DeviceHeap& heap = f.heap();
  const uint64_t at = f.Allocate(9 * kMiB);
  REQUIRE(heap.PinRange(at, 9 * kMiB).ok());
  REQUIRE(heap.PinRange(at, 9 * kMiB).ok());
  REQUIRE(heap.PinRange(at + kMiB, 1).ok());
  const uint64_t pinned = f.Stats().pinned_bytes;
  REQUIRE(pinned >= 9 * kMiB);
  for (const auto& [begin, bytes] : {std::pair{at, kMiB}, {at + kMiB, 9 * kMiB}, {at, 0 * kMiB}}) {
    const HeapError error = heap.UnpinRange(begin, bytes);
    REQUIRE(error.code == WEIR_ERROR_INVALID_ARGUMENT);
    REQUIRE(error.text.find("is not pinned") != std::string::npos);
  }
  f.FreeAsync(at);
  REQUIRE(heap.UnpinRange(at, 9 * kMiB).ok());
  REQUIRE(f.Stats().pinned_bytes == pinned);
  REQUIRE(heap.UnpinRange(at, 9 * kMiB).ok());
  REQUIRE_FALSE(heap.UnpinRange(at, 9 * kMiB).ok());
  f.RequireValid();
  REQUIRE(heap.EmptyCache().ok());
  REQUIRE(f.Stats().reserved_bytes == f.Stats().pinned_bytes);
  REQUIRE(f.Stats().reserved_bytes > 0);
  REQUIRE(heap.UnpinRange(at + kMiB, 1).ok());
  REQUIRE(heap.EmptyCache().ok());
  REQUIRE(f.Stats().reserved_bytes == 0);
  f.RequireValid();
}

TEST_CASE("a range that is not all mapped is refused, and nothing is pinned", "[pins]") {
  HeapFixture f(Device(512 * kMiB, GENERATE(true, false)));
  DeviceHeap& heap = f.heap();
  const uint64_t at = f.Allocate(4 * kMiB);
  REQUIRE(heap.PinRange(at, 1 * kGiB).code == WEIR_ERROR_NOT_OWNED);
  REQUIRE(heap.PinRange(at + 512 * kMiB, 8).code == WEIR_ERROR_NOT_OWNED);
  REQUIRE(heap.PinRange(0, 8).code == WEIR_ERROR_NOT_OWNED);
  REQUIRE(heap.PinRange(4096, 8).code == WEIR_ERROR_NOT_OWNED);
  REQUIRE(heap.PinRange(at, 0).code == WEIR_ERROR_INVALID_ARGUMENT);
  REQUIRE(heap.PinRange(at, UINT64_MAX).code == WEIR_ERROR_INVALID_ARGUMENT);
  REQUIRE(f.Stats().pinned_bytes == 0);
  f.FreeAsync(at);
  REQUIRE(heap.EmptyCache().ok());
  REQUIRE(f.Stats().reserved_bytes == 0);
  REQUIRE(heap.PinRange(at, 8).code == WEIR_ERROR_NOT_OWNED);
}

TEST_CASE("a report of a failure says what is pinned", "[pins]") {
  HeapFixture f(Device(64 * kMiB));
  const uint64_t at = f.Allocate(40 * kMiB);
  REQUIRE(f.heap().PinRange(at, 40 * kMiB).ok());
  f.FreeAsync(at);
  const CUstream side = f.NewStream();
  HeapError error;
  REQUIRE(f.heap().Allocate(50 * kMiB, 512, side, &error) == 0);
  REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
  const auto report = f.heap().LastReport();
  REQUIRE(report != nullptr);
  REQUIRE(report->of(OomReport::Reason::kPinned).bytes == 40 * kMiB);
  REQUIRE(report->idle == 0);
  REQUIRE(OomText(*report).find("pinned") != std::string::npos);
  REQUIRE(OomJson(*report).find("\"reason\":\"pinned\",\"bytes\":41943040") != std::string::npos);
  REQUIRE(error.text.find("weir_unpin_range") != std::string::npos);
  REQUIRE(f.heap().UnpinRange(at, 40 * kMiB).ok());
  REQUIRE(f.heap().Allocate(50 * kMiB, 512, side, &error) != 0);
}

TEST_CASE("a stream that ends leaves pinned memory where it is", "[pins]") {
  HeapFixture f(Device(64 * kMiB));
  const CUstream stream = f.NewStream();
  const uint64_t at = f.Allocate(20 * kMiB, stream);
  REQUIRE(f.heap().PinRange(at, 20 * kMiB).ok());
  sim::Peer peer(at, 20 * kMiB);
  f.FreeAsync(at, stream);
  REQUIRE(f.heap().StreamDestroyed(stream).ok());
  f.device().DestroyStream(stream);
  f.FreeAsync(f.Allocate(30 * kMiB));
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(peer.StillMapped());
  // Others borrow it where it is.
  const uint64_t a = f.Allocate(40 * kMiB);
  const uint64_t b = f.Allocate(19 * kMiB);
  REQUIRE(b == at);
  REQUIRE(peer.StillMapped());
  f.FreeAsync(a);
  f.FreeAsync(b);
  REQUIRE(f.heap().UnpinRange(at, 20 * kMiB).ok());
  f.RequireValid();
  f.RequireNoRaces();
}

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
  uint64_t remapped = 0, stitched = 0;
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
    stitched += pinned.stats.stitched_bytes;
  }
  REQUIRE(remapped > 0);
  REQUIRE(stitched > 0);
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
