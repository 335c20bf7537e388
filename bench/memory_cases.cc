// Many sizes and many blocks: random, random_large, free_blocks.
#include <chrono>
#include <cmath>

#include "bench/cases.h"

namespace weir::bench {
namespace {

constexpr size_t kSampledSizes = 4096;  // drawn before, so that drawing is not measured
constexpr size_t kChurnedBlocks = 64;   // live among free ones in random_large and free_blocks
// Times grow while churn breaks the free blocks up, so that all begin to be measured after as many
// pairs; those that take microseconds for one after less, or it would take minutes.
constexpr int kWarmUpPairs = 200000;
constexpr auto kMostWarmUpTime = std::chrono::milliseconds(500);

// 512 B, 1 KiB, ... 4 MiB, each as likely.
size_t PowerOfTwo(Random& random) { return size_t{512} << random.Below(14); }

// Whole multiples of 512 B, each doubling as likely.
size_t LogUniform(Random& random, size_t least, size_t most) {
  const double u = static_cast<double>(random.Next() >> 11) * 0x1p-53;
  const double bytes = static_cast<double>(least) *
                       std::pow(static_cast<double>(most) / static_cast<double>(least), u);
  return (static_cast<size_t>(bytes) + 511) / 512 * 512;
}
size_t Small(Random& random) { return LogUniform(random, 512, 256 * kKiB); }
size_t Large(Random& random) { return LogUniform(random, 512 * kKiB, 64 * kMiB); }

using DrawSize = size_t (*)(Random&);

// Blocks of random sizes: `live` of them, replaced one by one at random; and before that, `free`
// free blocks that cannot be merged, because live ones stand between them.
class Churn : public Fixture {
 public:
  Churn(DrawSize draw, size_t live, size_t free) : blocks_(live) {
    sizes_.reserve(kSampledSizes);
    for (size_t i = 0; i < kSampledSizes; ++i) sizes_.push_back(draw(random_));
    failed_ = !FreeEverySecond(free);
    const auto end = std::chrono::steady_clock::now() + kMostWarmUpTime;
    for (int i = 0; i < kWarmUpPairs && !failed_; ++i) {
      failed_ = !Step();
      if (i % 64 == 0 && std::chrono::steady_clock::now() > end) break;
    }
  }

  ~Churn() override {
    FreeAll(blocks_);
    FreeAll(between_);
  }

  bool failed() const { return failed_; }

  // Frees one block and allocates another. False if there was no memory.
  bool Step() {
    Block& block = blocks_[random_.Below(blocks_.size())];
    if (block.pointer != nullptr) Free(block.pointer, block.bytes, nullptr);
    block.bytes = sizes_[random_.Below(kSampledSizes)];
    block.pointer = Allocate(block.bytes, nullptr);
    return block.pointer != nullptr;
  }

 private:
  bool FreeEverySecond(size_t free) {
    std::vector<Block> all(2 * free);
    bool complete = true;
    for (Block& block : all) {
      block.bytes = sizes_[random_.Below(kSampledSizes)];
      block.pointer = Allocate(block.bytes, nullptr);
      complete = complete && block.pointer != nullptr;
    }
    between_.reserve(free);
    for (size_t i = 0; i < all.size(); ++i) {
      if (i % 2 == 0) {
        between_.push_back(all[i]);
      } else if (all[i].pointer != nullptr) {
        Free(all[i].pointer, all[i].bytes, nullptr);
      }
    }
    return complete;
  }

  static void FreeAll(std::vector<Block>& blocks) {
    for (const Block& block : blocks) {
      if (block.pointer != nullptr) Free(block.pointer, block.bytes, nullptr);
    }
  }

  Random random_{0x9E3779B97F4A7C15ULL};
  std::vector<size_t> sizes_;
  std::vector<Block> blocks_;
  std::vector<Block> between_;
  bool failed_ = false;
};

void RunChurn(benchmark::State& state, const std::string& name, DrawSize draw, size_t live,
              size_t free) {
  Churn& churn = FixtureOf(name, [&] { return std::make_unique<Churn>(draw, live, free); });
  bool good = !churn.failed();
  const DriverCallCount calls(state);
  while (good && state.KeepRunning()) good = churn.Step();
  if (!good) state.SkipWithError("an allocation failed");
}

// Mean bytes of a size drawn, for what a case needs.
uint64_t Mean(DrawSize draw) {
  Random random(1);
  uint64_t sum = 0;
  for (size_t i = 0; i < kSampledSizes; ++i) sum += draw(random);
  return sum / kSampledSizes;
}

void Add(const std::string& group, DrawSize draw, size_t live, size_t free, size_t parameter) {
  const std::string name = CaseName(group, std::to_string(parameter));
  const uint64_t blocks = live + 2 * free;
  AddCaseWithin(name, blocks - live, blocks * Mean(draw),
                [=](benchmark::State& state) { RunChurn(state, name, draw, live, free); });
}

}  // namespace

void AddMemoryCases() {
  Add("random", PowerOfTwo, 1024, 0, 1024);
  for (const size_t free : {1000, 10000, 100000}) {
    Add("random_large", Large, kChurnedBlocks, free, free);
  }
  for (const size_t free : {10, 100, 1000, 10000, 100000}) {
    Add("free_blocks", Small, kChurnedBlocks, free, free);
  }
}

}  // namespace weir::bench
