#include "allocator/driver/device_driver.h"

#include <functional>
#include <vector>

#include "tests/driver/sim_device.h"

namespace weir {
namespace {

using test::SimDevice;

constexpr uint64_t kGranule = uint64_t{2} << 20;

// Mapped memory of one granule, given back at the end.
struct MappedGranule {
  explicit MappedGranule(const DeviceDriver& driver) : device(driver) {
    REQUIRE(device.ReserveAddress(kGranule, kGranule, &base).ok());
    REQUIRE(device.CreateHandle(kGranule, &handle).ok());
    REQUIRE(device.Map(base, kGranule, handle).ok());
    REQUIRE(device.SetAccess(base, kGranule).ok());
  }
  void Release() {
    REQUIRE(device.Unmap(base, kGranule).ok());
    REQUIRE(device.ReleaseHandle(handle).ok());
    REQUIRE(device.FreeAddress(base, kGranule).ok());
  }
  const DeviceDriver& device;
  DeviceAddress base = 0;
  MemoryHandle handle = 0;
};

// Every method, each with the driver call it stands for. What a call makes is not given back: the
// simulator is reset between tests.
struct Method {
  const char* entry;
  std::function<DriverStatus()> call;
};
struct EveryMethod {
  explicit EveryMethod(const SimDevice& sim, const DeviceDriver& device)
      : granule(device), stream(sim.NewStream()) {
    REQUIRE(device.CreateEvent(&event).ok());
    REQUIRE(device.AllocateClassic(4096, &classic).ok());
    REQUIRE(device.ReserveAddress(kGranule, kGranule, &empty).ok());
    const DeviceAddress base = granule.base;
    methods = {
        {"cuMemAddressReserve",
         [&] { return device.ReserveAddress(kGranule, kGranule, &address); }},
        {"cuMemCreate", [&] { return device.CreateHandle(kGranule, &handle); }},
        {"cuMemMap", [&] { return device.Map(empty, kGranule, granule.handle); }},
        {"cuMemSetAccess", [&, base] { return device.SetAccess(base, kGranule); }},
        {"cuMemUnmap", [&, base] { return device.Unmap(base, kGranule); }},
        {"cuMemRelease", [&] { return device.ReleaseHandle(granule.handle); }},
        {"cuMemAddressFree", [&, base] { return device.FreeAddress(base, kGranule); }},
        {"cuMemAlloc", [&] { return device.AllocateClassic(4096, &address); }},
        {"cuMemFree", [&] { return device.FreeClassic(classic); }},
        {"cuEventCreate", [&] { return device.CreateEvent(&made); }},
        {"cuEventRecord", [&] { return device.RecordEvent(event, stream); }},
        {"cuCtxRecordEvent", [&] { return device.RecordContextEvent(event); }},
        {"cuEventQuery", [&] { return device.QueryEvent(event, &flag); }},
        {"cuEventSynchronize", [&] { return device.SynchronizeEvent(event); }},
        {"cuStreamWaitEvent", [&] { return device.WaitEvent(stream, event); }},
        {"cuStreamSynchronize", [&] { return device.SynchronizeStream(stream); }},
        {"cuCtxSynchronize", [&] { return device.SynchronizeContext(); }},
        {"cuStreamGetCtx", [&] { return device.StreamDevice(stream, &ordinal); }},
        {"cuStreamIsCapturing", [&] { return device.IsCapturing(stream, &flag); }},
        {"cuMemcpyAsync", [&] { return device.Copy(classic, classic + 2048, 64, stream); }},
        {"cuMemsetD8Async", [&] { return device.Fill(classic, 1, 64, stream); }},
        {"cuMemGetInfo", [&] { return device.MemGetInfo(&bytes, &bytes); }},
        {"cuEventDestroy", [&] { return device.DestroyEvent(event); }},
    };
  }

  MappedGranule granule;
  CUstream stream;
  Event event = nullptr;
  DeviceAddress classic = 0;
  DeviceAddress empty = 0;
  // What the methods write.
  DeviceAddress address = 77;
  MemoryHandle handle = 77;
  Event made = nullptr;
  uint64_t bytes = 77;
  int ordinal = 77;
  bool flag = false;
  std::vector<Method> methods;
};

TEST_CASE("a device reports its memory, granularity and mechanisms", "[device_driver]") {
  sim::Config config;
  config.memory_bytes = uint64_t{3} << 30;
  const SimDevice sim(config);
  const auto device = sim.Create();
  CHECK(device->ordinal() == 0);
  CHECK(device->total_bytes() == config.memory_bytes);
  CHECK(device->has_vmm());
  CHECK(device->granularity() == config.granularity);
  CHECK(device->has_context_events());
  CHECK(device->vmm_absent_reason().empty());
}

TEST_CASE("creating a device leaves no memory behind and no context current", "[device_driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  CHECK(sim::UsedBytes(0) == 0);
  CHECK(sim.Current() == nullptr);
}

TEST_CASE("an ordinal that no device has is refused", "[device_driver]") {
  const SimDevice sim;
  std::unique_ptr<DeviceDriver> device;
  for (int ordinal : {-1, 1, 1000}) {
    const DriverStatus status = DeviceDriver::Create(sim.driver(), ordinal, true, &device);
    CHECK(status.result() == CUDA_ERROR_INVALID_DEVICE);
    CHECK(device == nullptr);
  }
}

TEST_CASE("memory is reserved, created, mapped, used and given back", "[device_driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  MappedGranule granule(*device);
  CHECK(granule.base % kGranule == 0);
  CHECK(sim::UsedBytes(0) == kGranule);
  std::vector<uint8_t> host(4096, 0);
  REQUIRE(device->Fill(granule.base + 8192, 0xab, host.size(), nullptr).ok());
  REQUIRE(device
              ->Copy(reinterpret_cast<DeviceAddress>(host.data()), granule.base + 8192, host.size(),
                     nullptr)
              .ok());
  REQUIRE(device->SynchronizeStream(nullptr).ok());
  CHECK(host == std::vector<uint8_t>(host.size(), 0xab));
  granule.Release();
  CHECK(sim::UsedBytes(0) == 0);

  DeviceAddress classic = 0;
  REQUIRE(device->AllocateClassic(1000, &classic).ok());
  CHECK(sim::UsedBytes(0) > 0);
  REQUIRE(device->FreeClassic(classic).ok());
  CHECK(sim::UsedBytes(0) == 0);
}

TEST_CASE("running out of memory is told apart and changes nothing", "[device_driver]") {
  sim::Config config;
  config.memory_bytes = 4 * kGranule;
  const SimDevice sim(config);
  const auto device = sim.Create();
  MemoryHandle handle = 42;
  const DriverStatus status = device->CreateHandle(5 * kGranule, &handle);
  CHECK(status.is_out_of_memory());
  CHECK(std::string(status.entry()) == "cuMemCreate");
  CHECK(handle == 42);
  DeviceAddress address = 42;
  CHECK(device->AllocateClassic(5 * kGranule, &address).is_out_of_memory());
  CHECK(address == 42);
  CHECK(sim::UsedBytes(0) == 0);
}

TEST_CASE("each method makes the driver call it names and passes its error on", "[device_driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  EveryMethod every(sim, *device);
  for (const Method& method : every.methods) {
    INFO(method.entry);
    sim::Fault fault;
    fault.entry = method.entry;
    fault.result = CUDA_ERROR_NOT_PERMITTED;
    sim::InjectFault(fault);
    const uint64_t before = sim::CallCount(method.entry);
    const DriverStatus status = method.call();
    CHECK(sim::CallCount(method.entry) == before + 1);
    CHECK(status.result() == CUDA_ERROR_NOT_PERMITTED);
    CHECK(std::string(status.entry()) == method.entry);
  }
  // A failed call writes nothing.
  CHECK(every.address == 77);
  CHECK(every.handle == 77);
  CHECK(every.made == nullptr);
  CHECK(every.bytes == 77);
  CHECK(every.ordinal == 77);
}

TEST_CASE("every method gives the caller's context and capture mode back", "[device_driver]") {
  sim::Config config;
  config.devices = 2;
  const SimDevice sim(config);
  const auto device = sim.Create(0);
  const CUcontext other = sim.PrimaryContext(1);
  for (CUcontext context : {CUcontext{nullptr}, other, sim.PrimaryContext(0)}) {
    EveryMethod every(sim, *device);
    CUcontext popped;
    if (context != nullptr) REQUIRE(sim.entries().CtxPushCurrent(context) == CUDA_SUCCESS);
    for (const Method& method : every.methods) {
      INFO(method.entry);
      method.call().IgnoreError();
      CHECK(sim.Current() == context);
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
      REQUIRE(sim.entries().ThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
      CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
    if (context != nullptr) REQUIRE(sim.entries().CtxPopCurrent(&popped) == CUDA_SUCCESS);
  }
}

TEST_CASE("a series of calls changes context and capture mode once", "[device_driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  REQUIRE(sim.Current() == nullptr);
  sim::ResetCallCounts();
  {
    const CallSeries series(*device);
    for (int i = 0; i < 3; ++i) {
      const CallSeries inner(*device);
      uint64_t free_bytes = 0, total_bytes = 0;
      REQUIRE(device->MemGetInfo(&free_bytes, &total_bytes).ok());
    }
    REQUIRE(sim::CallCount("cuCtxPushCurrent") == 1);
    REQUIRE(sim::CallCount("cuThreadExchangeStreamCaptureMode") == 1);
  }
  REQUIRE(sim::CallCount("cuMemGetInfo") == 3);
  REQUIRE(sim::CallCount("cuCtxPopCurrent") == 1);
  REQUIRE(sim::CallCount("cuThreadExchangeStreamCaptureMode") == 2);
  REQUIRE(sim.Current() == nullptr);
}

TEST_CASE("slow calls leave somebody's stream capture valid", "[device_driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  const CUstream stream = sim.NewStream();
  const auto begin = sim.Find<PFN_cuStreamBeginCapture_v10010>("cuStreamBeginCapture", 10010);
  const auto end = sim.Find<PFN_cuStreamEndCapture_v10000>("cuStreamEndCapture", 10000);
  REQUIRE(sim.entries().CtxPushCurrent(sim.PrimaryContext(0)) == CUDA_SUCCESS);
  REQUIRE(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);

  const MappedGranule granule(*device);
  DeviceAddress classic = 0;
  CHECK(device->AllocateClassic(4096, &classic).ok());
  Event event = nullptr;
  CHECK(device->CreateEvent(&event).ok());
  bool complete = false;
  CHECK(device->QueryEvent(event, &complete).ok());
  uint64_t free = 0;
  uint64_t total = 0;
  CHECK(device->MemGetInfo(&free, &total).ok());
  bool capturing = false;
  CHECK(device->IsCapturing(stream, &capturing).ok());
  CHECK(capturing);
  CUgraph graph = nullptr;
  CHECK(end(stream, &graph) == CUDA_SUCCESS);

  // The same call without the scope does harm: the test above proves something.
  REQUIRE(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CUdeviceptr address = 0;
  CHECK(sim.entries().MemAlloc(&address, 4096) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(device->IsCapturing(stream, &capturing).ok());
  CHECK(capturing);  // invalidated, and still to be ended
  CHECK(end(stream, &graph) != CUDA_SUCCESS);
  CHECK(device->IsCapturing(stream, &capturing).ok());
  CHECK_FALSE(capturing);
}

TEST_CASE("the legacy stream counts as capturing while a blocking stream is captured",
          "[device_driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  const CUstream blocking = sim.NewStream(0, CU_STREAM_DEFAULT);
  bool capturing = true;
  REQUIRE(device->IsCapturing(nullptr, &capturing).ok());
  CHECK_FALSE(capturing);
  REQUIRE(sim.entries().CtxPushCurrent(sim.PrimaryContext(0)) == CUDA_SUCCESS);
  REQUIRE(sim.Find<PFN_cuStreamBeginCapture_v10010>("cuStreamBeginCapture", 10010)(
              blocking, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(device->IsCapturing(nullptr, &capturing).ok());
  CHECK(capturing);
}

TEST_CASE("an event is complete when the work before it is, and not ready is no error",
          "[device_driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  const CUstream stream = sim.NewStream();
  const MappedGranule granule(*device);
  Event event = nullptr;
  REQUIRE(device->CreateEvent(&event).ok());
  sim::HoldStream(0, stream);
  REQUIRE(device->Fill(granule.base, 1, kGranule, stream).ok());
  REQUIRE(device->RecordEvent(event, stream).ok());
  bool complete = true;
  REQUIRE(device->QueryEvent(event, &complete).ok());
  CHECK_FALSE(complete);
  sim::ReleaseStream(0, stream);
  REQUIRE(device->SynchronizeEvent(event).ok());
  REQUIRE(device->QueryEvent(event, &complete).ok());
  CHECK(complete);
  CHECK(device->DestroyEvent(event).ok());
}

TEST_CASE("a context event waits for every stream of the device", "[device_driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  const CUstream first = sim.NewStream();
  const CUstream second = sim.NewStream();
  const MappedGranule granule(*device);
  Event event = nullptr;
  REQUIRE(device->CreateEvent(&event).ok());
  sim::HoldStream(0, second);
  REQUIRE(device->Fill(granule.base, 1, 4096, first).ok());
  REQUIRE(device->Fill(granule.base + 4096, 1, 4096, second).ok());
  REQUIRE(device->RecordContextEvent(event).ok());
  sim::RunUntilIdle();
  bool complete = true;
  REQUIRE(device->QueryEvent(event, &complete).ok());
  CHECK_FALSE(complete);
  sim::ReleaseStream(0, second);
  REQUIRE(device->SynchronizeContext().ok());
  REQUIRE(device->QueryEvent(event, &complete).ok());
  CHECK(complete);
}

TEST_CASE("a stream knows its device, a special stream is of the device that asks",
          "[device_driver]") {
  sim::Config config;
  config.devices = 2;
  const SimDevice sim(config);
  const auto first = sim.Create(0);
  const auto second = sim.Create(1);
  const CUstream stream = sim.NewStream(1);
  int ordinal = -1;
  REQUIRE(first->StreamDevice(stream, &ordinal).ok());
  CHECK(ordinal == 1);
  for (CUstream special : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    REQUIRE(first->StreamDevice(special, &ordinal).ok());
    CHECK(ordinal == 0);
    REQUIRE(second->StreamDevice(special, &ordinal).ok());
    CHECK(ordinal == 1);
  }
}

TEST_CASE("the current device is the one of the thread's context", "[driver]") {
  sim::Config config;
  config.devices = 2;
  const SimDevice sim(config);
  CHECK(sim.driver().CurrentDevice() == -1);
  REQUIRE(sim.entries().CtxPushCurrent(sim.PrimaryContext(1)) == CUDA_SUCCESS);
  CHECK(sim.driver().CurrentDevice() == 1);
}

TEST_CASE("the clock of a simulated device is its virtual time", "[driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  sim::SetCost("cuMemCreate", {/*call_ns=*/1e6, /*per_handle_ns=*/0, /*per_mib_ns=*/0});
  const uint64_t before = device->NowNs();
  MemoryHandle handle = 0;
  REQUIRE(device->CreateHandle(kGranule, &handle).ok());
  CHECK(device->NowNs() >= before + 1'000'000);
}

TEST_CASE("after the driver is gone every method says so quietly", "[device_driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  EveryMethod every(sim, *device);
  sim::Deinitialize();
  for (const Method& method : every.methods) {
    INFO(method.entry);
    CHECK(method.call().error_class() == DriverErrorClass::kShuttingDown);
  }
}

TEST_CASE("a sticky error is told apart from memory trouble", "[device_driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  sim::Fault fault;
  fault.entry = "cuMemCreate";
  fault.result = CUDA_ERROR_ILLEGAL_ADDRESS;
  fault.sticky = true;
  sim::InjectFault(fault);
  MemoryHandle handle = 0;
  CHECK(device->CreateHandle(kGranule, &handle).error_class() == DriverErrorClass::kSticky);
  DeviceAddress address = 0;
  CHECK(device->AllocateClassic(4096, &address).error_class() == DriverErrorClass::kSticky);
}

}  // namespace
}  // namespace weir
