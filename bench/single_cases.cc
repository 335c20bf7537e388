// One thread, one size: pair, lifo, fifo; and what crosses streams: ping_pong, record_use.
#include <array>
#include <cstdlib>

#include "bench/cases.h"

namespace weir::bench {
namespace {

constexpr size_t kPairSizes[] = {512,      4 * kKiB, 64 * kKiB, 256 * kKiB,
                                 1 * kMiB, 8 * kMiB, 64 * kMiB};
constexpr size_t kOrderSizes[] = {512, 64 * kKiB, 1 * kMiB};
constexpr size_t kOrderBlocks = 32;       // of lifo and fifo, live at once
constexpr size_t kCrossBytes = 1 * kMiB;  // of ping_pong and record_use
constexpr int kWarmUp = 1000;             // pairs

class NoFixture : public Fixture {};

void Begin(const std::string& name) {
  FixtureOf(name, [] { return std::make_unique<NoFixture>(); });
}

constexpr char kNoMemory[] = "the allocation failed";

void RunPair(benchmark::State& state, const std::string& name, size_t bytes) {
  Begin(name);
  for (int i = 0; i < kWarmUp; ++i) {
    if (void* p = Allocate(bytes, nullptr)) Free(p, bytes, nullptr);
  }
  const DriverCallCount calls(state);
  for (auto _ : state) {
    void* p = Allocate(bytes, nullptr);
    if (p == nullptr) {
      state.SkipWithError(kNoMemory);
      break;
    }
    benchmark::DoNotOptimize(p);
    Free(p, bytes, nullptr);
  }
}

// Allocates kOrderBlocks, then frees them: the last first (lifo) or the first first (fifo).
template <bool kLifo>
bool RoundOfBlocks(size_t bytes) {
  std::array<void*, kOrderBlocks> blocks;
  bool all = true;
  for (void*& block : blocks) {
    block = Allocate(bytes, nullptr);
    all = all && block != nullptr;
  }
  if (!all) return false;  // what was allocated stays so: the case ends
  benchmark::DoNotOptimize(blocks.data());
  for (size_t i = 0; i < kOrderBlocks; ++i) {
    Free(blocks[kLifo ? kOrderBlocks - 1 - i : i], bytes, nullptr);
  }
  return true;
}

template <bool kLifo>
void RunOrder(benchmark::State& state, const std::string& name, size_t bytes) {
  Begin(name);
  for (size_t i = 0; i < kWarmUp / kOrderBlocks; ++i) RoundOfBlocks<kLifo>(bytes);
  const DriverCallCount calls(state);
  while (state.KeepRunningBatch(kOrderBlocks)) {
    if (!RoundOfBlocks<kLifo>(bytes)) {
      state.SkipWithError(kNoMemory);
      break;
    }
  }
}

// A block goes from one stream to the other and back: each pair allocates on the stream in whose
// order the last block was freed.
bool PingPongPair(Stream from, Stream to) {
  void* p = Allocate(kCrossBytes, from);
  if (p == nullptr) return false;
  benchmark::DoNotOptimize(p);
  FreeAfterUse(p, kCrossBytes, from, to);
  return true;
}

bool RecordUsePair(Stream stream, Stream other) {
  void* p = Allocate(kCrossBytes, stream);
  if (p == nullptr) return false;
  benchmark::DoNotOptimize(p);
  RecordUse(p, other);
  Free(p, kCrossBytes, stream);
  return true;
}

template <bool kSwap, typename Pair>
void RunCross(benchmark::State& state, const std::string& name, Pair pair) {
  Begin(name);
  Stream one = StreamAt(0);
  Stream two = StreamAt(1);
  for (int i = 0; i < kWarmUp; ++i) {
    pair(one, two);
    if (kSwap) std::swap(one, two);
  }
  const DriverCallCount calls(state);
  for (auto _ : state) {
    if (!pair(one, two)) {
      state.SkipWithError(kNoMemory);
      break;
    }
    if (kSwap) std::swap(one, two);
  }
}

}  // namespace

void AddSingleCases() {
  for (const size_t bytes : kPairSizes) {
    const std::string name = CaseName("pair", std::to_string(bytes));
    AddCase(name, [=](benchmark::State& state) { RunPair(state, name, bytes); });
  }
  for (const size_t bytes : kOrderSizes) {
    const std::string name = CaseName("lifo", std::to_string(bytes));
    AddCase(name, [=](benchmark::State& state) { RunOrder<true>(state, name, bytes); });
  }
  for (const size_t bytes : kOrderSizes) {
    const std::string name = CaseName("fifo", std::to_string(bytes));
    AddCase(name, [=](benchmark::State& state) { RunOrder<false>(state, name, bytes); });
  }
  const std::string ping_pong = CaseName("ping_pong");
  const std::string record_use = CaseName("record_use");
  if (!Info().device) {
    AddSkippedCase(ping_pong, "CPU memory has no streams");
    AddSkippedCase(record_use, "CPU memory has no streams");
    return;
  }
  AddCase(ping_pong,
          [=](benchmark::State& state) { RunCross<true>(state, ping_pong, PingPongPair); });
  if (!Info().record_use) {
    AddSkippedCase(record_use, "the allocator cannot be told of a use on another stream");
    return;
  }
  AddCase(record_use,
          [=](benchmark::State& state) { RunCross<false>(state, record_use, RecordUsePair); });
}

}  // namespace weir::bench
