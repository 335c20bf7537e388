// Weir on two simulated devices of 1 GiB, for tests of the public API. The process-wide pool cannot
// be set up twice, so one test program runs several times: WEIR_TEST_OPTIONS gives further options.
#ifndef WEIR_TESTS_CAPI_SIMULATED_WEIR_H_
#define WEIR_TESTS_CAPI_SIMULATED_WEIR_H_

#include <cstdlib>
#include <string>

#include "tests/support/catch.h"
#include "tools/simcuda/simcuda.h"
#include "weir/weir.h"

namespace weir::test {

inline constexpr size_t kMiB = size_t{1} << 20;
inline constexpr size_t kDeviceBytes = 1024 * kMiB;

inline std::string TestOptions() {
  const char* options = std::getenv("WEIR_TEST_OPTIONS");
  return options == nullptr ? "" : options;
}
inline bool IsPassthrough() { return TestOptions() == "mode:passthrough"; }

// Every test case begins with one: sets Weir up at first, and later checks that the test before it
// left nothing allocated.
class SimulatedWeir {
 public:
  SimulatedWeir() {
    static const bool configured = Configure();
    REQUIRE(configured);
    REQUIRE(weir_set_device(0) == WEIR_OK);
  }
  ~SimulatedWeir() {
    for (int device = 0; device < 2; ++device) {
      CHECK(Stats(device).allocations == 0);
      CHECK(weir_empty_cache(device) == WEIR_OK);
    }
    CHECK(weir_verify() == WEIR_OK);
    CHECK(sim::CheckerReports().empty());
  }

  static weir_stats_t Stats(int device = 0) {
    weir_stats_t stats;
    REQUIRE(weir_get_stats(device, &stats) == WEIR_OK);
    return stats;
  }

 private:
  static bool Configure() {
    std::string options = TestOptions();
    if (options == "device:cuda") {
      // The loader's other way in: libcuda.so.1, which is the simulator's here.
      sim::Config config;
      config.devices = 2;
      config.memory_bytes = kDeviceBytes;
      sim::Reset(config);
    } else {
      options = "device:sim,sim_devices:2,sim_memory:1GiB," + options;
    }
    return weir_configure(options.c_str()) == WEIR_OK;
  }
};

// A function of the simulated driver, by name and version.
template <typename Function>
Function* DriverEntry(const char* name, int version) {
  void* pointer = nullptr;
  REQUIRE(simcuda_get_proc_address(name, &pointer, version, 0, nullptr) == CUDA_SUCCESS);
  REQUIRE(pointer != nullptr);
  return reinterpret_cast<Function*>(pointer);
}

// A device's primary context, current in this thread for a scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal) {
    CUcontext context = nullptr;
    REQUIRE(DriverEntry<CUresult(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain", 7000)(
                &context, ordinal) == CUDA_SUCCESS);
    REQUIRE(DriverEntry<CUresult(CUcontext)>("cuCtxPushCurrent", 4000)(context) == CUDA_SUCCESS);
  }
  ~CurrentDevice() {
    CUcontext context = nullptr;
    CHECK(DriverEntry<CUresult(CUcontext*)>("cuCtxPopCurrent", 4000)(&context) == CUDA_SUCCESS);
  }
};

inline weir_stream_t NewStream(int device = 0) {
  const CurrentDevice current(device);
  CUstream stream = nullptr;
  REQUIRE(DriverEntry<CUresult(CUstream*, unsigned)>("cuStreamCreate", 2000)(
              &stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  return stream;
}

// Sizes on both sides of every border between the pool's ways to serve them.
inline const size_t kSizes[] = {
    1,      100,    512,     513,      4096,         32768,    32769,     131072,
    262144, 262145, 1048576, 2 * kMiB, 2 * kMiB + 1, 5 * kMiB, 20 * kMiB, 100 * kMiB};

inline bool ErrorSays(const std::string& part) {
  INFO(weir_last_error());
  return std::string(weir_last_error()).find(part) != std::string::npos;
}

}  // namespace weir::test

#endif  // WEIR_TESTS_CAPI_SIMULATED_WEIR_H_
