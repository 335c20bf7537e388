// What a test does to the simulated device: faults, counters, costs, capacity, peers, and the ways
// to reach its functions.
#include <dlfcn.h>
#include <unistd.h>

#include <map>
#include <stdexcept>
#include <thread>

#include "tests/simcuda/space_fixture.h"
#include "tools/simcuda/faces.h"

namespace weir::sim {
namespace {

struct Lookup {
  CUresult result;
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
};

Lookup Find(const char* name, int version, cuuint64_t flags = 0) {
  Lookup found;
  found.result = simcuda_get_proc_address(name, &found.function, version, flags, &found.status);
  return found;
}

}  // namespace

TEST_CASE("the n-th call of an entry fails as told, the others do not", "[fault]") {
  Machine machine;
  Fault fault;
  fault.entry = "cuMemCreate";
  fault.nth = 2;
  fault.result = CUDA_ERROR_OUT_OF_MEMORY;
  InjectFault(fault);
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp prop = DeviceMemory();
  const auto create = [&] { return Gpu().cuMemCreate(&handle, kGranule, &prop, 0); };
  CHECK(create() == CUDA_SUCCESS);
  CHECK(FreeBytes() > 0);  // calls of other entries are not counted
  CHECK(create() == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(create() == CUDA_SUCCESS);
  CHECK(UsedBytes(0) == 2 * kGranule);

  fault.nth = 1;
  fault.every_later_too = true;
  InjectFault(fault);
  CHECK(create() == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(create() == CUDA_ERROR_OUT_OF_MEMORY);
  ClearFaults();
  CHECK(create() == CUDA_SUCCESS);
}

TEST_CASE("a sticky fault breaks the context, not the device queries", "[fault]") {
  Machine machine;
  Fault fault;
  fault.entry = "*";
  fault.result = CUDA_ERROR_ECC_UNCORRECTABLE;
  fault.sticky = true;
  InjectFault(fault);
  CUdeviceptr memory = 0;
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_ERROR_ECC_UNCORRECTABLE);
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_ERROR_ECC_UNCORRECTABLE);
  CHECK(Gpu().cuStreamSynchronize(nullptr) == CUDA_ERROR_ECC_UNCORRECTABLE);
  const CUmemAllocationProp prop = DeviceMemory();
  CUmemGenericAllocationHandle handle = 0;
  CHECK(Gpu().cuMemCreate(&handle, kGranule, &prop, 0) == CUDA_ERROR_ECC_UNCORRECTABLE);
  int count = 0;
  CHECK(Gpu().cuDeviceGetCount(&count) == CUDA_SUCCESS);
}

TEST_CASE("after deinitialization every call says so", "[fault]") {
  Machine machine;
  const CUdeviceptr memory = NewMemory();
  Deinitialize();
  CHECK(Gpu().cuMemFree(memory) == CUDA_ERROR_DEINITIALIZED);
  int version = 0;
  CHECK(Gpu().cuDriverGetVersion(&version) == CUDA_ERROR_DEINITIALIZED);
}

TEST_CASE("a host function may make no call", "[fault]") {
  Machine machine;
  struct Result {
    CUresult alloc = CUDA_SUCCESS;
    CUresult query = CUDA_SUCCESS;
  } result;
  const auto function = [](void* data) {
    auto* out = static_cast<Result*>(data);
    CUdeviceptr memory = 0;
    int count = 0;
    out->alloc = Gpu().cuMemAlloc(&memory, 512);
    out->query = Gpu().cuDeviceGetCount(&count);
  };
  REQUIRE(Gpu().cuLaunchHostFunc(nullptr, function, &result) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(result.alloc == CUDA_ERROR_NOT_PERMITTED);
  CHECK(result.query == CUDA_ERROR_NOT_PERMITTED);
}

TEST_CASE("allocating calls end a capture unless the thread is relaxed", "[fault]") {
  Machine machine;
  const CUstream stream = NewStream();
  const CUstreamCaptureMode mode =
      GENERATE(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED);
  const bool relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
  REQUIRE(Gpu().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CUstreamCaptureMode exchanged = mode;
  REQUIRE(Gpu().cuThreadExchangeStreamCaptureMode(&exchanged) == CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  CHECK(Gpu().cuMemAlloc(&memory, 512) ==
        (relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
  NewReservation(kGranule);  // virtual memory management is legal
  CUgraph graph = nullptr;
  CHECK(Gpu().cuStreamEndCapture(stream, &graph) ==
        (relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
  REQUIRE(Gpu().cuThreadExchangeStreamCaptureMode(&exchanged) == CUDA_SUCCESS);
}

TEST_CASE("calls are counted, failed ones included", "[counter]") {
  Machine machine;
  ResetCallCounts();
  CUdeviceptr memory = 0;
  CHECK(Gpu().cuMemAlloc(&memory, 0) == CUDA_ERROR_INVALID_VALUE);
  NewMemory();
  CHECK(CallCount("cuMemAlloc") == 2);
  CHECK(CallCount("cuMemFree") == 0);
  CHECK(CallCount("no such function") == 0);
  CHECK(CallCounts() == std::map<std::string, uint64_t>{{"cuMemAlloc", 2}});
}

TEST_CASE("virtual time is the sum of modelled costs", "[cost]") {
  Machine machine;
  const auto spent = [](auto call) {
    const uint64_t before = VirtualTimeNs();
    call();
    return VirtualTimeNs() - before;
  };
  constexpr uint64_t kUs = 1000;
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle small = 0;
  CUdeviceptr base = 0;
  CHECK(spent([&] { handle = NewHandle(20 * kMiB); }) == (29 + 20) * kUs);
  small = NewHandle();
  base = NewReservation(22 * kMiB);
  CHECK(spent([&] { Gpu().cuMemMap(base, 20 * kMiB, 0, handle, 0); }) == 4 * kUs);
  CHECK(spent([&] { Gpu().cuMemMap(base + 20 * kMiB, kGranule, 0, small, 0); }) == 4 * kUs);
  CHECK(spent([&] { CHECK(Allow(base, 22 * kMiB) == CUDA_SUCCESS); }) == (25 + 2 * 3) * kUs);
  CHECK(spent([&] { Gpu().cuMemUnmap(base, 22 * kMiB); }) == 2 * 20 * kUs);
  CHECK(spent([&] { Gpu().cuMemRelease(small); }) == 20 * kUs);
  CHECK(spent([&] { NewMemory(4 * kMiB); }) == (200 + 4) * kUs);
  CHECK(spent([&] { Gpu().cuCtxSynchronize(); }) == 200 * kUs);
  SetCost("cuMemRelease", {7, 0, 0});
  CHECK(spent([&] { Gpu().cuMemRelease(handle); }) == 7);
  CHECK(simcuda_virtual_time_ns() == VirtualTimeNs());
}

TEST_CASE("memory of another process lowers what is free and frees nothing", "[capacity]") {
  Config config;
  config.memory_bytes = 16 * kMiB;
  Machine machine(config);
  const CUmemGenericAllocationHandle handle = NewHandle(8 * kMiB);
  SetOtherProcessBytes(0, 6 * kMiB);
  CHECK(FreeBytes() == kGranule);
  CUdeviceptr memory = 0;
  CHECK(Gpu().cuMemAlloc(&memory, 4 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
  SetOtherProcessBytes(0, 14 * kMiB);
  CHECK(FreeBytes() == 0);
  CHECK(UsedBytes(0) == 8 * kMiB);
  REQUIRE(Gpu().cuMemRelease(handle) == CUDA_SUCCESS);
  SetOtherProcessBytes(0, 0);
  CHECK(FreeBytes() == 16 * kMiB);
}

TEST_CASE("untouched device memory costs no host memory", "[capacity]") {
  Config config;
  config.memory_bytes = uint64_t{512} << 30;
  Machine machine(config);
  const CUdeviceptr memory = NewMemory(uint64_t{400} << 30);
  FillNow(memory + (uint64_t{399} << 30), 1, 4096);
  CHECK(ByteAt(memory + (uint64_t{399} << 30)) == 1);
  REQUIRE(Gpu().cuMemFree(memory) == CUDA_SUCCESS);
}

TEST_CASE("the configuration can be set until the simulator is used", "[control]") {
  Reset();
  CHECK(simcuda_configure(2, 64 * kMiB, -1) == 0);
  CHECK(CurrentConfig().devices == 2);
  CHECK(CurrentConfig().memory_bytes == 64 * kMiB);
  REQUIRE(Gpu().cuInit(0) == CUDA_SUCCESS);
  CHECK(simcuda_configure(2, 0, -1) == 0);  // nothing changes
  CHECK(simcuda_configure(3, 0, -1) != 0);
  CHECK(CurrentConfig().devices == 2);
  Reset();
}

TEST_CASE("memory that the system cannot give is refused, and the machine stays", "[control]") {
  Reset();
  CHECK(simcuda_configure(1, uint64_t{1} << 60, -1) != 0);
  Config config;
  config.memory_bytes = uint64_t{1} << 60;
  CHECK_THROWS_AS(Reset(config), std::runtime_error);
  Machine machine;
  CHECK(TryWrite(NewMemory()) == CUDA_SUCCESS);
}

TEST_CASE("cuGetProcAddress picks the newest ABI up to the version", "[proc]") {
  Reset();
  CHECK(Find("cuCtxGetDevice", 2000).function != Find("cuCtxGetDevice", 13000).function);
  CHECK(Find("cuCtxGetDevice", 12090).function == Find("cuCtxGetDevice", 2000).function);
  const Lookup too_old = Find("cuMemCreate", 10010);
  CHECK(too_old.result == CUDA_SUCCESS);
  CHECK(too_old.function == nullptr);
  CHECK(too_old.status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  const Lookup unknown = Find("cuNoSuchThing", 12000);
  CHECK(unknown.result == CUDA_SUCCESS);
  CHECK(unknown.function == nullptr);
  CHECK(unknown.status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(Find("cuMemAlloc_v2", 12000).status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(Find("cuMemAlloc", 13010).result == CUDA_ERROR_INVALID_VALUE);  // newer than the driver
  CHECK(Find("cuMemAlloc", 12000, 4).result == CUDA_ERROR_INVALID_VALUE);
  CHECK(Find("cuMemAlloc", 12000, 3).result == CUDA_ERROR_INVALID_VALUE);
  CHECK(simcuda_get_proc_address(nullptr, nullptr, 12000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("cuGetProcAddress knows its own two ABIs", "[proc]") {
  Reset();
  const auto old =
      reinterpret_cast<PFN_cuGetProcAddress_v11030>(Find("cuGetProcAddress", 11030).function);
  const auto now =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(Find("cuGetProcAddress", 12000).function);
  REQUIRE(old != nullptr);
  REQUIRE(now != nullptr);
  void* function = nullptr;
  CHECK(old("cuInit", &function, 2000, 0) == CUDA_SUCCESS);
  CHECK(function == Find("cuInit", 2000).function);
  CHECK(old("cuNoSuchThing", &function, 2000, 0) == CUDA_ERROR_NOT_FOUND);
  CHECK(now("cuInit", &function, 2000, 0, nullptr) == CUDA_SUCCESS);
}

TEST_CASE("the per-thread flag finds variants and falls back to the others", "[proc]") {
  Reset();
  constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  CHECK(Find("cuMemsetD8Async", 12000, kPerThread).function !=
        Find("cuMemsetD8Async", 12000).function);
  CHECK(Find("cuMemsetD8Async", 5000, kPerThread).function ==
        Find("cuMemsetD8Async", 5000).function);
  CHECK(Find("cuMemCreate", 12000, kPerThread).function == Find("cuMemCreate", 12000).function);
  CHECK(Find("cuMemcpy", 12000, kPerThread).function != Find("cuMemcpy", 12000).function);
}

TEST_CASE("an older driver lacks what came later", "[proc]") {
  Config config;
  config.driver_version = 12020;
  Reset(config);
  CHECK(Find("cuCtxRecordEvent", 12020).status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(Find("cuCtxRecordEvent", 12050).result == CUDA_ERROR_INVALID_VALUE);
  CHECK(Find("cuMemCreate", 12020).function != nullptr);
  Reset();
}

TEST_CASE("libcuda.so.1 is the same simulated device", "[face]") {
  Machine machine;
  void* library = dlopen(WEIR_TEST_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
  INFO(WEIR_TEST_LIBCUDA);
  REQUIRE(library != nullptr);
  const auto find = [library](const char* name) { return dlsym(library, name); };
  // Every ELF name of the table, and the ABI that it stands for.
  REQUIRE(find("cuGetProcAddress") != nullptr);
  REQUIRE(find("cuMemsetD8Async_ptsz") != nullptr);
  REQUIRE(find("cuMemcpy_ptds") != nullptr);
  const auto get = reinterpret_cast<PFN_cuGetProcAddress_v12000>(find("cuGetProcAddress_v2"));
  void* function = nullptr;
  REQUIRE(get("cuMemAlloc", &function, 12000, 0, nullptr) == CUDA_SUCCESS);
  CHECK(function == Find("cuMemAlloc", 12000).function);
  const auto init = reinterpret_cast<PFN_cuInit_v2000>(find("cuInit"));
  const bool real_driver =
      access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0;
  CHECK(init(0) == (real_driver ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH : CUDA_SUCCESS));
  const auto alloc = reinterpret_cast<PFN_cuMemAlloc_v3020>(find("cuMemAlloc_v2"));
  const auto reserve =
      reinterpret_cast<PFN_cuMemAddressReserve_v10020>(find("cuMemAddressReserve"));
  CUdeviceptr memory = 0;
  CHECK(alloc(&memory, 4096) == CUDA_SUCCESS);
  CHECK(TryWrite(memory, 4096) == CUDA_SUCCESS);
  CHECK(reserve(&memory, kGranule, 0, 0, 1) == CUDA_ERROR_INVALID_VALUE);  // the fifth argument
  dlclose(library);
  simcuda_refuse(0);
}

TEST_CASE("before a real driver libcuda.so.1 refuses to start", "[face]") {
  Reset();
  simcuda_refuse(1);
  CHECK(Gpu().cuInit(0) == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  CUdeviceptr memory = 0;
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_ERROR_NOT_INITIALIZED);
  simcuda_refuse(0);
  CHECK(Gpu().cuInit(0) == CUDA_SUCCESS);
}

TEST_CASE("threads may call at the same time", "[control]") {
  Machine machine;
  ResetCallCounts();
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    // No assertions in here: Catch2 is not made for them.
    threads.emplace_back([] {
      CUcontext context = nullptr;
      Gpu().cuDevicePrimaryCtxRetain(&context, 0);
      Gpu().cuCtxSetCurrent(context);
      CUstream stream = nullptr;
      Gpu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      const CUmemAllocationProp prop = DeviceMemory();
      for (int i = 0; i < kRounds; ++i) {
        CUdeviceptr base = 0;
        CUmemGenericAllocationHandle handle = 0;
        Gpu().cuMemAddressReserve(&base, kGranule, 0, 0, 0);
        Gpu().cuMemCreate(&handle, kGranule, &prop, 0);
        Gpu().cuMemMap(base, kGranule, 0, handle, 0);
        Allow(base, kGranule);
        Gpu().cuMemsetD8Async(base, 1, 64, stream);
        Gpu().cuStreamSynchronize(stream);
        Gpu().cuMemUnmap(base, kGranule);
        Gpu().cuMemRelease(handle);
        Gpu().cuMemAddressFree(base, kGranule);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(CallCount("cuMemUnmap") == kThreads * kRounds);
  CHECK(UsedBytes(0) == 0);
  CHECK(CheckerReports().empty());
  CHECK(Gpu().cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("a peer keeps the pages it holds, and sees what the device writes there", "[peer]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(2 * kGranule);
  const CUmemGenericAllocationHandle first = NewHandle();
  const CUmemGenericAllocationHandle second = NewHandle();
  MapAt(base, kGranule, first);
  MapAt(base + kGranule, kGranule, second);
  Peer peer(base + kGranule - 4, 8);
  FillNow(base, 5, 2 * kGranule);
  uint8_t seen[8] = {};
  peer.Read(0, seen, 8);
  CHECK(seen[0] == 5);
  CHECK(seen[7] == 5);
  const uint8_t news[3] = {1, 2, 3};
  peer.Write(3, news, 3);
  CHECK(ByteAt(base + kGranule - 1) == 1);
  CHECK(ByteAt(base + kGranule + 1) == 3);
  CHECK(peer.StillMapped());
  CHECK(CheckerReports().empty());
}

TEST_CASE("remapping under a peer is reported, and what it writes is not seen", "[peer]") {
  Machine machine;
  const CUdeviceptr base = NewReservation(kGranule);
  const CUmemGenericAllocationHandle held = NewHandle();
  MapAt(base, kGranule, held);
  FillNow(base, 1, kGranule);
  {
    Peer peer(base, kGranule, PeerHold::kExport);
    REQUIRE(Gpu().cuMemUnmap(base, kGranule) == CUDA_SUCCESS);
    REQUIRE(Gpu().cuMemRelease(held) == CUDA_SUCCESS);
    CHECK(UsedBytes(0) == kGranule);  // the peer keeps it alive
    MapAt(base, kGranule, NewHandle());
    FillNow(base, 2, kGranule);
    const uint8_t written = 9;
    peer.Write(0, &written, 1);
    CHECK(ByteAt(base) == 2);
    CHECK_FALSE(peer.StillMapped());
  }
  CHECK(UsedBytes(0) == kGranule);
  REQUIRE(CheckerReports().size() == 1);  // once, though asked twice
  CHECK(CheckerReports()[0].text.find("export") != std::string::npos);
}

}  // namespace weir::sim
