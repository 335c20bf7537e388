// What weir/weir.h promises about each function's arguments and results. Runs on every source of
// memory: mapped, classic, passthrough.
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "tests/capi/simulated_weir.h"

namespace weir::test {
namespace {

// Sizes on both sides of every border between the pool's ways to serve them.
const size_t kSizes[] = {1,         100,       512,    513,     4096,     32768,        32769,
                         131072,    262144,    262145, 1048576, 2 * kMiB, 2 * kMiB + 1, 5 * kMiB,
                         20 * kMiB, 100 * kMiB};

bool ErrorSays(const std::string& part) {
  INFO(weir_last_error());
  return std::string(weir_last_error()).find(part) != std::string::npos;
}

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

TEST_CASE("bytes copied to the device come back, on every kind of transfer", "[capi]") {
  const SimulatedWeir weir;
  const weir_stream_t stream = NewStream();
  constexpr size_t kBytes = 100000;
  std::vector<unsigned char> sent(kBytes);
  for (size_t i = 0; i < kBytes; ++i) sent[i] = static_cast<unsigned char>(i * 7 + i / 256);
  std::vector<unsigned char> received(kBytes);
  void* first = weir_malloc(kBytes);
  void* second = weir_malloc(kBytes);
  REQUIRE(weir_memcpy(first, sent.data(), kBytes) == WEIR_OK);
  REQUIRE(weir_memcpy_async(second, first, kBytes, stream) == WEIR_OK);
  REQUIRE(weir_memset_async(second, 0x155, 10, stream) == WEIR_OK);  // the value's low byte counts
  REQUIRE(weir_memcpy_async(received.data(), second, kBytes, stream) == WEIR_OK);
  {
    const CurrentDevice current(0);
    REQUIRE(DriverEntry<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize", 2000)(stream) ==
            CUDA_SUCCESS);
  }
  std::memset(sent.data(), 0x55, 10);
  CHECK(received == sent);
  CHECK(weir_free(first) == WEIR_OK);
  CHECK(weir_free(second) == WEIR_OK);
}

TEST_CASE("copies check their pointers", "[capi]") {
  const SimulatedWeir weir;
  char host[8] = {};
  CHECK(weir_memcpy(nullptr, host, 8) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_memcpy(host, nullptr, 8) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_memset(nullptr, 0, 8) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_memcpy(nullptr, nullptr, 0) == WEIR_OK);
  CHECK(weir_memset(nullptr, 0, 0) == WEIR_OK);
}

TEST_CASE("a device number that does not exist is refused by every function", "[capi]") {
  const SimulatedWeir weir;
  int count = 0;
  REQUIRE(weir_device_count(&count) == WEIR_OK);
  CHECK(count == 2);
  for (int device : {-1, 2, 1000, INT32_MIN}) {
    INFO(device);
    size_t bytes = 0;
    weir_stats_t stats;
    CHECK(weir_malloc_device(8, device) == nullptr);
    CHECK(weir_last_status() == WEIR_ERROR_NO_DEVICE);
    CHECK(weir_malloc_async_device(8, device, nullptr) == nullptr);
    CHECK(weir_last_status() == WEIR_ERROR_NO_DEVICE);
    CHECK(weir_aligned_alloc_device(512, 8, device) == nullptr);
    CHECK(weir_aligned_alloc_async_device(512, 8, device, nullptr) == nullptr);
    CHECK(weir_set_device(device) == WEIR_ERROR_NO_DEVICE);
    CHECK(weir_mem_get_info(device, &bytes, &bytes) == WEIR_ERROR_NO_DEVICE);
    CHECK(weir_empty_cache(device) == WEIR_ERROR_NO_DEVICE);
    CHECK(weir_trim(device, 0) == WEIR_ERROR_NO_DEVICE);
    CHECK(weir_set_memory_limit(device, 0) == WEIR_ERROR_NO_DEVICE);
    CHECK(weir_get_stats(device, &stats) == WEIR_ERROR_NO_DEVICE);
    CHECK(weir_reset_peak_stats(device) == WEIR_ERROR_NO_DEVICE);
    CHECK(ErrorSays("the driver lists 2"));
  }
  int device = -1;
  CHECK(weir_get_device(&device) == WEIR_OK);
  CHECK(device == 0);
}

TEST_CASE("a NULL result argument is refused", "[capi]") {
  const SimulatedWeir weir;
  size_t bytes = 0;
  CHECK(weir_device_count(nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_get_device(nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_get_stats(0, nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_mem_get_info(0, nullptr, &bytes) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_mem_get_info(0, &bytes, nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("a thread's device is what it set, else its current context's, else 0", "[capi]") {
  const SimulatedWeir weir;
  int fresh = -1;
  int with_context = -1;
  int after_set = -1;
  std::thread([&] { weir_get_device(&fresh); }).join();
  std::thread([&] {
    const CurrentDevice current(1);
    weir_get_device(&with_context);
    weir_set_device(0);
    weir_get_device(&after_set);
  }).join();
  CHECK(fresh == 0);
  CHECK(with_context == 1);
  CHECK(after_set == 0);

  REQUIRE(weir_set_device(1) == WEIR_OK);
  void* block = weir_malloc(1000);
  CHECK(SimulatedWeir::Stats(1).allocations == 1);
  CHECK(SimulatedWeir::Stats(0).allocations == 0);
  REQUIRE(weir_set_device(0) == WEIR_OK);
  CHECK(weir_usable_size(block) >= 1000);
  CHECK(weir_free(block) == WEIR_OK);  // from any thread and with any device set
  CHECK(SimulatedWeir::Stats(1).allocations == 0);
}

TEST_CASE("a block can be freed by a thread that did not allocate it", "[capi]") {
  const SimulatedWeir weir;
  void* block = nullptr;
  std::thread([&] { block = weir_malloc(5000); }).join();
  REQUIRE(block != nullptr);
  CHECK(weir_free(block) == WEIR_OK);
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

TEST_CASE("the last error belongs to its thread and outlives later successes", "[capi]") {
  const SimulatedWeir weir;
  CHECK(weir_malloc_device(8, 99) == nullptr);
  const std::string text = weir_last_error();
  CHECK(text.find("99") != std::string::npos);
  void* block = weir_malloc(8);
  CHECK(weir_free(block) == WEIR_OK);
  CHECK(weir_last_error() == text);
  CHECK(weir_last_status() == WEIR_ERROR_NO_DEVICE);
  std::string other = "unset";
  weir_status_t status = WEIR_ERROR_CORRUPT;
  std::thread([&] {
    other = weir_last_error();
    status = weir_last_status();
  }).join();
  CHECK(other.empty());
  CHECK(status == WEIR_OK);
}

TEST_CASE("a stream of another device is refused", "[capi]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;  // streams do not matter there
  const weir_stream_t stream = NewStream(1);
  CHECK(weir_malloc_async_device(1000, 0, stream) == nullptr);
  CHECK(weir_last_status() == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(ErrorSays("device 1"));
  void* block = weir_malloc_async_device(1000, 1, stream);
  CHECK(block != nullptr);
  CHECK(weir_free_async(block, stream) == WEIR_OK);
}

TEST_CASE("blocks of a destroyed stream can be used up and freed", "[capi]") {
  const SimulatedWeir weir;
  const weir_stream_t stream = NewStream();
  void* first = weir_malloc_async(3 * kMiB, stream);
  void* second = weir_malloc_async(3000, stream);
  REQUIRE(weir_free_async(first, stream) == WEIR_OK);
  REQUIRE(weir_stream_destroyed(stream) == WEIR_OK);
  CurrentDevice current(0);
  REQUIRE(DriverEntry<PFN_cuStreamDestroy_v4000>("cuStreamDestroy", 4000)(stream) == CUDA_SUCCESS);
  CHECK(weir_usable_size(second) >= 3000);
  CHECK(weir_free(second) == WEIR_OK);
  CHECK(weir_stream_destroyed(stream) == WEIR_OK);  // unknown by now: nothing to do
}

TEST_CASE("threads allocate and free at the same time", "[capi]") {
  const SimulatedWeir weir;
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  std::vector<int> failures(kThreads, 0);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t, &failures] {
      std::vector<void*> blocks;
      for (int i = 0; i < 300; ++i) {
        const size_t bytes = kSizes[static_cast<size_t>(i * 7 + t) % 12];
        void* block = weir_malloc_device(bytes, t % 2);
        failures[static_cast<size_t>(t)] += block == nullptr;
        blocks.push_back(block);
        if (blocks.size() < 8) continue;
        failures[static_cast<size_t>(t)] += weir_free(blocks.front()) != WEIR_OK;
        blocks.erase(blocks.begin());
      }
      for (void* block : blocks) failures[static_cast<size_t>(t)] += weir_free(block) != WEIR_OK;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == std::vector<int>(kThreads, 0));
}

TEST_CASE("the version is the project's", "[capi]") {
  CHECK(std::string(weir_version()) == WEIR_PROJECT_VERSION);
}

}  // namespace
}  // namespace weir::test
