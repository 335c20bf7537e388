// Classic, managed and pinned memory of the simulated device, and what is known about a pointer.
#include "tests/simcuda/space_fixture.h"

namespace weir::sim {

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

}  // namespace weir::sim
