#include "allocator/driver/device_caps.h"

#include "tests/driver/sim_device.h"

namespace weir {
namespace {

using test::SimDevice;

constexpr uint64_t kGranule = uint64_t{2} << 20;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void FailCreate(CUresult result, bool always) {
  sim::Fault fault;
  fault.entry = "cuMemCreate";
  fault.result = result;
  fault.every_later_too = always;
  sim::InjectFault(fault);
}

TEST_CASE("every capability has a reason, present or absent", "[device_caps]") {
  const SimDevice sim;
  const DeviceCaps caps = ProbeDevice(sim.driver(), 0, /*try_vmm=*/true);
  CHECK(Contains(caps.device_name, "Weir simulated GPU"));
  CHECK(caps.total_bytes == sim::CurrentConfig().memory_bytes);
  for (const Capability* capability : caps.All()) {
    CHECK_FALSE(capability->name.empty());
    INFO(capability->name);
    CHECK_FALSE(capability->reason.empty());
  }
  CHECK(caps.vmm.value == static_cast<int64_t>(sim::CurrentConfig().granularity));
  CHECK(caps.memory_pools.value == 1);
  CHECK(caps.context_events.value == 1);
}

TEST_CASE("a device that cannot map memory says which attribute denies it", "[device_caps]") {
  sim::Config config;
  config.vmm = false;
  const SimDevice sim(config);
  const auto device = sim.Create();
  CHECK_FALSE(device->has_vmm());
  CHECK(device->granularity() == 0);
  CHECK(Contains(device->vmm_absent_reason(), "attribute 102"));
}

TEST_CASE("mapping can be forbidden by the caller", "[device_caps]") {
  const SimDevice sim;
  const auto device = sim.Create(0, /*allow_vmm=*/false);
  CHECK_FALSE(device->has_vmm());
  CHECK(Contains(device->vmm_absent_reason(), "vmm:off"));
  CHECK(sim::CallCount("cuMemCreate") == 0);
}

TEST_CASE("a container that refuses exportable handles keeps mapping without them",
          "[device_caps]") {
  const SimDevice sim;
  FailCreate(CUDA_ERROR_NOT_PERMITTED, /*always=*/false);
  const DeviceCaps caps = ProbeDevice(sim.driver(), 0, /*try_vmm=*/true);
  CHECK(caps.vmm.value != 0);
  CHECK(caps.posix_handles.value == 0);
  CHECK(Contains(caps.posix_handles.reason, "CUDA_ERROR_NOT_PERMITTED"));
}

TEST_CASE("where the attributes promise what the calls refuse, mapping is absent",
          "[device_caps]") {
  const SimDevice sim;
  FailCreate(CUDA_ERROR_NOT_SUPPORTED, /*always=*/true);
  const auto device = sim.Create();
  CHECK_FALSE(device->has_vmm());
  CHECK(device->vmm_absent_reason() == "cuMemCreate: CUDA_ERROR_NOT_SUPPORTED (801)");
  // The rest of the device works.
  DeviceAddress address = 0;
  CHECK(device->AllocateClassic(4096, &address).ok());
}

TEST_CASE("each step of the trial mapping is undone when a later one fails", "[device_caps]") {
  for (const char* entry : {"cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    INFO(entry);
    const SimDevice sim;
    sim::Fault fault;
    fault.entry = entry;
    fault.result = CUDA_ERROR_NOT_SUPPORTED;
    fault.every_later_too = true;
    sim::InjectFault(fault);
    const auto device = sim.Create();
    CHECK_FALSE(device->has_vmm());
    CHECK(Contains(device->vmm_absent_reason(), entry));
    CHECK(sim::UsedBytes(0) == 0);
    CHECK(
        sim::CallCount("cuMemAddressFree") ==
        (entry == std::string("cuMemAddressReserve") ? 0 : sim::CallCount("cuMemAddressReserve")));
  }
}

TEST_CASE("a full device is no proof against mapping", "[device_caps]") {
  const SimDevice sim;
  sim::SetOtherProcessBytes(0, sim::CurrentConfig().memory_bytes);
  const auto device = sim.Create();
  CHECK(device->has_vmm());
  CHECK(device->granularity() == kGranule);
}

TEST_CASE("a driver older than 12.5 has no context events and says so", "[device_caps]") {
  sim::Config config;
  config.driver_version = 12040;
  const SimDevice sim(config);
  const auto device = sim.Create();
  CHECK_FALSE(device->has_context_events());
  const DeviceCaps caps = ProbeDevice(sim.driver(), 0, /*try_vmm=*/false);
  CHECK(Contains(caps.context_events.reason, "came with CUDA 12.5, the driver is for CUDA 12.4"));
  Event event = nullptr;
  REQUIRE(device->CreateEvent(&event).ok());
  CHECK(device->RecordContextEvent(event).error_class() == DriverErrorClass::kNotSupported);
}

TEST_CASE("a mechanism that is switched off stays off, and what it made can be given back",
          "[device_driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  MemoryHandle handle = 0;
  REQUIRE(device->CreateHandle(kGranule, &handle).ok());
  device->SwitchOffVmm(DriverStatus(CUDA_ERROR_NOT_SUPPORTED, "cuMemMap"));
  device->SwitchOffContextEvents(DriverStatus(CUDA_ERROR_NOT_SUPPORTED, "cuCtxRecordEvent"));
  CHECK_FALSE(device->has_vmm());
  CHECK_FALSE(device->has_context_events());
  CHECK(device->granularity() == kGranule);
  CHECK(device->ReleaseHandle(handle).ok());
}

TEST_CASE("the simulated device cannot be resized once it is in use", "[driver]") {
  const SimDevice sim;
  const auto device = sim.Create();
  DriverOptions options;
  options.simulated = true;
  options.sim_devices = 5;
  std::string error;
  CHECK(Driver::Open(options, &error) == nullptr);
  CHECK(Contains(error, "already in use"));
  options.sim_devices = sim::CurrentConfig().devices;
  CHECK(Driver::Open(options, &error) != nullptr);
}

}  // namespace
}  // namespace weir
