#include "allocator/block/ready_bins.h"

#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

Block MakeBlock(uint64_t begin, uint64_t bytes) {
  Block block;
  block.begin = begin;
  block.bytes = bytes;
  block.state = BlockState::kReady;
  return block;
}

}  // namespace

TEST_CASE("the best fit is the smallest block that fits, at the lowest address", "[bins]") {
  ReadyBins bins;
  Block a = MakeBlock(0x10000, 4096), b = MakeBlock(0x20000, 2048), c = MakeBlock(0x8000, 2048);
  for (Block* block : {&a, &b, &c}) bins.Insert(block);
  REQUIRE(bins.FindBestFit(1024, 512) == &c);
  bins.Remove(&c);
  REQUIRE(bins.FindBestFit(1024, 512) == &b);
  REQUIRE(bins.FindBestFit(2560, 512) == &a);
  REQUIRE(bins.FindBestFit(8192, 512) == nullptr);
}

TEST_CASE("a block that fits only unaligned is not a fit", "[bins]") {
  ReadyBins bins;
  Block a = MakeBlock(0x10200, 4096), b = MakeBlock(0x20000, 16384);
  bins.Insert(&a);
  REQUIRE(bins.FindBestFit(4096, 4096) == nullptr);
  bins.Insert(&b);
  REQUIRE(bins.FindBestFit(4096, 4096) == &b);
  REQUIRE(bins.FindBestFit(4096, 512) == &a);
}

TEST_CASE("bins agree with a sorted list under random insertions and removals", "[bins]") {
  std::mt19937_64 random(test::Seed());
  std::vector<Block> blocks(200);
  std::vector<Block*> in, out;
  for (size_t i = 0; i < blocks.size(); ++i) {
    // Distinct bins are dense enough that no bin exceeds the bound of the scan.
    blocks[i] = MakeBlock((i + 1) << 32, 512 * (1 + random() % (uint64_t{1} << (random() % 20))));
    out.push_back(&blocks[i]);
  }
  ReadyBins bins;
  for (int step = 0; step < 20000; ++step) {
    if (!out.empty() && (in.empty() || random() % 2 == 0)) {
      const size_t i = random() % out.size();
      bins.Insert(out[i]);
      in.push_back(out[i]);
      out.erase(out.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      const size_t i = random() % in.size();
      bins.Remove(in[i]);
      out.push_back(in[i]);
      in.erase(in.begin() + static_cast<std::ptrdiff_t>(i));
    }
    const uint64_t bytes = 512 * (1 + random() % (uint64_t{1} << (random() % 20)));
    Block* best = nullptr;
    for (Block* b : in) {
      if (b->bytes < bytes) continue;
      if (best == nullptr || b->bytes < best->bytes ||
          (b->bytes == best->bytes && b->begin < best->begin))
        best = b;
    }
    Block* found = bins.FindBestFit(bytes, 512);
    REQUIRE((found == nullptr) == (best == nullptr));
    if (in.size() <= 64) REQUIRE(found == best);
  }
}

}  // namespace weir
