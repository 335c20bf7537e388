// Pools that return to earlier states: every state that a pool was in comes back exactly, or
// nothing changes.
#include <cstdlib>
#include <map>
#include <random>

#include "allocator/pool/device_heap_restore.h"
#include "tests/pool/pool_source.h"

namespace weir::test {
namespace {

using Wanted = DeviceHeap::PoolRestore::Wanted;

class RestoreFixture : public CaptureFixture {
 public:
  explicit RestoreFixture(const sim::Config& config = Device(512 * kMiB))
      : CaptureFixture(config) {}
  PoolSource source{device()};
  uint64_t pool = 0;
  std::map<uint64_t, Wanted> live;  // what the pool has in use

  uint64_t AllocateInPool(uint64_t bytes, Stream stream) {
    Begin(pool);
    const uint64_t at = Allocate(bytes, stream);
    End(pool);
    live[at] = {at, heap().UsableSize(at), bytes, stream};
    return at;
  }
  void FreeInPool(uint64_t at) {
    FreeAsync(at, live.at(at).stream);
    live.erase(at);
  }
  HeapError TryRestore(const std::map<uint64_t, Wanted>& state) {
    std::vector<Wanted> wanted;
    for (const auto& [at, block] : state) wanted.push_back(block);
    std::reverse(wanted.begin(), wanted.end());  // in any order
    return DeviceHeap::PoolRestore(heap(), pool).Run(wanted);
  }
  void Restore(const std::map<uint64_t, Wanted>& state) {
    const HeapError error = TryRestore(state);
    INFO(error.text);
    REQUIRE(error.ok());
    live = state;
    RequireIs(live);
  }
  // The heap has exactly these blocks in use, besides `others`.
  void RequireIs(const std::map<uint64_t, Wanted>& state, uint64_t others = 0) {
    RequireValid();
    uint64_t requested = 0, allocated = 0;
    for (const auto& [at, block] : state) {
      REQUIRE(heap().UsableSize(at) == block.bytes);
      requested += block.requested;
      allocated += block.bytes;
    }
    const weir_stats_t stats = Stats();
    REQUIRE(stats.allocations == state.size() + others);
    if (others == 0) {
      REQUIRE(stats.requested_bytes == requested);
      REQUIRE(stats.allocated_bytes == allocated);
      REQUIRE(stats.active_bytes == allocated);
    }
  }
  void FreeAll() {
    while (!live.empty()) FreeInPool(live.begin()->first);
  }
};

unsigned Seed() {
  const char* seed = std::getenv("WEIR_TEST_SEED");
  return seed == nullptr ? 20261130u : static_cast<unsigned>(std::strtoul(seed, nullptr, 10));
}

uint64_t RandomBytes(std::mt19937* random) {
  switch ((*random)() % 4) {
    case 0:
      return 1 + (*random)() % 2000;
    case 1:
      return 1 + (*random)() % 40000;
    case 2:
      return 1 + (*random)() % 300000;
    default:
      return 1 + (*random)() % (4 * kMiB);
  }
}

TEST_CASE("random programs in a pool return to any of their states", "[restore]") {
  const int kind = GENERATE(0, 1, 2, 3);  // mapped, a source, without splitting, without mapping
  const unsigned seed = Seed() + static_cast<unsigned>(kind);
  INFO("kind " << kind << ", WEIR_TEST_SEED " << seed);
  std::mt19937 random(seed);
  RestoreFixture f(Device(1024 * kMiB, kind != 3));
  weir_pool_options_t options = kind == 1 ? f.source.Options() : weir_pool_options_t{};
  options.no_split = kind == 2;
  f.pool = f.NewPool(options);
  const CUstream streams[] = {f.NewStream(), f.NewStream(), kAnyStream};
  std::vector<std::map<uint64_t, Wanted>> states{{}};
  const size_t most = kind == 2 ? 12 : 60;
  std::map<uint64_t, uint8_t> values;
  for (int step = 0; step < 1500; ++step) {
    const auto what = random() % 100;
    if (what < 52 && f.live.size() < most) {
      f.AllocateInPool(RandomBytes(&random), streams[random() % 3]);
    } else if (what < 90 && !f.live.empty()) {
      f.FreeInPool(std::next(f.live.begin(), static_cast<long>(random() % f.live.size()))->first);
    } else if (what < 95) {
      states.push_back(f.live);
    } else {
      REQUIRE(f.device().entries().CtxSynchronize() == CUDA_SUCCESS);
      f.Restore(states[random() % states.size()]);
      // What is in use overlaps nothing: each block keeps what is written to it.
      values.clear();
      for (const auto& [at, block] : f.live) {
        const auto value = static_cast<uint8_t>(random());
        if (block.bytes > kMiB) continue;
        values[at] = value;
        f.Fill(nullptr, at, block.requested, value);
      }
      for (const auto& [at, value] : values) f.CheckNow(nullptr, at, f.live[at].requested, value);
    }
  }
  REQUIRE(f.device().entries().CtxSynchronize() == CUDA_SUCCESS);
  f.FreeAll();
  f.Release(f.pool);
  f.RequireNoRaces();
  f.RequireAllIsGivenBack();
  CHECK(f.source.segments() == 0);
  CHECK(f.source.wrong() == 0);
}

TEST_CASE("what cannot be restored is refused, and changes nothing", "[restore]") {
  RestoreFixture f;
  f.pool = f.NewPool();
  const CUstream stream = f.NewStream();
  const uint64_t large = f.AllocateInPool(6 * kMiB, stream);
  const uint64_t small = f.AllocateInPool(700, stream);
  const auto before = f.live;
  const uint64_t ordinary = f.Allocate(kMiB, stream);
  const auto refuses = [&](Wanted block, const char* why) {
    auto state = f.live;
    state[block.address] = block;
    const HeapError error = f.TryRestore(state);
    INFO(error.text);
    CHECK(error.code == WEIR_ERROR_INVALID_ARGUMENT);
    CHECK(error.text.find(why) != std::string::npos);
    f.RequireIs(f.live, /*others=*/1);
  };
  refuses({ordinary, kMiB, kMiB, stream}, "outside of the pool's memory");
  refuses({large + kMiB, kMiB, kMiB, stream}, "overlaps another one");
  refuses({small + 512, 512, 512, stream}, "overlaps another one");
  refuses({small + 1024, 512, 512, stream}, "in a span of blocks of other sizes");
  refuses({small + 1024, 1024, 1024, f.NewStream()}, "in a span of blocks of other sizes");
  refuses({large + 64 * kMiB, kMiB, kMiB, stream}, "no memory any more");
  refuses({large, 6 * kMiB, 6 * kMiB, f.NewStream()}, "belongs to another stream");
  refuses({large, 6 * kMiB, 7 * kMiB, stream}, "has ever had");
  refuses({large, 64 * kKiB, 64 * kKiB, stream}, "has ever had");
  refuses({large + 1, 6 * kMiB, 6 * kMiB, stream}, "has ever had");

  f.FreeInPool(large);
  REQUIRE(f.heap().EmptyPool(f.pool).ok());
  CHECK(f.TryRestore(before).text.find("no memory any more") != std::string::npos);
  f.RequireIs(f.live, 1);
  CHECK(DeviceHeap::PoolRestore(f.heap(), f.pool + 1).Run({}).code == WEIR_ERROR_INVALID_ARGUMENT);

  f.FreeAsync(ordinary, stream);
  f.FreeAll();
  f.Release(f.pool);
  f.RequireAllIsGivenBack();
}

TEST_CASE("a restore frees what waits for streams, and forgets recorded uses", "[restore]") {
  RestoreFixture f;
  f.pool = f.NewPool();
  const CUstream stream = f.NewStream(), other = f.NewStream();
  const uint64_t kept = f.AllocateInPool(kMiB, stream);
  const auto state = f.live;
  const uint64_t used = f.AllocateInPool(3 * kMiB, stream), freed = f.AllocateInPool(900, stream);
  for (const uint64_t at : {kept, used, freed}) REQUIRE(f.heap().RecordUse(at, other).ok());
  f.Read(other, freed, 900);
  f.FreeInPool(freed);
  CHECK(f.Stats().active_blocks == 3);
  REQUIRE(f.device().entries().CtxSynchronize() == CUDA_SUCCESS);
  f.Restore(state);
  const uint64_t again = f.AllocateInPool(3 * kMiB, stream);
  f.FreeInPool(again);
  f.FreeInPool(kept);
  f.Release(f.pool);
  f.RequireNoRaces();
  f.RequireAllIsGivenBack();
}

}  // namespace
}  // namespace weir::test
