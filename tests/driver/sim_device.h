// A freshly started simulated device with Weir's driver layer on it, for tests.
#ifndef WEIR_TESTS_DRIVER_SIM_DEVICE_H_
#define WEIR_TESTS_DRIVER_SIM_DEVICE_H_

#include <memory>
#include <string>

#include "allocator/driver/device_driver.h"
#include "allocator/driver/driver.h"
#include "allocator/driver/driver_table.h"
#include "tests/support/catch.h"
#include "tools/simcuda/simcuda.h"

namespace weir::test {

class SimDevice {
 public:
  explicit SimDevice(const sim::Config& config = {}) {
    sim::Reset(config);
    DriverOptions options;
    options.simulated = true;
    std::string error;
    driver_ = Driver::Open(options, &error);
    INFO(error);
    REQUIRE(driver_ != nullptr);
    REQUIRE(driver_->simulated());
  }

  const Driver& driver() const { return *driver_; }
  const DriverTable& entries() const { return driver_->entries(); }

  std::unique_ptr<DeviceDriver> Create(int ordinal = 0, bool allow_vmm = true) const {
    std::unique_ptr<DeviceDriver> device;
    const DriverStatus status = DeviceDriver::Create(*driver_, ordinal, allow_vmm, &device);
    INFO(status.ToString());
    REQUIRE(status.ok());
    return device;
  }

  // An entry point that the table has no need of.
  template <typename Pfn>
  Pfn Find(const char* entry, int version) const {
    void* pointer = driver_->Find(entry, version);
    INFO(entry);
    REQUIRE(pointer != nullptr);
    return reinterpret_cast<Pfn>(pointer);
  }

  CUcontext Current() const {
    CUcontext current = nullptr;
    REQUIRE(entries().CtxGetCurrent(&current) == CUDA_SUCCESS);
    return current;
  }
  CUcontext PrimaryContext(int ordinal) const {
    CUcontext context = nullptr;
    REQUIRE(entries().DevicePrimaryCtxRetain(&context, driver_->device(ordinal)) == CUDA_SUCCESS);
    return context;
  }
  // A stream of a device's primary context; the current context stays what it was.
  CUstream NewStream(int ordinal = 0, unsigned flags = CU_STREAM_NON_BLOCKING) const {
    CUstream stream = nullptr;
    CUcontext popped;
    REQUIRE(entries().CtxPushCurrent(PrimaryContext(ordinal)) == CUDA_SUCCESS);
    REQUIRE(Find<PFN_cuStreamCreate_v2000>("cuStreamCreate", 2000)(&stream, flags) == CUDA_SUCCESS);
    REQUIRE(entries().CtxPopCurrent(&popped) == CUDA_SUCCESS);
    return stream;
  }

 private:
  std::unique_ptr<const Driver> driver_;
};

}  // namespace weir::test

#endif  // WEIR_TESTS_DRIVER_SIM_DEVICE_H_
