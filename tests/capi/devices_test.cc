// What weir/weir.h promises about devices, streams, threads, copies and errors. Runs on every
// source of memory, as conformance_test.cc does.
#include <cstring>
#include <thread>
#include <vector>

#include "tests/capi/simulated_weir.h"

namespace weir::test {
namespace {

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
    REQUIRE(DriverEntry<CUresult(CUstream)>("cuStreamSynchronize", 2000)(stream) == CUDA_SUCCESS);
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

TEST_CASE("copies that name no stream run on the device that owns the memory", "[capi]") {
  const SimulatedWeir weir;
  REQUIRE(weir_set_device(0) == WEIR_OK);
  auto* block = static_cast<char*>(weir_malloc_device(1000, 1));
  REQUIRE(block != nullptr);
  char host[1000] = {};
  CHECK(weir_memset(block, 7, sizeof(host)) == WEIR_OK);
  CHECK(weir_memcpy(host, block, sizeof(host)) == WEIR_OK);
  CHECK(host[0] == 7);
  CHECK(host[999] == 7);
  CHECK(weir_free(block) == WEIR_OK);
}

TEST_CASE("giving back waits for the work of its own device, whichever is current (pytorch 196258)",
          "[capi][reports]") {
  const SimulatedWeir weir;
  const weir_stream_t stream = NewStream(1);
  for (int i = 0; i < 4; ++i) {
    const bool trim = i % 2 == 1, ordered = i / 2 == 1;
    void* block =
        ordered ? weir_malloc_async_device(5 * kMiB, 1, stream) : weir_malloc_device(5 * kMiB, 1);
    {
      const CurrentDevice current(1);
      const auto at = reinterpret_cast<CUdeviceptr>(block);
      REQUIRE(sim::Launch(stream, "queued", {{at, 5 * kMiB, true}}) == CUDA_SUCCESS);
    }
    REQUIRE(sim::QueuedOperations() > 0);
    const CurrentDevice current(0);
    REQUIRE((ordered ? weir_free_async(block, stream) : weir_free(block)) == WEIR_OK);
    if (!IsPassthrough()) CHECK(sim::QueuedOperations() > 0);  // a free waits for nothing
    REQUIRE((trim ? weir_trim(1, 0) : weir_empty_cache(1)) == WEIR_OK);
    CHECK(SimulatedWeir::Stats(1).reserved_bytes == 0);
    CHECK(sim::UsedBytes(1) == 0);
    sim::RunUntilIdle();
    CHECK(sim::CheckerReports().empty());
  }
  // Work that finds its memory unmapped breaks the context.
  void* block = weir_malloc_device(5 * kMiB, 1);
  CHECK(weir_memset(block, 1, 5 * kMiB) == WEIR_OK);
  CHECK(weir_free(block) == WEIR_OK);
}

TEST_CASE("a block can be freed by a thread that did not allocate it", "[capi]") {
  const SimulatedWeir weir;
  void* block = nullptr;
  std::thread([&] { block = weir_malloc(5000); }).join();
  REQUIRE(block != nullptr);
  CHECK(weir_free(block) == WEIR_OK);
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
  REQUIRE(DriverEntry<CUresult(CUstream)>("cuStreamDestroy", 4000)(stream) == CUDA_SUCCESS);
  CHECK(weir_usable_size(second) >= 3000);
  CHECK(weir_free(second) == WEIR_OK);
  CHECK(weir_stream_destroyed(stream) == WEIR_OK);  // unknown by now: nothing to do
}

TEST_CASE("allocating and freeing leave a stream capture valid", "[capi]") {
  const SimulatedWeir weir;
  const weir_stream_t stream = NewStream();
  void* before = weir_malloc_async(3 * kMiB, stream);
  const CurrentDevice current(0);
  REQUIRE(DriverEntry<CUresult(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture", 10010)(
              stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  void* inside = weir_malloc_async(7 * kMiB, stream);
  void* any = weir_malloc(9 * kMiB);
  CHECK(inside != nullptr);
  CHECK(any != nullptr);
  CHECK(weir_free_async(before, stream) == WEIR_OK);
  CHECK(weir_free(any) == WEIR_OK);  // waits for a marker that may not be recorded now
  void* more = weir_malloc(11 * kMiB);
  CHECK(more != nullptr);
  CUgraph graph = nullptr;
  CHECK(DriverEntry<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture", 10000)(stream, &graph) ==
        CUDA_SUCCESS);
  for (void* block : {inside, more}) CHECK(weir_free(block) == WEIR_OK);
  // What had to wait for the capture's end is not lost.
  CHECK(weir_empty_cache(0) == WEIR_OK);
  CHECK(SimulatedWeir::Stats().reserved_bytes == 0);
  CHECK(sim::UsedBytes(0) == 0);
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
