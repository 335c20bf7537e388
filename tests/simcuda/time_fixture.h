// The driver functions that the tests about time call, through the simulated device's own
// cuGetProcAddress, and a fresh simulator with a current context for each test.
#ifndef WEIR_TESTS_SIMCUDA_TIME_FIXTURE_H_
#define WEIR_TESTS_SIMCUDA_TIME_FIXTURE_H_

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tools/simcuda/simcuda.h"

namespace weir::sim {

template <typename Function>
Function Resolve(const char* name, int version, cuuint64_t flags = 0) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const CUresult result = simcuda_get_proc_address(name, &function, version, flags, &status);
  INFO("looking for " << name);
  REQUIRE(result == CUDA_SUCCESS);
  REQUIRE(function != nullptr);
  return reinterpret_cast<Function>(function);
}

// Name and version of each. The formatter does not see that these are items of a list.
// clang-format off
#define WEIR_TIME_TEST_FUNCTIONS(F)                                                               \
  F(cuInit, 2000) F(cuDevicePrimaryCtxRetain, 7000) F(cuCtxSetCurrent, 4000)                      \
  F(cuCtxSynchronize, 2000) F(cuStreamCreate, 2000) F(cuStreamCreateWithPriority, 5050)           \
  F(cuStreamDestroy, 4000) F(cuStreamQuery, 2000) F(cuStreamSynchronize, 2000)                    \
  F(cuStreamWaitEvent, 3020) F(cuStreamGetId, 12000) F(cuStreamGetCtx, 9020)                      \
  F(cuStreamGetDevice, 12080) F(cuStreamGetPriority, 5050) F(cuStreamGetFlags, 5050)              \
  F(cuLaunchHostFunc, 10000) F(cuStreamAddCallback, 5000) F(cuEventCreate, 2000)                  \
  F(cuEventDestroy, 4000) F(cuEventRecord, 2000) F(cuEventQuery, 2000)                            \
  F(cuEventSynchronize, 2000) F(cuEventElapsedTime, 2000) F(cuCtxRecordEvent, 12050)              \
  F(cuCtxWaitEvent, 12050) F(cuMemcpy, 4000) F(cuMemcpyAsync, 4000) F(cuMemcpyHtoD, 3020)         \
  F(cuMemcpyDtoH, 3020) F(cuMemcpyDtoD, 3020) F(cuMemcpyHtoDAsync, 3020)                          \
  F(cuMemcpyDtoHAsync, 3020) F(cuMemcpyDtoDAsync, 3020) F(cuMemcpyPeerAsync, 4000)                \
  F(cuMemsetD8, 3020) F(cuMemsetD8Async, 3020) F(cuMemsetD32Async, 3020)                          \
  F(cuStreamWriteValue32, 11070) F(cuStreamBeginCapture, 10010) F(cuStreamEndCapture, 10000)      \
  F(cuStreamIsCapturing, 10000) F(cuStreamGetCaptureInfo, 11030)                                  \
  F(cuStreamUpdateCaptureDependencies, 11030) F(cuThreadExchangeStreamCaptureMode, 10010)         \
  F(cuGraphInstantiateWithFlags, 11040) F(cuGraphLaunch, 10000) F(cuGraphExecDestroy, 10000)      \
  F(cuGraphDestroy, 10000) F(cuGraphGetNodes, 10000) F(cuGraphNodeGetDependencies, 12030)         \
  F(cuMemAlloc, 3020) F(cuMemFree, 3020)                                                          \
  F(cuMemAllocAsync, 11020) F(cuMemFreeAsync, 11020) F(cuMemHostAlloc, 2020)                      \
  F(cuMemFreeHost, 2000) F(cuMemGetInfo, 3020) F(cuMemAddressReserve, 10020)                      \
  F(cuMemCreate, 10020) F(cuMemMap, 10020) F(cuMemSetAccess, 10020) F(cuMemUnmap, 10020)          \
  F(cuMemRelease, 10020) F(cuMemPoolGetAttribute, 11020) F(cuDeviceGetDefaultMemPool, 11020)      \
  F(cuDeviceGetAttribute, 2000)
// clang-format on

struct Driver {
#define WEIR_DECLARE(name, version) \
  PFN_##name##_v##version name = Resolve<PFN_##name##_v##version>(#name, version);
  WEIR_TIME_TEST_FUNCTIONS(WEIR_DECLARE)
#undef WEIR_DECLARE
};

inline const Driver& Cuda() {
  static const Driver driver;
  return driver;
}

// A fresh machine with the primary context of device 0 current in this thread.
class Machine {
 public:
  explicit Machine(const Config& config = {}) {
    Reset(config);
    REQUIRE(Cuda().cuInit(0) == CUDA_SUCCESS);
    UseDevice(0);
  }
  ~Machine() { Reset(); }  // ends worker threads
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Also what another host thread has to do first.
  static CUcontext UseDevice(int device) {
    CUcontext context = nullptr;
    REQUIRE(Cuda().cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
    REQUIRE(Cuda().cuCtxSetCurrent(context) == CUDA_SUCCESS);
    return context;
  }
};

inline CUstream NewStream(unsigned int flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  REQUIRE(Cuda().cuStreamCreate(&stream, flags) == CUDA_SUCCESS);
  return stream;
}

inline CUevent NewEvent(unsigned int flags = CU_EVENT_DISABLE_TIMING) {
  CUevent event = nullptr;
  REQUIRE(Cuda().cuEventCreate(&event, flags) == CUDA_SUCCESS);
  return event;
}

inline CUdeviceptr NewMemory(size_t bytes = 4096) {
  CUdeviceptr memory = 0;
  REQUIRE(Cuda().cuMemAlloc(&memory, bytes) == CUDA_SUCCESS);
  return memory;
}

// Queues a kernel that appends its name to the log.
inline void LaunchLogged(CUstream stream, const std::string& name, std::vector<std::string>* log) {
  REQUIRE(Launch(stream, name, {}, [name, log](KernelMemory&) { log->push_back(name); }) ==
          CUDA_SUCCESS);
}

// Queues a kernel that writes (reads) memory, for the checker.
inline void LaunchWrite(CUstream stream, const std::string& name, CUdeviceptr at, uint64_t bytes) {
  REQUIRE(Launch(stream, name, {{at, bytes, true}}) == CUDA_SUCCESS);
}
inline void LaunchRead(CUstream stream, const std::string& name, CUdeviceptr at, uint64_t bytes) {
  REQUIRE(Launch(stream, name, {{at, bytes, false}}) == CUDA_SUCCESS);
}

inline void Begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  REQUIRE(Cuda().cuStreamBeginCapture(stream, mode) == CUDA_SUCCESS);
}

inline CUstreamCaptureStatus Status(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  REQUIRE(Cuda().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
  return status;
}

inline CUgraph End(CUstream stream) {
  CUgraph graph = nullptr;
  REQUIRE(Cuda().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  REQUIRE(graph != nullptr);
  return graph;
}

inline CUgraphExec MakeExec(CUgraph graph) {
  CUgraphExec exec = nullptr;
  REQUIRE(Cuda().cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
  return exec;
}

inline size_t NodeCount(CUgraph graph) {
  size_t count = 0;
  REQUIRE(Cuda().cuGraphGetNodes(graph, nullptr, &count) == CUDA_SUCCESS);
  return count;
}

inline uint8_t ByteAt(CUdeviceptr address) {
  uint8_t value = 0;
  REQUIRE(Cuda().cuMemcpyDtoH(&value, address, 1) == CUDA_SUCCESS);
  return value;
}

}  // namespace weir::sim

#endif  // WEIR_TESTS_SIMCUDA_TIME_FIXTURE_H_
