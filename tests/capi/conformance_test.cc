// What weir/weir.h promises about blocks, limits and statistics. Runs on every source of memory:
// mapped, classic, passthrough.
#include <set>
#include <vector>

#include "tests/capi/simulated_weir.h"
#include "weir/inspect.h"

namespace weir::test {
namespace {

TEST_CASE("blocks are aligned, distinct, and as large as asked", "[capi]") {
  const SimulatedWeir weir;
  std::set<void*> blocks;
  for (size_t bytes : kSizes) {
    INFO(bytes);
    void* block = weir_malloc(bytes);
    REQUIRE(block != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(block) % 512 == 0);
    CHECK(weir_usable_size(block) >= bytes);
    CHECK(blocks.insert(block).second);
    // The whole block is writable, to its last byte.
    CHECK(weir_memset(block, 1, bytes) == WEIR_OK);
  }
  for (void* block : blocks) CHECK(weir_free(block) == WEIR_OK);
}

TEST_CASE("a request of no bytes gives a block of its own", "[capi]") {
  const SimulatedWeir weir;
  void* first = weir_malloc(0);
  void* second = weir_malloc_async(0, nullptr);
  REQUIRE(first != nullptr);
  REQUIRE(second != nullptr);
  CHECK(first != second);
  CHECK(SimulatedWeir::Stats().requested_bytes == 0);
  CHECK(SimulatedWeir::Stats().allocations == 2);
  CHECK(weir_free(first) == WEIR_OK);
  CHECK(weir_free_async(second, nullptr) == WEIR_OK);
}

TEST_CASE("a padded block has the room, and counts as what was asked", "[capi]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  for (const auto& [bytes, padded] : {std::pair<size_t, size_t>{700, 1024},
                                      {17000, 32768},
                                      {16300, 32000},  // 16 KiB more than was asked
                                      {16384, 32768},
                                      {100 * 1024, 128 * 1024},
                                      {5 << 20, 8 << 20},
                                      {4096, 4096}}) {
    INFO(bytes);
    const uint64_t before = SimulatedWeir::Stats(0).requested_bytes;
    void* block = weir_malloc_padded_async_device(bytes, padded, 0, nullptr);
    REQUIRE(block != nullptr);
    CHECK(weir_usable_size(block) >= padded);
    CHECK(SimulatedWeir::Stats(0).requested_bytes == before + bytes);
    weir_block_info_t info;
    CHECK(weir_find_block(block, &info, nullptr) == WEIR_OK);
    CHECK(info.requested_bytes == bytes);
    CHECK(weir_free_ordered(block) == WEIR_OK);
    CHECK(SimulatedWeir::Stats(0).requested_bytes == before);
  }
  for (const size_t wrong : {99, 202}) {
    CHECK(weir_malloc_padded_async_device(100, wrong, 0, nullptr) == nullptr);
    CHECK(weir_last_status() == WEIR_ERROR_INVALID_ARGUMENT);
  }
  CHECK(weir_verify() == WEIR_OK);
}

TEST_CASE("every power of two up to 2 MiB is an alignment, and nothing else is", "[capi]") {
  const SimulatedWeir weir;
  for (size_t alignment = 1; alignment <= 2 * kMiB; alignment *= 2) {
    for (size_t bytes : {size_t{1}, size_t{3000}, size_t{300000}, 3 * kMiB}) {
      INFO(alignment << " " << bytes);
      void* any = weir_aligned_alloc(alignment, bytes);
      void* owned = weir_aligned_alloc_async(alignment, bytes, nullptr);
      REQUIRE(any != nullptr);
      REQUIRE(owned != nullptr);
      CHECK(reinterpret_cast<uintptr_t>(any) % alignment == 0);
      CHECK(reinterpret_cast<uintptr_t>(owned) % alignment == 0);
      CHECK(weir_free(any) == WEIR_OK);
      CHECK(weir_free_async(owned, nullptr) == WEIR_OK);
    }
  }
  for (size_t alignment : {size_t{0}, size_t{3}, size_t{1000}, 4 * kMiB, SIZE_MAX}) {
    INFO(alignment);
    CHECK(weir_aligned_alloc(alignment, 64) == nullptr);
    CHECK(weir_last_status() == WEIR_ERROR_INVALID_ARGUMENT);
    CHECK(ErrorSays("power of two"));
  }
}

TEST_CASE("freeing NULL does nothing and succeeds", "[capi]") {
  const SimulatedWeir weir;
  CHECK(weir_free(nullptr) == WEIR_OK);
  CHECK(weir_free_async(nullptr, nullptr) == WEIR_OK);
  CHECK(weir_usable_size(nullptr) == 0);
}

TEST_CASE("a pointer that is not the start of a block is not owned, and nothing happens",
          "[capi]") {
  const SimulatedWeir weir;
  int local = 0;
  std::vector<char> host(5000);
  std::vector<void*> blocks;
  std::vector<void*> wrong = {&local, host.data(), reinterpret_cast<void*>(8),
                              reinterpret_cast<void*>(UINTPTR_MAX),
                              reinterpret_cast<void*>(uintptr_t{1} << 50)};
  for (size_t bytes : {size_t{2000}, size_t{40000}, size_t{400000}, 7 * kMiB}) {
    blocks.push_back(weir_malloc(bytes));
    REQUIRE(blocks.back() != nullptr);
    auto* begin = static_cast<char*>(blocks.back());
    wrong.insert(wrong.end(), {begin + 1, begin + 512, begin + bytes - 1});
  }
  const weir_stats_t before = SimulatedWeir::Stats();
  for (void* pointer : wrong) {
    INFO(pointer);
    CHECK(weir_free(pointer) == WEIR_ERROR_NOT_OWNED);
    CHECK(weir_last_status() == WEIR_ERROR_NOT_OWNED);
    CHECK(weir_free_async(pointer, nullptr) == WEIR_ERROR_NOT_OWNED);
    CHECK(weir_record_use(pointer, nullptr) == WEIR_ERROR_NOT_OWNED);
    CHECK(weir_usable_size(pointer) == 0);
  }
  const weir_stats_t after = SimulatedWeir::Stats();
  CHECK(after.allocations == before.allocations);
  CHECK(after.requested_bytes == before.requested_bytes);
  for (void* block : blocks) CHECK(weir_free(block) == WEIR_OK);
}

TEST_CASE("a second free is told apart and does no harm", "[capi]") {
  const SimulatedWeir weir;
  for (size_t bytes : kSizes) {
    INFO(bytes);
    void* block = weir_malloc(bytes);
    REQUIRE(block != nullptr);
    CHECK(weir_free(block) == WEIR_OK);
    CHECK(weir_free(block) == WEIR_ERROR_DOUBLE_FREE);
    CHECK(weir_usable_size(block) == 0);
    void* owned = weir_malloc_async(bytes, nullptr);
    REQUIRE(owned != nullptr);
    CHECK(weir_free_async(owned, nullptr) == WEIR_OK);
    CHECK(weir_free_async(owned, nullptr) == WEIR_ERROR_DOUBLE_FREE);
    CHECK(weir_verify() == WEIR_OK);
  }
}

TEST_CASE("a request beyond the device fails without touching anything", "[capi]") {
  const SimulatedWeir weir;
  void* kept = weir_malloc(3 * kMiB);
  REQUIRE(kept != nullptr);
  const uint64_t reserved = SimulatedWeir::Stats().reserved_bytes;
  const uint64_t failed = SimulatedWeir::Stats().out_of_memory;
  const size_t absurd[] = {kDeviceBytes + 1, size_t{1} << 40, size_t{1} << 48,     size_t{1} << 63,
                           SIZE_MAX - 511,   SIZE_MAX - 4095, SIZE_MAX - 2 * kMiB, SIZE_MAX};
  for (size_t bytes : absurd) {
    INFO(bytes);
    CHECK(weir_malloc(bytes) == nullptr);
    CHECK(weir_last_status() == WEIR_ERROR_OUT_OF_MEMORY);
    CHECK(weir_malloc_async(bytes, nullptr) == nullptr);
    CHECK(weir_last_status() == WEIR_ERROR_OUT_OF_MEMORY);
    CHECK(weir_aligned_alloc(2 * kMiB, bytes) == nullptr);
    CHECK(weir_last_status() == WEIR_ERROR_OUT_OF_MEMORY);
  }
  CHECK(SimulatedWeir::Stats().reserved_bytes == reserved);
  CHECK(SimulatedWeir::Stats().out_of_memory == failed + 3 * std::size(absurd));
  CHECK(weir_free(kept) == WEIR_OK);
}

TEST_CASE("calloc gives zeroed memory, and refuses a product that overflows", "[capi]") {
  const SimulatedWeir weir;
  constexpr size_t kCount = 1000;
  void* dirty = weir_malloc(kCount * 8);
  REQUIRE(weir_memset(dirty, 0xff, kCount * 8) == WEIR_OK);
  REQUIRE(weir_free(dirty) == WEIR_OK);
  void* block = weir_calloc(kCount, 8);
  REQUIRE(block != nullptr);
  std::vector<char> host(kCount * 8, 1);
  REQUIRE(weir_memcpy(host.data(), block, host.size()) == WEIR_OK);
  CHECK(host == std::vector<char>(host.size(), 0));
  CHECK(weir_free(block) == WEIR_OK);

  CHECK(weir_calloc(SIZE_MAX / 2, 3) == nullptr);
  CHECK(weir_last_status() == WEIR_ERROR_OUT_OF_MEMORY);
  void* empty = weir_calloc(0, 8);
  CHECK(empty != nullptr);
  CHECK(weir_free(empty) == WEIR_OK);
}

TEST_CASE("statistics nest, count, and keep their peaks until reset", "[capi]") {
  const SimulatedWeir weir;
  REQUIRE(weir_reset_peak_stats(0) == WEIR_OK);
  const weir_stats_t before = SimulatedWeir::Stats();
  std::vector<void*> blocks;
  uint64_t requested = 0;
  for (size_t bytes : kSizes) {
    blocks.push_back(weir_malloc(bytes));
    requested += bytes;
    const weir_stats_t stats = SimulatedWeir::Stats();
    CHECK(stats.requested_bytes == requested);
    CHECK(stats.requested_bytes <= stats.allocated_bytes);
    CHECK(stats.allocated_bytes <= stats.active_bytes);
    CHECK(stats.active_bytes <= stats.reserved_bytes);
    CHECK(stats.cached_bytes == stats.reserved_bytes - stats.active_bytes);
    CHECK(stats.allocations == blocks.size());
  }
  for (void* block : blocks) REQUIRE(weir_free(block) == WEIR_OK);
  weir_stats_t stats = SimulatedWeir::Stats();
  CHECK(stats.requested_bytes == 0);
  CHECK(stats.peak_requested_bytes == requested);
  CHECK(stats.peak_allocations == blocks.size());
  CHECK(stats.total_allocations == before.total_allocations + blocks.size());
  CHECK(stats.total_requested_bytes == before.total_requested_bytes + requested);
  REQUIRE(weir_reset_peak_stats(0) == WEIR_OK);
  stats = SimulatedWeir::Stats();
  CHECK(stats.peak_requested_bytes == 0);
  CHECK(stats.total_requested_bytes == before.total_requested_bytes + requested);
}

TEST_CASE("what is idle goes back to the device when the cache is emptied", "[capi]") {
  const SimulatedWeir weir;
  std::vector<void*> blocks;
  for (size_t bytes : kSizes) blocks.push_back(weir_malloc(bytes));
  for (void* block : blocks) REQUIRE(weir_free(block) == WEIR_OK);
  CHECK(weir_empty_cache(0) == WEIR_OK);
  CHECK(SimulatedWeir::Stats().reserved_bytes == 0);
  CHECK(sim::UsedBytes(0) == 0);
}

TEST_CASE("trimming stops at what shall be kept", "[capi]") {
  const SimulatedWeir weir;
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(weir_malloc(10 * kMiB));
  for (void* block : blocks) REQUIRE(weir_free(block) == WEIR_OK);
  const uint64_t reserved = SimulatedWeir::Stats().reserved_bytes;
  CHECK(weir_trim(0, SIZE_MAX) == WEIR_OK);
  CHECK(SimulatedWeir::Stats().reserved_bytes == reserved);
  CHECK(weir_trim(0, 40 * kMiB) == WEIR_OK);
  CHECK(SimulatedWeir::Stats().reserved_bytes <= 40 * kMiB);
  if (TestOptions().empty()) CHECK(SimulatedWeir::Stats().reserved_bytes >= 20 * kMiB);
}

TEST_CASE("nothing is reserved beyond the memory limit", "[capi]") {
  const SimulatedWeir weir;
  REQUIRE(weir_set_memory_limit(0, 50 * kMiB) == WEIR_OK);
  CHECK(SimulatedWeir::Stats().memory_limit == 50 * kMiB);
  void* small = weir_malloc(20 * kMiB);
  REQUIRE(small != nullptr);
  CHECK(weir_malloc(40 * kMiB) == nullptr);
  CHECK(weir_last_status() == WEIR_ERROR_OUT_OF_MEMORY);
  CHECK(SimulatedWeir::Stats().reserved_bytes <= 50 * kMiB);
  size_t free = 0;
  size_t total = 0;
  CHECK(weir_mem_get_info(0, &free, &total) == WEIR_OK);
  CHECK(free <= 30 * kMiB);
  REQUIRE(weir_set_memory_limit(0, SIZE_MAX) == WEIR_OK);
  void* large = weir_malloc(40 * kMiB);
  CHECK(large != nullptr);
  CHECK(weir_free(small) == WEIR_OK);
  CHECK(weir_free(large) == WEIR_OK);
}

TEST_CASE("free memory is the device's plus what lies idle in Weir", "[capi]") {
  const SimulatedWeir weir;
  size_t free = 0;
  size_t total = 0;
  void* block = weir_malloc(100 * kMiB);
  REQUIRE(block != nullptr);
  REQUIRE(weir_mem_get_info(0, &free, &total) == WEIR_OK);
  CHECK(total == kDeviceBytes);
  CHECK(free <= kDeviceBytes - 100 * kMiB);
  REQUIRE(weir_free(block) == WEIR_OK);
  REQUIRE(weir_mem_get_info(0, &free, &total) == WEIR_OK);
  CHECK(free == kDeviceBytes);
}

}  // namespace
}  // namespace weir::test
