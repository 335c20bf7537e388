// Thread caches behind the C functions: the hit that asks neither registry nor heap.
#include <thread>
#include <vector>

#include "tests/capi/simulated_weir.h"

namespace weir::test {
namespace {

const auto kLegacy = reinterpret_cast<weir_stream_t>(uintptr_t{1});

TEST_CASE("a thread that changes its device gets memory of that device, hit or not", "[capi]") {
  const SimulatedWeir weir;
  std::vector<void*> blocks;
  for (int round = 0; round < 20; ++round) {
    for (int device : {0, 1}) {
      REQUIRE(weir_set_device(device) == WEIR_OK);
      for (size_t bytes : kSizes) {
        REQUIRE(weir_free_async(weir_malloc_async(bytes, nullptr), nullptr) == WEIR_OK);
        blocks.push_back(weir_malloc_async(bytes, nullptr));  // what was just freed
      }
      REQUIRE(SimulatedWeir::Stats(device).allocations == blocks.size());
      REQUIRE(SimulatedWeir::Stats(1 - device).allocations == 0);
      // The device that is set does not matter for a free.
      if (round % 2 == 1) REQUIRE(weir_set_device(1 - device) == WEIR_OK);
      for (void* block : blocks) REQUIRE(weir_free_async(block, nullptr) == WEIR_OK);
      blocks.clear();
      REQUIRE(SimulatedWeir::Stats(device).allocations == 0);
    }
  }
  REQUIRE(weir_set_device(0) == WEIR_OK);
}

TEST_CASE("a freed block is found out whatever function frees it again", "[capi]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  const weir_stream_t stream = NewStream();
  for (size_t bytes : {size_t{1}, size_t{4096}, size_t{40000}, size_t{262144}}) {
    void* block = weir_malloc_async(bytes, stream);
    REQUIRE(weir_free_async(block, stream) == WEIR_OK);
    CHECK(weir_usable_size(block) == 0);
    CHECK(weir_free_async(block, stream) == WEIR_ERROR_DOUBLE_FREE);
    CHECK(weir_free(block) == WEIR_ERROR_DOUBLE_FREE);
    CHECK(weir_record_use(block, nullptr) == WEIR_ERROR_DOUBLE_FREE);
    int code = WEIR_OK;
    std::thread([&] { code = weir_free_async(block, stream); }).join();
    CHECK(code == WEIR_ERROR_DOUBLE_FREE);
    CHECK(weir_malloc_async(bytes, stream) == block);
    CHECK(weir_free_async(static_cast<char*>(block) + 1, stream) == WEIR_ERROR_NOT_OWNED);
    CHECK(weir_free_async(block, stream) == WEIR_OK);
  }
}

TEST_CASE("both names of the legacy stream reuse each other's memory", "[capi]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  for (size_t bytes : {size_t{700}, size_t{70000}}) {
    void* block = weir_malloc_async(bytes, kLegacy);
    REQUIRE(weir_free_async(block, nullptr) == WEIR_OK);
    void* again = weir_malloc_async(bytes, nullptr);
    CHECK(again == block);
    REQUIRE(weir_free_async(again, kLegacy) == WEIR_OK);
  }
}

TEST_CASE("a recorded use keeps a small block from the next request", "[capi]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  const weir_stream_t stream = NewStream(), user = NewStream();
  sim::HoldStream(0, user);
  for (size_t bytes : {size_t{700}, size_t{70000}}) {
    void* block = weir_malloc_async(bytes, stream);
    const auto at = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(block));
    {
      const CurrentDevice current(0);
      REQUIRE(sim::Launch(user, "read", {{at, bytes, false}}) == CUDA_SUCCESS);
    }
    REQUIRE(weir_record_use(block, user) == WEIR_OK);
    REQUIRE(weir_free_async(block, stream) == WEIR_OK);
    void* next = weir_malloc_async(bytes, stream);
    CHECK(next != block);
    REQUIRE(weir_free_async(next, stream) == WEIR_OK);
  }
  sim::ReleaseStream(0, user);
  sim::RunUntilIdle();
}

}  // namespace
}  // namespace weir::test
