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

  void DestroyStream(CUstream stream) const {
    REQUIRE(Find<PFN_cuStreamDestroy_v4000>("cuStreamDestroy", 4000)(stream) == CUDA_SUCCESS);
  }
  // Work submitted to `later` from now on comes after what `earlier` has been given.
  void OrderAfter(CUstream earlier, CUstream later) const {
    REQUIRE(OrderAfterQuietly(earlier, later));
  }
  // The same for threads of a test, where Catch cannot assert.
  bool OrderAfterQuietly(CUstream earlier, CUstream later) const {
    CUevent event = nullptr;
    return entries().EventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
           entries().EventRecord(event, earlier) == CUDA_SUCCESS &&
           entries().StreamWaitEvent(later, event, 0) == CUDA_SUCCESS &&
           entries().EventDestroy(event) == CUDA_SUCCESS;
  }
  void BeginCapture(CUstream stream) const {
    REQUIRE(Find<PFN_cuStreamBeginCapture_v10010>("cuStreamBeginCapture", 10010)(
                stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  }
  // Ends the capture; whether it was still valid.
  bool CaptureSurvives(CUstream stream) const {
    CUgraph graph = nullptr;
    const CUresult result =
        Find<PFN_cuStreamEndCapture_v10000>("cuStreamEndCapture", 10000)(stream, &graph);
    if (result == CUDA_SUCCESS) Find<PFN_cuGraphDestroy_v10000>("cuGraphDestroy", 10000)(graph);
    return result == CUDA_SUCCESS;
  }

 private:
  std::unique_ptr<const Driver> driver_;
};

}  // namespace weir::test

#endif  // WEIR_TESTS_DRIVER_SIM_DEVICE_H_
