// Virtual memory management of the simulated device: each argument rule has a test that breaks it.
#include "tests/simcuda/space_fixture.h"

namespace weir::sim {

TEST_CASE("an address reservation takes whole host pages and a power of two", "[vmm]") {
  Machine machine;
  CUdeviceptr base = 0;
  const auto reserve = [&base](size_t bytes, size_t alignment, CUdeviceptr hint,
                               unsigned long long flags) {
    return Gpu().cuMemAddressReserve(&base, bytes, alignment, hint, flags);
  };
  CHECK(reserve(0, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(reserve(4095, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(reserve(kGranule, 3 * kMiB, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(reserve(kGranule, 0, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(reserve(kGranule, 0, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemAddressReserve(nullptr, kGranule, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(reserve(uint64_t{1} << 60, 0, 0, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(reserve(4096, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(reserve(kGranule, 64 * kMiB, 0, 0) == CUDA_SUCCESS);
  CHECK(base % (64 * kMiB) == 0);
}

TEST_CASE("a free address hint is taken, a used one is only a hint", "[vmm]") {
  Machine machine;
  const CUdeviceptr first = NewReservation(4 * kGranule);
  REQUIRE(Gpu().cuMemAddressFree(first, 4 * kGranule) == CUDA_SUCCESS);
  CUdeviceptr again = 0;
  REQUIRE(Gpu().cuMemAddressReserve(&again, kGranule, 0, first + kGranule, 0) == CUDA_SUCCESS);
  CHECK(again == first + kGranule);
  CUdeviceptr other = 0;
  REQUIRE(Gpu().cuMemAddressReserve(&other, kGranule, 0, again, 0) == CUDA_SUCCESS);
  CHECK(other != again);
}

TEST_CASE("a reservation is freed as a whole and only when nothing is mapped", "[vmm]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(2 * kGranule);
  const CUmemGenericAllocationHandle handle = NewHandle();
  MapAt(base, kGranule, handle);
  CHECK(Gpu().cuMemAddressFree(base, 2 * kGranule) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Gpu().cuMemUnmap(base, kGranule) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemAddressFree(base, kGranule) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemAddressFree(base + kGranule, kGranule) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemAddressFree(base, 2 * kGranule) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemAddressFree(base, 2 * kGranule) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("cuMemCreate wants whole granules, no flags and properties that exist", "[vmm]") {
  Machine machine;
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop = DeviceMemory();
  const auto create = [&](size_t bytes, unsigned long long flags = 0) {
    return Gpu().cuMemCreate(&handle, bytes, &prop, flags);
  };
  CHECK(create(0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(create(kGranule / 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(create(kGranule, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemCreate(&handle, kGranule, nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemCreate(nullptr, kGranule, &prop, 0) == CUDA_ERROR_INVALID_VALUE);

  prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  CHECK(create(kGranule) == CUDA_ERROR_INVALID_VALUE);
  prop = DeviceMemory(7);
  CHECK(create(kGranule) == CUDA_ERROR_INVALID_DEVICE);
  prop = DeviceMemory();
  prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  CHECK(create(kGranule) == CUDA_ERROR_INVALID_VALUE);
  prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  CHECK(create(kGranule) == CUDA_ERROR_NOT_SUPPORTED);
  prop = DeviceMemory();
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  CHECK(create(kGranule) == CUDA_ERROR_NOT_SUPPORTED);
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.allocFlags.gpuDirectRDMACapable = 1;
  CHECK(create(kGranule) == CUDA_SUCCESS);
  CUmemAllocationProp read{};
  REQUIRE(Gpu().cuMemGetAllocationPropertiesFromHandle(&read, handle) == CUDA_SUCCESS);
  CHECK(read.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CHECK(Gpu().cuMemGetAllocationPropertiesFromHandle(&read, handle + 1) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("the granularity is the configured one, and only for memory that exists", "[vmm]") {
  Config config;
  config.granularity = 4 * kMiB;
  Machine machine(config);
  CUmemAllocationProp prop = DeviceMemory();
  size_t granularity = 0;
  REQUIRE(Gpu().cuMemGetAllocationGranularity(&granularity, &prop,
                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
  CHECK(granularity == 4 * kMiB);
  CHECK(Gpu().cuMemGetAllocationGranularity(nullptr, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
        CUDA_ERROR_INVALID_VALUE);
  prop.location.id = 3;
  CHECK(Gpu().cuMemGetAllocationGranularity(&granularity, &prop,
                                            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) ==
        CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("more memory than the device has is refused and nothing is lost", "[vmm]") {
  Config config;
  config.memory_bytes = 16 * kMiB;
  Machine machine(config);
  std::vector<CUmemGenericAllocationHandle> handles;
  for (int i = 0; i < 7; ++i) handles.push_back(NewHandle());
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp prop = DeviceMemory();
  CHECK(Gpu().cuMemCreate(&handle, 2 * kGranule, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(UsedBytes(0) == 7 * kGranule);
  CHECK(FreeBytes() == kGranule);
  // Two free granules that are not neighbours make one handle.
  REQUIRE(Gpu().cuMemRelease(handles[2]) == CUDA_SUCCESS);
  handle = NewHandle(2 * kGranule);
  CHECK(FreeBytes() == 0);
  const CUdeviceptr base = NewReservation(2 * kGranule);
  MapAt(base, 2 * kGranule, handle);
  FillNow(base, 9, 2 * kGranule);
  CHECK(ByteAt(base + 2 * kGranule - 1) == 9);
}

TEST_CASE("a mapping must be aligned, inside one reservation, free, and begin at offset 0",
          "[vmm]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(4 * kGranule);
  const CUmemGenericAllocationHandle handle = NewHandle(2 * kGranule);
  const auto map = [](CUdeviceptr at, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle which, unsigned long long flags) {
    return Gpu().cuMemMap(at, bytes, offset, which, flags);
  };
  CHECK(map(base + 4096, kGranule, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(base, kGranule / 2, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(base, 0, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(base, kGranule, kGranule, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(base, kGranule, 0, handle, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(base, kGranule, 0, handle + 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(base, 4 * kGranule, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);  // the handle's end
  CHECK(map(base + 3 * kGranule, 2 * kGranule, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(base - kGranule, kGranule, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(map(base, 2 * kGranule, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(map(base + kGranule, 2 * kGranule, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(map(base + 2 * kGranule, kGranule, 0, handle, 0) == CUDA_SUCCESS);
}

TEST_CASE("a fresh mapping has no access, and a remapped range has none again", "[vmm]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(kGranule);
  const CUmemGenericAllocationHandle handle = NewHandle();
  MapAt(base, kGranule, handle);
  FillNow(base, 1, 1);
  REQUIRE(Gpu().cuMemUnmap(base, kGranule) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuMemMap(base, kGranule, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(TryWrite(base) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(Gpu().cuMemRelease(handle) == CUDA_ERROR_ILLEGAL_ADDRESS);  // sticky
}

TEST_CASE("access needs a fully mapped range, whole granules and a known device", "[vmm]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(3 * kGranule);
  MapAt(base, kGranule, NewHandle());
  MapAt(base + 2 * kGranule, kGranule, NewHandle());
  CHECK(Allow(base, 3 * kGranule) == CUDA_ERROR_INVALID_VALUE);  // a hole
  CHECK(Allow(base + kGranule, kGranule) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Allow(base, kGranule / 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Allow(base + 4096, kGranule) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Allow(base, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Allow(base, kGranule, 5) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(Allow(base, kGranule, 0, static_cast<CUmemAccess_flags>(2)) == CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc description{};
  description.location.type = CU_MEM_LOCATION_TYPE_HOST;
  description.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(Gpu().cuMemSetAccess(base, kGranule, &description, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemSetAccess(base, kGranule, &description, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemSetAccess(base, kGranule, nullptr, 1) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("access to part of a mapping covers that part", "[vmm]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(4 * kGranule);
  REQUIRE(Gpu().cuMemMap(base, 4 * kGranule, 0, NewHandle(4 * kGranule), 0) == CUDA_SUCCESS);
  REQUIRE(Allow(base + kGranule, 2 * kGranule) == CUDA_SUCCESS);
  REQUIRE(Allow(base + 2 * kGranule, kGranule, 0, CU_MEM_ACCESS_FLAGS_PROT_READ) == CUDA_SUCCESS);
  const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const auto flags_at = [&](CUdeviceptr at) {
    unsigned long long flags = 99;
    REQUIRE(Gpu().cuMemGetAccess(&flags, &device, at) == CUDA_SUCCESS);
    return flags;
  };
  CHECK(flags_at(base) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CHECK(flags_at(base + kGranule) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK(flags_at(base + 2 * kGranule) == CU_MEM_ACCESS_FLAGS_PROT_READ);
  CHECK(flags_at(base + 3 * kGranule) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CHECK(TryWrite(base + kGranule, kGranule) == CUDA_SUCCESS);
  CHECK(ByteAt(base + 2 * kGranule) == 0);
  CHECK(TryWrite(base + kGranule, kGranule + 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
  unsigned long long flags = 0;
  Reset();
  REQUIRE(Gpu().cuInit(0) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemGetAccess(&flags, &device, base) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("another device needs access of its own", "[vmm]") {
  Config config;
  config.devices = 2;
  Machine machine(config);
  const CUdeviceptr base = NewReservation(kGranule);
  MapAt(base, kGranule, NewHandle());
  FillNow(base, 5, kGranule);
  Machine::UseDevice(1);
  SECTION("granted") {
    REQUIRE(Allow(base, kGranule, 1) == CUDA_SUCCESS);
    CHECK(TryWrite(base) == CUDA_SUCCESS);
  }
  SECTION("not granted") { CHECK(TryWrite(base) == CUDA_ERROR_ILLEGAL_ADDRESS); }
}

TEST_CASE("unmapping part of a mapping is an error, whole neighbours go together", "[vmm]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(4 * kGranule);
  MapAt(base, 2 * kGranule, NewHandle(2 * kGranule));
  MapAt(base + 2 * kGranule, kGranule, NewHandle());
  CHECK(Gpu().cuMemUnmap(base, kGranule) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemUnmap(base + kGranule, 2 * kGranule) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemUnmap(base, 4 * kGranule) == CUDA_ERROR_INVALID_VALUE);  // a hole at the end
  CHECK(Gpu().cuMemUnmap(base, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemUnmap(base, 3 * kGranule) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemUnmap(base, 3 * kGranule) == CUDA_ERROR_INVALID_VALUE);
  CHECK(TryWrite(base) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("physical memory lives until its references and its mappings are gone", "[vmm]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(2 * kGranule);
  CUmemGenericAllocationHandle handle = NewHandle();
  MapAt(base, kGranule, handle);
  REQUIRE(Gpu().cuMemRelease(handle) == CUDA_SUCCESS);
  CHECK(UsedBytes(0) == kGranule);
  FillNow(base, 3, kGranule);
  CHECK(ByteAt(base + 7) == 3);
  // The handle is no one's now, but an address gives it back, under its own name.
  CHECK(Gpu().cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemMap(base + kGranule, kGranule, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  CUmemGenericAllocationHandle again = 0;
  void* inside = reinterpret_cast<void*>(base + 4096);
  REQUIRE(Gpu().cuMemRetainAllocationHandle(&again, inside) == CUDA_SUCCESS);
  CHECK(again == handle);
  REQUIRE(Gpu().cuMemUnmap(base, kGranule) == CUDA_SUCCESS);
  CHECK(UsedBytes(0) == kGranule);
  CHECK(Gpu().cuMemRetainAllocationHandle(&again, inside) == CUDA_ERROR_INVALID_VALUE);
  MapAt(base + kGranule, kGranule, handle);
  CHECK(ByteAt(base + kGranule + 7) == 3);
  REQUIRE(Gpu().cuMemRelease(handle) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuMemUnmap(base + kGranule, kGranule) == CUDA_SUCCESS);
  CHECK(UsedBytes(0) == 0);
}

TEST_CASE("two mappings of one handle are the same memory", "[vmm]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(2 * kGranule);
  const CUmemGenericAllocationHandle handle = NewHandle();
  MapAt(base, kGranule, handle);
  MapAt(base + kGranule, kGranule, handle);
  FillNow(base + 100, 42, 1);
  CHECK(ByteAt(base + kGranule + 100) == 42);
  CHECK(UsedBytes(0) == kGranule);
}

TEST_CASE("memory of a released handle is not seen by a new one", "[vmm]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(kGranule);
  CUmemGenericAllocationHandle handle = NewHandle();
  MapAt(base, kGranule, handle);
  FillNow(base, 77, kGranule);
  REQUIRE(Gpu().cuMemUnmap(base, kGranule) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuMemRelease(handle) == CUDA_SUCCESS);
  const CUmemGenericAllocationHandle fresh = NewHandle();
  CHECK(fresh != handle);
  MapAt(base, kGranule, fresh);
  CHECK(ByteAt(base) != 77);
}

TEST_CASE("virtual memory management needs no context", "[vmm]") {
  Reset();
  REQUIRE(Gpu().cuInit(0) == CUDA_SUCCESS);
  const CUdeviceptr base = NewReservation(kGranule);
  MapAt(base, kGranule, NewHandle());
  CHECK(Gpu().cuMemUnmap(base, kGranule) == CUDA_SUCCESS);
}

TEST_CASE("a device without virtual memory management refuses it", "[vmm]") {
  Config config;
  config.vmm = false;
  Machine machine(config);
  int supported = 1;
  REQUIRE(Gpu().cuDeviceGetAttribute(&supported,
                                     CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                     0) == CUDA_SUCCESS);
  CHECK(supported == 0);
  CUdeviceptr base = 0;
  CHECK(Gpu().cuMemAddressReserve(&base, kGranule, 0, 0, 0) == CUDA_ERROR_NOT_SUPPORTED);
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp prop = DeviceMemory();
  CHECK(Gpu().cuMemCreate(&handle, kGranule, &prop, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("unmapping under queued work is an illegal address for that work", "[vmm]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(kGranule);
  MapAt(base, kGranule, NewHandle());
  const CUstream stream = NewStream();
  HoldStream(0, stream);
  REQUIRE(Gpu().cuMemsetD8Async(base, 1, 16, stream) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuMemUnmap(base, kGranule) == CUDA_SUCCESS);  // does not wait
  ReleaseStream(0, stream);
  CHECK(Gpu().cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("unmapping what unsynchronized work has used is reported", "[vmm]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(kGranule);
  MapAt(base, kGranule, NewHandle());
  const CUstream stream = NewStream();
  REQUIRE(Gpu().cuMemsetD8Async(base, 1, 16, stream) == CUDA_SUCCESS);
  RunUntilIdle();  // it is complete, but the host has not learned so
  const bool learned = GENERATE(false, true);
  if (learned) REQUIRE(Gpu().cuStreamQuery(stream) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuMemUnmap(base, kGranule) == CUDA_SUCCESS);
  CHECK(CheckerReports().size() == (learned ? 0 : 1));
}

}  // namespace weir::sim
