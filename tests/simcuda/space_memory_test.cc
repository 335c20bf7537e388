// Classic, managed, pinned and pool memory of the simulated device, pointers, devices and contexts.
#include <cstring>

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

CUdeviceptr NewAsync(uint64_t bytes, CUstream stream) {
  CUdeviceptr memory = 0;
  REQUIRE(Gpu().cuMemAllocAsync(&memory, bytes, stream) == CUDA_SUCCESS);
  return memory;
}

template <typename T>
T PointerAttribute(CUpointer_attribute attribute, CUdeviceptr address) {
  T value{};
  REQUIRE(Gpu().cuPointerGetAttribute(&value, attribute, address) == CUDA_SUCCESS);
  return value;
}

}  // namespace

TEST_CASE("classic memory is aligned to 512 B and ends where it was asked to", "[classic]") {
  Machine machine;
  const CUdeviceptr a = NewMemory(1000);
  const CUdeviceptr b = NewMemory(3 * kMiB);
  CHECK(a % 512 == 0);
  CHECK(b % 512 == 0);
  CHECK(TryWrite(a, 1000) == CUDA_SUCCESS);
  CHECK(TryWrite(b, 3 * kMiB) == CUDA_SUCCESS);
  CHECK(TryWrite(a, 1001) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("small classic requests share frames, and free memory moves by whole frames",
          "[classic]") {
  Machine machine;
  const uint64_t before = FreeBytes();
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 4096; ++i) blocks.push_back(NewMemory(512));
  CHECK(before - FreeBytes() == kGranule);
  blocks.push_back(NewMemory(1));
  CHECK(before - FreeBytes() == 2 * kGranule);
  for (const CUdeviceptr block : blocks) REQUIRE(Gpu().cuMemFree(block) == CUDA_SUCCESS);
  CHECK(FreeBytes() == before);
}

TEST_CASE("classic allocation refuses nothing, no place and too much", "[classic]") {
  Config config;
  config.memory_bytes = 8 * kMiB;
  Machine machine(config);
  CUdeviceptr memory = 0;
  CHECK(Gpu().cuMemAlloc(&memory, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemAlloc(nullptr, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemAlloc(&memory, 9 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(Gpu().cuMemAlloc(&memory, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(Gpu().cuMemAlloc(&memory, 8 * kMiB) == CUDA_SUCCESS);  // out of memory is not sticky
  CHECK(FreeBytes() == 0);
}

TEST_CASE("classic memory is freed once, by its base", "[classic]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(kGranule);
  MapAt(base, kGranule, NewHandle());
  const CUdeviceptr memory = NewMemory(4096);
  CHECK(Gpu().cuMemFree(memory + 512) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemFree(0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemFree(memory) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemFree(base) == CUDA_ERROR_INVALID_VALUE);
  CHECK(TryWrite(memory) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("cuMemFree waits for the work of its context", "[classic]") {
  Machine machine;
  const CUdeviceptr memory = NewMemory(4096);
  const CUstream stream = NewStream();
  std::vector<std::string> log;
  LaunchLogged(stream, "before the free", &log);
  REQUIRE(Gpu().cuMemFree(memory) == CUDA_SUCCESS);
  CHECK(log.size() == 1);
  const CUdeviceptr other = NewMemory(4096);
  HoldStream(0, stream);
  LaunchLogged(stream, "held", &log);
  CHECK(Gpu().cuMemFree(other) == CUDA_ERROR_TIMEOUT);
}

TEST_CASE("pitched memory has rows of whole 512 B", "[classic]") {
  Machine machine;
  CUdeviceptr memory = 0;
  size_t pitch = 0;
  REQUIRE(Gpu().cuMemAllocPitch(&memory, &pitch, 700, 3, 4) == CUDA_SUCCESS);
  CHECK(pitch == 1024);
  CHECK(TryWrite(memory, 3 * pitch) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemAllocPitch(&memory, &pitch, 700, 3, 3) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemAllocPitch(&memory, &pitch, 0, 3, 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemAllocPitch(&memory, &pitch, SIZE_MAX, 3, 4) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("managed memory is the host's and the device's", "[managed]") {
  Machine machine;
  CUdeviceptr memory = 0;
  REQUIRE(Gpu().cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
  FillNow(memory, 6, 4096);
  CHECK(reinterpret_cast<const uint8_t*>(memory)[4095] == 6);
  CHECK(PointerAttribute<int>(CU_POINTER_ATTRIBUTE_IS_MANAGED, memory) == 1);
  CHECK(Gpu().cuMemAllocManaged(&memory, 4096, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemFree(memory) == CUDA_SUCCESS);
}

TEST_CASE("an address range is one allocation or one mapping, not the reservation", "[pointer]") {
  Machine machine;
  const CUdeviceptr memory = NewMemory(5000);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  REQUIRE(Gpu().cuMemGetAddressRange(&base, &bytes, memory + 4999) == CUDA_SUCCESS);
  CHECK(base == memory);
  CHECK(bytes == 5000);
  const CUdeviceptr reservation = NewReservation(4 * kGranule);
  MapAt(reservation + kGranule, kGranule, NewHandle());
  REQUIRE(Gpu().cuMemGetAddressRange(&base, &bytes, reservation + kGranule + 5) == CUDA_SUCCESS);
  CHECK(base == reservation + kGranule);
  CHECK(bytes == kGranule);
  CHECK(Gpu().cuMemGetAddressRange(&base, &bytes, reservation) == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("pointer attributes tell kinds of memory apart", "[pointer]") {
  Machine machine;
  const CUdeviceptr classic = NewMemory(4096);
  const CUdeviceptr reservation = NewReservation(2 * kGranule);
  const CUdeviceptr mapped = reservation + kGranule;
  MapAt(mapped, kGranule, NewHandle());
  void* pinned = nullptr;
  REQUIRE(Gpu().cuMemHostAlloc(&pinned, 4096, 0) == CUDA_SUCCESS);
  const CUdeviceptr host = reinterpret_cast<CUdeviceptr>(pinned);

  CHECK(PointerAttribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, classic) ==
        CU_MEMORYTYPE_DEVICE);
  CHECK(PointerAttribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host) == CU_MEMORYTYPE_HOST);
  CHECK(PointerAttribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, classic) != nullptr);
  CHECK(PointerAttribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, mapped) == nullptr);
  CHECK(PointerAttribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, mapped + 9) ==
        reservation);
  CHECK(PointerAttribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, mapped) == 2 * kGranule);
  CHECK(PointerAttribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, mapped + 9) ==
        mapped);
  CHECK(PointerAttribute<int>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, mapped) ==
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  void* unused = nullptr;
  CHECK(Gpu().cuPointerGetAttribute(&unused, CU_POINTER_ATTRIBUTE_HOST_POINTER, classic) ==
        CUDA_ERROR_INVALID_VALUE);
  int stack_variable = 0;
  const CUdeviceptr pageable = reinterpret_cast<CUdeviceptr>(&stack_variable);
  CHECK(Gpu().cuPointerGetAttribute(&unused, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pageable) ==
        CUDA_ERROR_INVALID_VALUE);

  const auto buffer = PointerAttribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, classic);
  REQUIRE(Gpu().cuMemFree(classic) == CUDA_SUCCESS);
  const CUdeviceptr again = NewMemory(4096);
  CHECK(again == classic);
  CHECK(PointerAttribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, again) != buffer);

  unsigned int on = 1;
  CHECK(Gpu().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, again) == CUDA_SUCCESS);
  CHECK(PointerAttribute<int>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, again) == 1);
  CHECK(Gpu().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, mapped) ==
        CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("several attributes of an unknown pointer read as nothing, without an error",
          "[pointer]") {
  Machine machine;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_BUFFER_ID};
  unsigned int type = 77;
  unsigned long long buffer = 77;
  void* data[] = {&type, &buffer};
  const CUdeviceptr unknown = reinterpret_cast<CUdeviceptr>(&type);
  CHECK(Gpu().cuPointerGetAttributes(2, attributes, data, unknown) == CUDA_SUCCESS);
  CHECK(type == 0);
  CHECK(buffer == 0);
  const CUdeviceptr memory = NewMemory();
  CHECK(Gpu().cuPointerGetAttributes(2, attributes, data, memory) == CUDA_SUCCESS);
  CHECK(type == CU_MEMORYTYPE_DEVICE);
  CHECK(buffer != 0);
  CHECK(Gpu().cuPointerGetAttributes(0, attributes, data, memory) == CUDA_ERROR_INVALID_VALUE);
  attributes[1] = static_cast<CUpointer_attribute>(31);
  CHECK(Gpu().cuPointerGetAttributes(2, attributes, data, memory) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("pinned memory is used by host and device at one address", "[host]") {
  Machine machine;
  void* pinned = nullptr;
  REQUIRE(Gpu().cuMemHostAlloc(&pinned, 8192, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS);
  CUdeviceptr device = 0;
  REQUIRE(Gpu().cuMemHostGetDevicePointer(&device, pinned, 0) == CUDA_SUCCESS);
  CHECK(device == reinterpret_cast<CUdeviceptr>(pinned));
  FillNow(device, 8, 8192);
  CHECK(static_cast<const uint8_t*>(pinned)[8191] == 8);
  unsigned int flags = 0;
  REQUIRE(Gpu().cuMemHostGetFlags(&flags, pinned) == CUDA_SUCCESS);
  CHECK(flags == CU_MEMHOSTALLOC_PORTABLE);

  CHECK(Gpu().cuMemHostAlloc(&pinned, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemHostAlloc(&pinned, 1, 64) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemFreeHost(static_cast<char*>(pinned) + 4096) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemHostUnregister(pinned) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CHECK(Gpu().cuMemFree(device) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemFreeHost(pinned) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemFreeHost(pinned) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Gpu().cuMemAllocHost(&pinned, 100) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemFreeHost(pinned) == CUDA_SUCCESS);
}

TEST_CASE("registered memory overlaps no other and is unregistered by its base", "[host]") {
  Machine machine;
  std::vector<uint8_t> bytes(8192, 1);
  const CUdeviceptr base = reinterpret_cast<CUdeviceptr>(bytes.data());
  REQUIRE(Gpu().cuMemHostRegister(bytes.data(), 8192, 0) == CUDA_SUCCESS);
  FillNow(base, 9, 4096);
  CHECK(bytes[4095] == 9);
  CHECK(bytes[4096] == 1);
  CHECK(Gpu().cuMemHostRegister(bytes.data() + 100, 8, 0) ==
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CHECK(Gpu().cuMemHostUnregister(bytes.data() + 100) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CHECK(Gpu().cuMemFreeHost(bytes.data()) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemHostUnregister(bytes.data()) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemHostUnregister(bytes.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CHECK(Gpu().cuMemHostRegister(nullptr, 8, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemHostRegister(bytes.data(), 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemHostRegister(bytes.data(), 8, 64) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemHostRegister(bytes.data(), 8, CU_MEMHOSTREGISTER_IOMEMORY) ==
        CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("freeing pinned memory that queued work uses is reported", "[host]") {
  Machine machine;
  void* pinned = nullptr;
  REQUIRE(Gpu().cuMemHostAlloc(&pinned, 4096, 0) == CUDA_SUCCESS);
  const CUstream stream = NewStream();
  REQUIRE(Gpu().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(pinned), 1, 4096, stream) ==
          CUDA_SUCCESS);
  SECTION("after a synchronization nobody minds") {
    REQUIRE(Gpu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    REQUIRE(Gpu().cuMemFreeHost(pinned) == CUDA_SUCCESS);
    CHECK(CheckerReports().empty());
  }
  SECTION("without one") {
    RunUntilIdle();  // it is complete, but the host has not learned so
    REQUIRE(Gpu().cuMemFreeHost(pinned) == CUDA_SUCCESS);
    CHECK(CheckerReports().size() == 1);
  }
}

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

TEST_CASE("a device without memory pools refuses them", "[pool]") {
  Config config;
  config.memory_pools = false;
  Machine machine(config);
  CUdeviceptr memory = 0;
  CHECK(Gpu().cuMemAllocAsync(&memory, 4096, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("classic memory of a peer needs peer access", "[device]") {
  Config config;
  config.devices = 2;
  Machine machine(config);
  const CUdeviceptr memory = NewMemory();
  const CUcontext peer = Machine::UseDevice(1);
  CUcontext owner = nullptr;
  REQUIRE(Gpu().cuDevicePrimaryCtxRetain(&owner, 0) == CUDA_SUCCESS);
  CHECK(Gpu().cuCtxEnablePeerAccess(peer, 0) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(Gpu().cuCtxDisablePeerAccess(owner) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  REQUIRE(Gpu().cuCtxEnablePeerAccess(owner, 0) == CUDA_SUCCESS);
  CHECK(Gpu().cuCtxEnablePeerAccess(owner, 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  CHECK(TryWrite(memory) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuCtxDisablePeerAccess(owner) == CUDA_SUCCESS);
  CHECK(TryWrite(memory) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("the device calls itself simulated", "[device]") {
  Config config;
  config.devices = 2;
  config.memory_bytes = 64 * kMiB;
  Machine machine(config);
  char text[64] = {};
  REQUIRE(Gpu().cuDeviceGetName(text, sizeof(text), 1) == CUDA_SUCCESS);
  CHECK(std::string(text) == "Weir simulated GPU");
  int count = 0;
  REQUIRE(Gpu().cuDeviceGetCount(&count) == CUDA_SUCCESS);
  CHECK(count == 2);
  size_t bytes = 0;
  REQUIRE(Gpu().cuDeviceTotalMem(&bytes, 1) == CUDA_SUCCESS);
  CHECK(bytes == 64 * kMiB);
  CUuuid a{};
  CUuuid b{};
  REQUIRE(Gpu().cuDeviceGetUuid(&a, 0) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuDeviceGetUuid(&b, 1) == CUDA_SUCCESS);
  CHECK(std::memcmp(&a, &b, sizeof(a)) != 0);
  REQUIRE(Gpu().cuDeviceGetPCIBusId(text, sizeof(text), 1) == CUDA_SUCCESS);
  CHECK(std::string(text) == "0000:02:00.0");
  CUdevice device = -1;
  CHECK(Gpu().cuDeviceGet(&device, 2) == CUDA_ERROR_INVALID_DEVICE);
  int value = 0;
  CHECK(Gpu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0) == CUDA_SUCCESS);
  CHECK(value == -1);
  CHECK(Gpu().cuDeviceCanAccessPeer(&value, 0, 1) == CUDA_SUCCESS);
  CHECK(value == 1);
  const char* name = nullptr;
  CHECK(Gpu().cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name) == CUDA_SUCCESS);
  CHECK(std::string(name) == "CUDA_ERROR_OUT_OF_MEMORY");
  CHECK(Gpu().cuGetErrorString(static_cast<CUresult>(998), &name) == CUDA_ERROR_INVALID_VALUE);
  CHECK(name == nullptr);
}

TEST_CASE("calls need initialization first and a context second", "[context]") {
  Reset();
  CUdeviceptr memory = 0;
  int version = 0;
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(Gpu().cuDriverGetVersion(&version) == CUDA_SUCCESS);
  CHECK(version == 13000);
  CHECK(Gpu().cuInit(1) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Gpu().cuInit(0) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(Gpu().cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
  CUcontext context = nullptr;
  REQUIRE(Gpu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_ERROR_INVALID_CONTEXT);  // retained, not current
  REQUIRE(Gpu().cuCtxSetCurrent(context) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_SUCCESS);
}

TEST_CASE("each thread has a stack of current contexts", "[context]") {
  Config config;
  config.devices = 2;
  Machine machine(config);
  CUcontext second = nullptr;
  REQUIRE(Gpu().cuDevicePrimaryCtxRetain(&second, 1) == CUDA_SUCCESS);
  CUdevice device = -1;
  REQUIRE(Gpu().cuCtxPushCurrent(second) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuCtxGetDevice(&device) == CUDA_SUCCESS);
  CHECK(device == 1);
  CUcontext popped = nullptr;
  REQUIRE(Gpu().cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
  CHECK(popped == second);
  REQUIRE(Gpu().cuCtxGetDevice(&device) == CUDA_SUCCESS);
  CHECK(device == 0);
  REQUIRE(Gpu().cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
  CHECK(Gpu().cuCtxPopCurrent(&popped) == CUDA_ERROR_INVALID_CONTEXT);
  CUcontext current = second;
  REQUIRE(Gpu().cuCtxGetCurrent(&current) == CUDA_SUCCESS);
  CHECK(current == nullptr);
  CHECK(Gpu().cuCtxSetCurrent(reinterpret_cast<CUcontext>(&device)) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(Gpu().cuCtxCreate(&current, 0, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("the last release of a primary context frees what belongs to it", "[context]") {
  Machine machine;  // holds one reference
  NewMemory(4 * kMiB);
  NewAsync(4 * kMiB, nullptr);
  const CUdeviceptr base = NewReservation(kGranule);
  MapAt(base, kGranule, NewHandle());
  unsigned int flags = 0;
  int active = 0;
  REQUIRE(Gpu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 1);
  REQUIRE(Gpu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 0);
  CHECK(UsedBytes(0) == kGranule);  // handles belong to no context
  CUdeviceptr memory = 0;
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(Gpu().cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace weir::sim
