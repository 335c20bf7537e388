// Stream-ordered memory and pools of the simulated device.
#include "tests/simcuda/space_fixture.h"

namespace weir::sim {
namespace {

CUmemoryPool DefaultPool() {
  CUmemoryPool pool = nullptr;
  REQUIRE(Gpu().cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
  return pool;
}

CUmemPoolProps PoolProperties() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

uint64_t PoolAttribute(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = 0;
  REQUIRE(Gpu().cuMemPoolGetAttribute(pool, attribute, &value) == CUDA_SUCCESS);
  return value;
}

}  // namespace

TEST_CASE("pool memory is given back at a synchronization, above the threshold", "[pool]") {
  Machine machine;
  const CUmemoryPool pool = DefaultPool();
  const CUstream stream = NewStream();
  const CUdeviceptr memory = NewAsync(5 * kMiB, stream);
  REQUIRE(Gpu().cuMemsetD8Async(memory, 1, 5 * kMiB, stream) == CUDA_SUCCESS);
  CHECK(PoolAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 5 * kMiB);
  CHECK(PoolAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 6 * kMiB);
  REQUIRE(Gpu().cuMemFreeAsync(memory, stream) == CUDA_SUCCESS);
  cuuint64_t threshold = GENERATE(uint64_t{0}, 64 * kMiB);
  REQUIRE(Gpu().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold) ==
          CUDA_SUCCESS);
  REQUIRE(Gpu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(PoolAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
  CHECK(UsedBytes(0) == (threshold == 0 ? 0 : 6 * kMiB));
  CHECK(PoolAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 5 * kMiB);
  CHECK(PoolAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 6 * kMiB);
  cuuint64_t high = 0;
  REQUIRE(Gpu().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high) == CUDA_SUCCESS);
  CHECK(PoolAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
  high = 1;
  CHECK(Gpu().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high) ==
        CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Gpu().cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
  CHECK(UsedBytes(0) == 0);
  CHECK(CheckerReports().empty());
}

TEST_CASE("pool memory used outside the order of its allocation or free is reported", "[pool]") {
  Machine machine;
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  SECTION("before the allocation") {
    const CUdeviceptr memory = NewAsync(4096, a);
    LaunchWrite(b, "too early", memory, 4096);
    REQUIRE(Gpu().cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(CheckerReports().size() == 1);
  }
  SECTION("not ordered before the free") {
    const CUdeviceptr memory = NewAsync(4096, a);
    REQUIRE(Gpu().cuStreamSynchronize(a) == CUDA_SUCCESS);
    HoldStream(0, a);
    REQUIRE(Gpu().cuMemFreeAsync(memory, a) == CUDA_SUCCESS);
    LaunchWrite(b, "racing the free", memory, 4096);
    REQUIRE(Gpu().cuStreamSynchronize(b) == CUDA_SUCCESS);
    ReleaseStream(0, a);
    REQUIRE(Gpu().cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(CheckerReports().size() == 1);
  }
  SECTION("after the free") {
    const CUdeviceptr memory = NewAsync(4096, a);
    REQUIRE(Gpu().cuMemFreeAsync(memory, a) == CUDA_SUCCESS);
    LaunchWrite(a, "too late", memory, 4096);
    CHECK(Gpu().cuStreamSynchronize(a) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST_CASE("an asynchronous free takes a base of pool memory, once", "[pool]") {
  Machine machine;
  const CUdeviceptr memory = NewAsync(4096, nullptr);
  CHECK(Gpu().cuMemFreeAsync(memory + 512, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemFreeAsync(NewMemory(), nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemFreeAsync(memory, nullptr) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemFreeAsync(memory, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr other = NewAsync(4096, nullptr);
  CHECK(Gpu().cuMemFree(other) == CUDA_SUCCESS);
  CUdeviceptr none = 0;
  CHECK(Gpu().cuMemAllocAsync(&none, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an asynchronous allocation waits for queued frees before it fails", "[pool]") {
  Config config;
  config.memory_bytes = 8 * kMiB;
  Machine machine(config);
  const CUstream stream = NewStream();
  const CUdeviceptr memory = NewAsync(6 * kMiB, stream);
  CUdeviceptr more = 0;
  CHECK(Gpu().cuMemAllocAsync(&more, 6 * kMiB, stream) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(Gpu().cuMemFreeAsync(memory, stream) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemAllocAsync(&more, 6 * kMiB, stream) == CUDA_SUCCESS);
}

TEST_CASE("a pool can be made, limited, made current and destroyed", "[pool]") {
  Machine machine;
  CUmemPoolProps properties = PoolProperties();
  properties.maxSize = 4 * kMiB;
  CUmemoryPool pool = nullptr;
  REQUIRE(Gpu().cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  CHECK(Gpu().cuMemAllocFromPoolAsync(&memory, 6 * kMiB, pool, nullptr) ==
        CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(Gpu().cuMemAllocFromPoolAsync(&memory, 4 * kMiB, pool, nullptr) == CUDA_SUCCESS);
  CHECK(PointerAttribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory) == pool);

  REQUIRE(Gpu().cuDeviceSetMemPool(0, pool) == CUDA_SUCCESS);
  CUmemoryPool current = nullptr;
  REQUIRE(Gpu().cuDeviceGetMemPool(&current, 0) == CUDA_SUCCESS);
  CHECK(current == pool);
  CHECK(Gpu().cuMemPoolDestroy(DefaultPool()) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Gpu().cuMemPoolDestroy(pool) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemPoolDestroy(pool) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Gpu().cuDeviceGetMemPool(&current, 0) == CUDA_SUCCESS);
  CHECK(current == DefaultPool());
  CHECK(UsedBytes(0) == 4 * kMiB);  // until its last allocation is freed
  REQUIRE(Gpu().cuMemFreeAsync(memory, nullptr) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(UsedBytes(0) == 0);

  properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CHECK(Gpu().cuMemPoolCreate(&pool, &properties) == CUDA_ERROR_NOT_SUPPORTED);
  properties = PoolProperties();
  properties.location.id = 4;
  CHECK(Gpu().cuMemPoolCreate(&pool, &properties) == CUDA_ERROR_INVALID_DEVICE);
  properties = PoolProperties();
  properties.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  CHECK(Gpu().cuMemPoolCreate(&pool, &properties) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a pool opens to another device by its own access call", "[pool]") {
  Config config;
  config.devices = 2;
  Machine machine(config);
  const CUdeviceptr memory = NewAsync(4096, nullptr);
  REQUIRE(Gpu().cuCtxSynchronize() == CUDA_SUCCESS);
  CUmemAccessDesc description{};
  description.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  description.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  REQUIRE(Gpu().cuMemPoolSetAccess(DefaultPool(), &description, 1) == CUDA_SUCCESS);
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  REQUIRE(Gpu().cuMemPoolGetAccess(&flags, DefaultPool(), &description.location) == CUDA_SUCCESS);
  CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  Machine::UseDevice(1);
  CHECK(TryWrite(memory) == CUDA_SUCCESS);
  description.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  description.location.id = 0;
  CHECK(Gpu().cuMemPoolSetAccess(DefaultPool(), &description, 1) == CUDA_ERROR_INVALID_VALUE);
  description.location.id = 1;
  REQUIRE(Gpu().cuMemPoolSetAccess(DefaultPool(), &description, 1) == CUDA_SUCCESS);
  CHECK(TryWrite(memory) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a stream of another device may allocate and free, not use without access", "[pool]") {
  Config config;
  config.devices = 2;
  Machine machine(config);
  CUmemoryPool pool = DefaultPool();
  Machine::UseDevice(1);
  const CUstream stream = NewStream();
  CUdeviceptr memory = 0;
  REQUIRE(Gpu().cuMemAllocFromPoolAsync(&memory, 4096, pool, stream) == CUDA_SUCCESS);
  SECTION("freed") {
    REQUIRE(Gpu().cuMemFreeAsync(memory, stream) == CUDA_SUCCESS);
    CHECK(Gpu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  }
  SECTION("used") {
    REQUIRE(Gpu().cuMemsetD8Async(memory, 1, 4096, stream) == CUDA_SUCCESS);
    CHECK(Gpu().cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST_CASE("a device without memory pools refuses them", "[pool]") {
  Config config;
  config.memory_pools = false;
  Machine machine(config);
  CUdeviceptr memory = 0;
  CHECK(Gpu().cuMemAllocAsync(&memory, 4096, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("a device's pool is found by location too, pinned device memory only", "[pool]") {
  Machine machine;
  const auto find = Resolve<PFN_cuMemGetDefaultMemPool_v13000>("cuMemGetDefaultMemPool", 13000);
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  REQUIRE(find(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS);
  CHECK(pool == DefaultPool());
  CHECK(find(&pool, &location, CU_MEM_ALLOCATION_TYPE_MANAGED) == CUDA_ERROR_NOT_SUPPORTED);
  location.type = CU_MEM_LOCATION_TYPE_HOST;
  CHECK(find(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace weir::sim
