// The happens-before checker follows memory: mappings and their aliases, stream-ordered memory and
// copies.
#include "tests/simcuda/time_fixture.h"

namespace weir::sim {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

CUmemGenericAllocationHandle NewHandle(uint64_t bytes) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(Cuda().cuMemCreate(&handle, bytes, &properties, 0) == CUDA_SUCCESS);
  return handle;
}

CUdeviceptr MapHandle(CUmemGenericAllocationHandle handle, uint64_t bytes, CUdeviceptr at = 0) {
  if (at == 0) {
    REQUIRE(Cuda().cuMemAddressReserve(&at, bytes, 0, 0, 0) == CUDA_SUCCESS);
  }
  REQUIRE(Cuda().cuMemMap(at, bytes, 0, handle, 0) == CUDA_SUCCESS);
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  REQUIRE(Cuda().cuMemSetAccess(at, bytes, &access, 1) == CUDA_SUCCESS);
  return at;
}

TEST_CASE("two addresses of one handle are one memory", "[simcuda][checker]") {
  const Machine machine;
  const CUmemGenericAllocationHandle handle = NewHandle(2 * kMiB);
  const CUdeviceptr one = MapHandle(handle, 2 * kMiB);
  const CUdeviceptr two = MapHandle(handle, 2 * kMiB);
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  LaunchWrite(a, "through one", one + 512, 512);
  LaunchWrite(b, "through two, elsewhere", two + 1024, 512);
  RunUntilIdle();
  CHECK(CheckerReports().empty());
  LaunchWrite(b, "through two", two + 1000, 100);
  RunUntilIdle();
  REQUIRE(CheckerReports().size() == 1);
  CHECK(CheckerReports()[0].first == "through one");
}

TEST_CASE("other memory at the same address is other memory", "[simcuda][checker]") {
  const Machine machine;
  const CUmemGenericAllocationHandle first = NewHandle(2 * kMiB);
  const CUmemGenericAllocationHandle second = NewHandle(2 * kMiB);
  const CUdeviceptr at = MapHandle(first, 2 * kMiB);
  LaunchWrite(NewStream(), "first", at, 64);
  REQUIRE(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);
  REQUIRE(Cuda().cuMemUnmap(at, 2 * kMiB) == CUDA_SUCCESS);
  MapHandle(second, 2 * kMiB, at);
  LaunchWrite(NewStream(), "second", at, 64);
  RunUntilIdle();
  CHECK(CheckerReports().empty());
}

TEST_CASE("memory unmapped while work on it is not known to be complete is reported",
          "[simcuda][checker]") {
  const Machine machine;
  const CUmemGenericAllocationHandle handle = NewHandle(2 * kMiB);
  const CUdeviceptr at = MapHandle(handle, 2 * kMiB);
  const CUdeviceptr alias = MapHandle(handle, 2 * kMiB);
  LaunchWrite(NewStream(), "late", at, 64);
  RunUntilIdle();                                               // it ran, but nobody asked
  REQUIRE(Cuda().cuMemUnmap(alias, 2 * kMiB) == CUDA_SUCCESS);  // not used through this one
  CHECK(CheckerReports().empty());
  REQUIRE(Cuda().cuMemUnmap(at, 2 * kMiB) == CUDA_SUCCESS);
  REQUIRE(CheckerReports().size() == 1);
  CHECK(CheckerReports()[0].first == "late");
  CHECK(CheckerReports()[0].second == "cuMemUnmap");
}

TEST_CASE("reuse of stream-ordered memory after an unordered free is reported",
          "[simcuda][checker]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory(4096);
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  // What an allocator does that gives a block of stream a to stream b.
  REQUIRE(Cuda().cuMemsetD8Async(memory, 1, 4096, a) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuMemsetD8Async(memory, 2, 4096, b) == CUDA_SUCCESS);
  RunUntilIdle();
  REQUIRE(CheckerReports().size() == 1);
  CHECK(CheckerReports()[0].text.find("cuMemsetD8Async #") != std::string::npos);

  ClearCheckerReports();
  CUdeviceptr pooled = 0;
  REQUIRE(Cuda().cuMemAllocAsync(&pooled, 4096, a) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuMemsetD8Async(pooled, 1, 4096, a) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuMemFreeAsync(pooled, b) == CUDA_SUCCESS);  // b does not wait for a
  RunUntilIdle();
  CHECK_FALSE(CheckerReports().empty());
}

TEST_CASE("a copy reads its source and writes its target", "[simcuda][checker]") {
  const Machine machine;
  const CUdeviceptr from = NewMemory(4096);
  const CUdeviceptr to = NewMemory(4096);
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  REQUIRE(Cuda().cuMemcpyDtoDAsync(to, from, 4096, a) == CUDA_SUCCESS);
  LaunchRead(b, "source too", from, 4096);
  RunUntilIdle();
  CHECK(CheckerReports().empty());
  LaunchWrite(b, "source", from, 1);
  LaunchRead(b, "target", to, 1);
  RunUntilIdle();
  CHECK(CheckerReports().size() == 2);
}

}  // namespace
}  // namespace weir::sim
