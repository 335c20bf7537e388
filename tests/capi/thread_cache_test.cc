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

TEST_CASE("a block freed in the order of its own stream is reused there at once",
          "[capi][ordered]") {
  const SimulatedWeir weir;
  const weir_stream_t streams[] = {nullptr, kLegacy, reinterpret_cast<weir_stream_t>(uintptr_t{2}),
                                   NewStream(), NewStream()};
  for (size_t bytes : kSizes) {
    for (const weir_stream_t stream : streams) {
      INFO(bytes << " bytes on stream " << stream);
      void* block = weir_malloc_async(bytes, stream);
      REQUIRE(block != nullptr);
      CHECK(weir_free_ordered(static_cast<char*>(block) + 1) == WEIR_ERROR_NOT_OWNED);
      // The thread's cache may be one of another stream.
      void* other = weir_malloc_async(bytes, streams[3]);
      REQUIRE(weir_free_ordered(block) == WEIR_OK);
      if (!IsPassthrough()) {
        CHECK(weir_free_ordered(block) == WEIR_ERROR_DOUBLE_FREE);
        void* again = weir_malloc_async(bytes, stream);
        CHECK(again == block);
        CHECK(weir_free_ordered(again) == WEIR_OK);
      }
      REQUIRE(weir_free_ordered(other) == WEIR_OK);
      CHECK(SimulatedWeir::Stats().allocations == 0);
      CHECK(SimulatedWeir::Stats().active_bytes == 0);
    }
  }
  CHECK(weir_free_ordered(nullptr) == WEIR_OK);
}

TEST_CASE("a block freed in its own order by another thread serves its stream again",
          "[capi][ordered]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  const weir_stream_t per_thread = reinterpret_cast<weir_stream_t>(uintptr_t{2});
  for (const weir_stream_t stream : {NewStream(), per_thread}) {
    for (size_t bytes : {size_t{700}, size_t{70000}, size_t{700000}}) {
      void* block = weir_malloc_async(bytes, stream);
      int code = -1;
      std::thread([&] { code = weir_free_ordered(block); }).join();
      REQUIRE(code == WEIR_OK);
      CHECK(SimulatedWeir::Stats().active_bytes == 0);
      void* again = weir_malloc_async(bytes, stream);
      CHECK(again == block);
      REQUIRE(weir_free_ordered(again) == WEIR_OK);
    }
  }
}

TEST_CASE("a free in a block's own order waits for what may still use the block",
          "[capi][ordered]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  const weir_stream_t stream = NewStream(), user = NewStream();
  for (const bool any : {false, true}) {
    for (size_t bytes : {size_t{700}, size_t{70000}, size_t{700000}}) {
      sim::HoldStream(0, user);
      void* block = any ? weir_malloc(bytes) : weir_malloc_async(bytes, stream);
      {
        const CurrentDevice current(0);
        const auto at = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(block));
        REQUIRE(sim::Launch(user, "read", {{at, bytes, false}}) == CUDA_SUCCESS);
      }
      if (!any) REQUIRE(weir_record_use(block, user) == WEIR_OK);
      REQUIRE(weir_free_ordered(block) == WEIR_OK);
      CHECK(SimulatedWeir::Stats().allocations == 0);
      CHECK(SimulatedWeir::Stats().active_bytes >= bytes);
      sim::ReleaseStream(0, user);
      sim::RunUntilIdle();
      REQUIRE(weir_empty_cache(0) == WEIR_OK);
      CHECK(SimulatedWeir::Stats().active_bytes == 0);
    }
  }
}

TEST_CASE("a block of a stream that was destroyed can be freed in its order", "[capi][ordered]") {
  const SimulatedWeir weir;
  for (size_t bytes : {size_t{700}, size_t{70000}, size_t{700000}}) {
    const weir_stream_t stream = NewStream();
    void* block = weir_malloc_async(bytes, stream);
    REQUIRE(weir_stream_destroyed(stream) == WEIR_OK);
    const CurrentDevice current(0);
    REQUIRE(DriverEntry<CUresult(CUstream)>("cuStreamDestroy", 4000)(stream) == CUDA_SUCCESS);
    CHECK(weir_free_ordered(block) == WEIR_OK);
    CHECK(SimulatedWeir::Stats().active_bytes == 0);
  }
}

TEST_CASE("requests that name a device hit as those of the thread's device do", "[capi]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  const weir_stream_t stream = NewStream(1);
  for (size_t bytes : {size_t{700}, size_t{70000}, size_t{700000}}) {
    void* block = weir_malloc_async_device(bytes, 1, stream);
    REQUIRE(weir_free_ordered(block) == WEIR_OK);
    void* here = weir_malloc_async_device(bytes, 0, nullptr);
    REQUIRE(weir_free_ordered(here) == WEIR_OK);
    for (int i = 0; i < 3; ++i) {
      CHECK(weir_malloc_async_device(bytes, 1, stream) == block);
      REQUIRE(weir_free_ordered(block) == WEIR_OK);
    }
    CHECK(SimulatedWeir::Stats(0).allocations == 0);
  }
  CHECK(weir_malloc_async_device(700, 2, stream) == nullptr);
  CHECK(weir_last_status() == WEIR_ERROR_NO_DEVICE);
  CHECK(weir_malloc_async_device(700, -1, nullptr) == nullptr);
  CHECK(weir_last_status() == WEIR_ERROR_NO_DEVICE);
}

}  // namespace
}  // namespace weir::test
