// Memory between blocks in use, for other streams: no stream keeps an island that others need.
#include <vector>

#include "tests/pool/heap_fixture.h"

namespace weir {

using test::HeapFixture;

namespace {

constexpr uint64_t kDevice = 16 * kMiB;

sim::Config SmallDevice() {
  sim::Config config;
  config.memory_bytes = kDevice;
  return config;
}

// Fills the device from `stream` so that every granule has one small block in use and the rest of
// it is free. The blocks in use.
std::vector<uint64_t> MakeIslands(HeapFixture& f, Stream stream, uint64_t small) {
  std::vector<uint64_t> pins, fillers;
  const uint64_t filler = 2 * kMiB - small;
  for (uint64_t held = 0; held < kDevice; held += 2 * kMiB) {
    pins.push_back(f.Allocate(small, stream));
    fillers.push_back(f.Allocate(filler, stream));
  }
  for (uint64_t at : fillers) {
    f.Write(stream, at, filler, "filler");
    f.FreeAsync(at, stream);
  }
  REQUIRE(sim::UsedBytes(0) == kDevice);
  return pins;
}

}  // namespace

TEST_CASE("free memory between blocks in use serves other streams when memory is short",
          "[borrow]") {
  for (uint64_t bytes : {uint64_t{700}, 100 * kKiB, kMiB}) {
    INFO(bytes << " bytes");
    HeapFixture f(SmallDevice());
    const CUstream first = f.NewStream(), second = f.NewStream();
    // Larger than a small block, so that the blocks lie in one arena.
    MakeIslands(f, first, 512 * kKiB);
    const uint64_t at = f.Allocate(bytes, second);
    f.Write(second, at, bytes);
    REQUIRE(f.Stats().borrowed_blocks == 1);
    REQUIRE(sim::UsedBytes(0) == kDevice);
    f.FreeAsync(at, second);
    f.RequireNoRaces();
    f.RequireValid();
  }
}

TEST_CASE("without borrowing such memory is out of reach", "[borrow]") {
  HeapOptions options;
  options.borrow = Borrowing::kNever;
  HeapFixture f(SmallDevice(), options);
  const CUstream first = f.NewStream(), second = f.NewStream();
  MakeIslands(f, first, 512 * kKiB);
  HeapError error;
  REQUIRE(f.heap().Allocate(kMiB, 512, second, &error) == 0);
  REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
  f.RequireValid();
}

TEST_CASE("for a small block the borrowing stream waits for the lender on the device, not the host",
          "[borrow]") {
  HeapFixture f(SmallDevice());
  const CUstream first = f.NewStream(), second = f.NewStream();
  sim::HoldStream(0, first);
  MakeIslands(f, first, 512 * kKiB);
  sim::ResetCallCounts();
  const uint64_t at = f.Allocate(100 * kKiB, second);
  f.Write(second, at, 100 * kKiB);
  REQUIRE(sim::CallCount("cuStreamWaitEvent") == 1);
  REQUIRE(sim::CallCount("cuEventSynchronize") + sim::CallCount("cuCtxSynchronize") == 0);
  REQUIRE(f.Stats().waits == 0);
  sim::ReleaseStream(0, first);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a large block is borrowed when the lender's work is complete, waited for at last",
          "[borrow]") {
  HeapFixture f(SmallDevice());
  const CUstream first = f.NewStream(), second = f.NewStream();
  MakeIslands(f, first, 512 * kKiB);
  sim::ResetCallCounts();
  const uint64_t at = f.Allocate(kMiB, second);
  f.Write(second, at, kMiB);
  REQUIRE(sim::CallCount("cuStreamWaitEvent") == 0);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a borrowed block returns to its arena when the borrower's work is complete",
          "[borrow]") {
  HeapFixture f(SmallDevice());
  const CUstream first = f.NewStream(), second = f.NewStream();
  const std::vector<uint64_t> pins = MakeIslands(f, first, 512 * kKiB);
  const uint64_t at = f.Allocate(kMiB, second);
  sim::HoldStream(0, second);
  f.Write(second, at, kMiB, "borrower");
  f.FreeAsync(at, second);
  f.RequireValid();
  // All that is free now, but not what the borrower still uses.
  std::vector<uint64_t> blocks;
  HeapError error;
  for (uint64_t i = 0; i + 1 < kDevice / (2 * kMiB); ++i) {
    blocks.push_back(f.Allocate(kMiB + 512 * kKiB, first));
    f.Write(first, blocks.back(), kMiB + 512 * kKiB, "lender");
    REQUIRE(blocks.back() != at);
  }
  sim::ReleaseStream(0, second);
  const uint64_t last = f.Allocate(kMiB + 512 * kKiB, first);
  f.Write(first, last, kMiB + 512 * kKiB, "lender");
  REQUIRE(last <= at);
  REQUIRE(at < last + kMiB + 512 * kKiB);
  for (uint64_t block : blocks) f.FreeAsync(block, first);
  f.FreeAsync(last, first);
  for (uint64_t pin : pins) f.FreeAsync(pin, first);
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(sim::UsedBytes(0) == 0);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("objects of a borrowed span are cached by the borrower, and the span goes home",
          "[borrow]") {
  HeapFixture f(SmallDevice());
  const CUstream first = f.NewStream(), second = f.NewStream();
  const std::vector<uint64_t> pins = MakeIslands(f, first, 512 * kKiB);
  std::vector<uint64_t> objects;
  for (int i = 0; i < 100; ++i) {
    objects.push_back(f.Allocate(1000, second));
    f.Write(second, objects.back(), 1000);
  }
  REQUIRE(f.Stats().borrowed_blocks == 1);
  f.FreeAsync(objects.back(), second);
  REQUIRE(f.Allocate(1000, second) == objects.back());
  for (uint64_t at : objects) f.FreeAsync(at, second);
  for (uint64_t pin : pins) f.FreeAsync(pin, first);
  f.RequireValid();
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(sim::UsedBytes(0) == 0);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("with borrow:small a small block is borrowed before new memory is made", "[borrow]") {
  for (const Borrowing borrow : {Borrowing::kPressure, Borrowing::kSmall}) {
    HeapOptions options;
    options.borrow = borrow;
    HeapFixture f({}, options);
    const CUstream first = f.NewStream(), second = f.NewStream();
    f.Allocate(700, first);
    const uint64_t reserved = f.Stats().reserved_bytes;
    const uint64_t at = f.Allocate(700, second);
    f.Write(second, at, 700);
    REQUIRE((f.Stats().reserved_bytes == reserved) == (borrow == Borrowing::kSmall));
    f.FreeAsync(at, second);
    f.RequireNoRaces();
    f.RequireValid();
  }
}

TEST_CASE("an arena's last freed block is lent in order too", "[borrow]") {
  HeapOptions options;
  options.borrow = Borrowing::kSmall;
  options.thread_cache_bytes = 0;
  HeapFixture f({}, options);
  const CUstream first = f.NewStream(), second = f.NewStream();
  const uint64_t a = f.Allocate(100 * kKiB, first);
  f.Allocate(100 * kKiB, first);
  sim::HoldStream(0, first);
  f.Write(first, a, 100 * kKiB);
  f.FreeAsync(a, first);
  const uint64_t b = f.Allocate(100 * kKiB, second);
  f.Write(second, b, 100 * kKiB);
  REQUIRE(b == a);
  sim::ReleaseStream(0, first);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("no event from outside enters a capture of the borrowing stream", "[borrow]") {
  HeapFixture f(SmallDevice());
  const CUstream first = f.NewStream(), second = f.NewStream();
  f.FreeAsync(f.Allocate(512, second), second);
  REQUIRE(f.heap().EmptyCache().ok());
  sim::HoldStream(0, first);
  MakeIslands(f, first, 512 * kKiB);
  f.device().BeginCapture(second);
  HeapError error;
  f.heap().Allocate(100 * kKiB, 512, second, &error);
  REQUIRE(sim::CallCount("cuStreamWaitEvent") == 0);
  REQUIRE(f.device().CaptureSurvives(second));
  sim::ReleaseStream(0, first);
  f.RequireNoUnorderedAccess();
  f.RequireValid();
}

TEST_CASE("lender and borrower may be destroyed while a block is borrowed", "[borrow]") {
  for (const bool destroy_lender : {true, false}) {
    HeapFixture f(SmallDevice());
    const CUstream first = f.NewStream(), second = f.NewStream();
    std::vector<uint64_t> pins = MakeIslands(f, first, 512 * kKiB);
    const uint64_t at = f.Allocate(kMiB, second), small = f.Allocate(700, second);
    f.Write(second, at, kMiB);
    f.Write(second, small, 700);
    const CUstream gone = destroy_lender ? first : second;
    REQUIRE(f.heap().StreamDestroyed(gone).ok());
    f.device().DestroyStream(gone);
    f.Free(at);
    f.Free(small);
    for (uint64_t pin : pins) f.Free(pin);
    REQUIRE(f.heap().EmptyCache().ok());
    REQUIRE(sim::UsedBytes(0) == 0);
    f.RequireNoRaces();
    f.RequireValid();
  }
}

}  // namespace weir
