// Copies and fills move real bytes, in stream order, and block the host as driver.md section 8
// says.
#include <cstring>
#include <numeric>

#include "tests/simcuda/time_fixture.h"

namespace weir::sim {
namespace {

std::vector<uint8_t> Pattern(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  std::iota(data.begin(), data.end(), uint8_t{1});
  return data;
}

TEST_CASE("bytes go to the device, over it and back", "[simcuda][copy]") {
  const Machine machine;
  const size_t bytes = (5 << 20) + 123;
  const std::vector<uint8_t> data = Pattern(bytes);
  std::vector<uint8_t> back(bytes);
  const CUdeviceptr one = NewMemory(bytes);
  const CUdeviceptr two = NewMemory(bytes);
  REQUIRE(Cuda().cuMemcpyHtoD(one, data.data(), bytes) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuMemcpyDtoD(two, one, bytes) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuMemcpyDtoH(back.data(), two, bytes) == CUDA_SUCCESS);
  CHECK(back == data);
  std::fill(back.begin(), back.end(), uint8_t{0});
  REQUIRE(Cuda().cuMemcpy(reinterpret_cast<CUdeviceptr>(back.data()), one, bytes) == CUDA_SUCCESS);
  CHECK(back == data);
}

TEST_CASE("fills write every value and nothing beside", "[simcuda][copy]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory();
  REQUIRE(Cuda().cuMemsetD8(memory, 1, 4096) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuMemsetD8Async(memory + 3, 2, 2, nullptr) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuMemsetD32Async(memory + 8, 0x04030201, 2, nullptr) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuStreamWriteValue32(nullptr, memory + 20, 0x0a0b0c0d, 0) == CUDA_SUCCESS);
  uint8_t got[28] = {};
  REQUIRE(Cuda().cuMemcpyDtoH(got, memory, sizeof got) == CUDA_SUCCESS);
  const uint8_t expected[28] = {1, 1, 1, 2, 2, 1, 1,    1,    1,    2,    3, 4, 1, 2,
                                3, 4, 1, 1, 1, 1, 0x0d, 0x0c, 0x0b, 0x0a, 1, 1, 1, 1};
  CHECK(std::memcmp(got, expected, sizeof got) == 0);
  CHECK(Cuda().cuMemsetD32Async(memory + 2, 0, 1, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Cuda().cuMemsetD8Async(memory, 0, 0, nullptr) == CUDA_SUCCESS);
  int on_the_host = 0;
  CHECK(Cuda().cuMemsetD8(reinterpret_cast<CUdeviceptr>(&on_the_host), 0, 4) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an asynchronous copy from pageable memory has read it when the call returns",
          "[simcuda][copy]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory();
  const CUstream stream = NewStream();
  HoldStream(0, stream);
  uint8_t source = 5;
  REQUIRE(Cuda().cuMemcpyHtoDAsync(memory, &source, 1, stream) == CUDA_SUCCESS);
  source = 6;
  ReleaseStream(0, stream);
  REQUIRE(Cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(ByteAt(memory) == 5);
}

TEST_CASE("an asynchronous copy from pinned memory reads it when it runs", "[simcuda][copy]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory();
  const CUstream stream = NewStream();
  void* pinned = nullptr;
  REQUIRE(Cuda().cuMemHostAlloc(&pinned, 64, 0) == CUDA_SUCCESS);
  auto* const source = static_cast<uint8_t*>(pinned);
  HoldStream(0, stream);
  *source = 5;
  REQUIRE(Cuda().cuMemcpyHtoDAsync(memory, pinned, 1, stream) == CUDA_SUCCESS);
  *source = 6;
  ReleaseStream(0, stream);
  REQUIRE(Cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(ByteAt(memory) == 6);
}

TEST_CASE("which copies the host waits for", "[simcuda][copy]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory();
  const CUstream stream = NewStream();
  void* pinned = nullptr;
  REQUIRE(Cuda().cuMemHostAlloc(&pinned, 64, 0) == CUDA_SUCCESS);
  uint8_t pageable[64] = {};
  HoldStream(0, stream);
  HoldStream(0, nullptr);
  // On a held stream a call that waits is a deadlock.
  CHECK(Cuda().cuMemcpyDtoDAsync(memory, memory + 64, 64, stream) == CUDA_SUCCESS);
  CHECK(Cuda().cuMemcpyDtoHAsync(pinned, memory, 64, stream) == CUDA_SUCCESS);
  CHECK(Cuda().cuMemcpyHtoDAsync(memory, pinned, 64, stream) == CUDA_SUCCESS);
  CHECK(Cuda().cuMemcpyHtoDAsync(memory, pageable, 64, stream) == CUDA_SUCCESS);
  CHECK(Cuda().cuMemsetD8Async(memory, 1, 64, stream) == CUDA_SUCCESS);
  CHECK(Cuda().cuMemcpyDtoHAsync(pageable, memory, 64, stream) == CUDA_ERROR_TIMEOUT);
  CHECK(Cuda().cuMemcpyDtoD(memory, memory + 64, 64) == CUDA_SUCCESS);
  CHECK(Cuda().cuMemsetD8(memory, 1, 64) == CUDA_SUCCESS);
  CHECK(Cuda().cuMemcpyDtoH(pageable, memory, 64) == CUDA_ERROR_TIMEOUT);
  CHECK(Cuda().cuMemcpyHtoD(memory, pageable, 64) == CUDA_ERROR_TIMEOUT);
  CHECK(Cuda().cuMemcpyHtoD(memory, pinned, 64) == CUDA_ERROR_TIMEOUT);
  CHECK(Cuda().cuMemsetD8(reinterpret_cast<CUdeviceptr>(pinned), 1, 64) == CUDA_ERROR_TIMEOUT);
}

TEST_CASE("device sides of copies must be device memory", "[simcuda][copy]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory();
  uint8_t host[64] = {};
  const auto host_address = reinterpret_cast<CUdeviceptr>(&host[0]);
  CHECK(Cuda().cuMemcpyHtoD(host_address, host, 64) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Cuda().cuMemcpyDtoH(host, host_address, 64) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Cuda().cuMemcpyDtoD(memory, host_address, 64) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Cuda().cuMemcpy(memory, 0, 64) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Cuda().cuMemcpyAsync(memory, memory, 64, reinterpret_cast<CUstream>(uintptr_t{0x990})) ==
        CUDA_ERROR_INVALID_HANDLE);
  CHECK(Cuda().cuMemcpy(memory, 0, 0) == CUDA_SUCCESS);
}

TEST_CASE("a peer copy needs no access of one device to the other", "[simcuda][copy]") {
  Config config;
  config.devices = 2;
  const Machine machine(config);
  const CUcontext first = Machine::UseDevice(0);
  const CUdeviceptr here = NewMemory();
  const CUcontext second = Machine::UseDevice(1);
  const CUdeviceptr there = NewMemory();
  Machine::UseDevice(0);
  REQUIRE(Cuda().cuMemsetD8(here, 9, 64) == CUDA_SUCCESS);
  const CUstream stream = NewStream(CU_STREAM_DEFAULT);
  REQUIRE(Cuda().cuMemcpyPeerAsync(there, second, here, first, 64, stream) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(Cuda().cuMemcpyPeerAsync(there, nullptr, here, first, 64, stream) ==
        CUDA_ERROR_INVALID_CONTEXT);
  Machine::UseDevice(1);
  CHECK(ByteAt(there + 63) == 9);
}

}  // namespace
}  // namespace weir::sim
