// Pinned ranges: whoever holds the physical pages keeps seeing what the addresses show. A simulated
// peer holds them and goes on reading and writing.
#include <memory>
#include <utility>

#include "tests/pool/pins_fixture.h"

namespace weir {
namespace {

using test::DecayingOptions;
using test::Device;
using test::HeapFixture;

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
  REQUIRE(test::Compact(f, 0).ok());
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

}  // namespace weir
