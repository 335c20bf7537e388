// A fresh simulated machine for each test of the runtime face. The tests are linked with
// libcudart.so.13 of tools/simcuda.
#ifndef WEIR_TESTS_SIMCUDA_RUNTIME_FIXTURE_H_
#define WEIR_TESTS_SIMCUDA_RUNTIME_FIXTURE_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tests/support/catch.h"
#include "tools/simcuda/faces.h"
#include "tools/simcuda/simcuda.h"

namespace weir::sim {

class RuntimeMachine {
 public:
  explicit RuntimeMachine(const Config& config = {}) {
    simcuda_refuse(0);  // the tests may run beside a real driver
    Reset(config);
    cudaGetLastError();
  }
  ~RuntimeMachine() {
    Reset();
    cudaGetLastError();
  }
  RuntimeMachine(const RuntimeMachine&) = delete;
  RuntimeMachine& operator=(const RuntimeMachine&) = delete;
};

inline Config TwoDevices() {
  Config config;
  config.devices = 2;
  return config;
}

inline char* NewRuntimeMemory(size_t bytes = 4096) {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
  return static_cast<char*>(memory);
}

inline cudaStream_t NewRuntimeStream() {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  return stream;
}

inline cudaEvent_t NewRuntimeEvent(unsigned int flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&event, flags) == cudaSuccess);
  return event;
}

inline int FirstByte(const void* memory) {
  unsigned char byte = 0;
  REQUIRE(cudaMemcpy(&byte, memory, 1, cudaMemcpyDeviceToHost) == cudaSuccess);
  return byte;
}

}  // namespace weir::sim

#endif  // WEIR_TESTS_SIMCUDA_RUNTIME_FIXTURE_H_
