// The runtime face: streams, events, captures and graphs.
#include <vector>

#include "tests/simcuda/runtime_fixture.h"

namespace weir::sim {
namespace {

TEST_CASE("work of a stream runs in its order", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const cudaStream_t stream = NewRuntimeStream();
  char* const memory = NewRuntimeMemory();
  std::vector<int> log;
  REQUIRE(cudaMemsetAsync(memory, 1, 64, stream) == cudaSuccess);
  REQUIRE(cudaLaunchHostFunc(
              stream, [](void* to) { static_cast<std::vector<int>*>(to)->push_back(1); }, &log) ==
          cudaSuccess);
  REQUIRE(cudaStreamAddCallback(
              stream,
              [](cudaStream_t, cudaError_t status, void* to) {
                static_cast<std::vector<int>*>(to)->push_back(status == cudaSuccess ? 2 : -1);
              },
              &log, 0) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory, 2, 64, stream) == cudaSuccess);
  CHECK(log.empty());
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(log == std::vector<int>{1, 2});
  CHECK(FirstByte(memory) == 2);
}

TEST_CASE("a host function may not call the runtime", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const cudaStream_t stream = NewRuntimeStream();
  cudaError_t inside = cudaSuccess;
  REQUIRE(cudaLaunchHostFunc(
              stream,
              [](void* to) {
                void* memory = nullptr;
                *static_cast<cudaError_t*>(to) = cudaMalloc(&memory, 512);
              },
              &inside) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(inside == cudaErrorNotPermitted);
}

TEST_CASE("streams have the properties they were made with", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  int least = 1;
  int greatest = 1;
  REQUIRE(cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess);
  CHECK(least == 0);
  CHECK(greatest < 0);
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest) == cudaSuccess);
  int priority = 1;
  unsigned int flags = 0;
  REQUIRE(cudaStreamGetPriority(stream, &priority) == cudaSuccess);
  REQUIRE(cudaStreamGetFlags(stream, &flags) == cudaSuccess);
  CHECK(priority == greatest);
  CHECK(flags == cudaStreamNonBlocking);
  int device = -1;
  REQUIRE(cudaStreamGetDevice(stream, &device) == cudaSuccess);
  CHECK(device == 0);
  unsigned long long id = 0;
  unsigned long long other_id = 0;
  REQUIRE(cudaStreamGetId(stream, &id) == cudaSuccess);
  REQUIRE(cudaStreamGetId(NewRuntimeStream(), &other_id) == cudaSuccess);
  CHECK(id != other_id);
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaStreamQuery(stream) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("an event orders streams, and the checker sees where none does", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const cudaStream_t a = NewRuntimeStream();
  const cudaStream_t b = NewRuntimeStream();
  char* const memory = NewRuntimeMemory();
  const cudaEvent_t event = NewRuntimeEvent();
  REQUIRE(cudaMemsetAsync(memory, 1, 64, a) == cudaSuccess);
  REQUIRE(cudaEventRecord(event, a) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(b, event, 0) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory, 2, 64, b) == cudaSuccess);
  RunUntilIdle();
  CHECK(CheckerReports().empty());
  REQUIRE(cudaMemsetAsync(memory, 3, 64, a) == cudaSuccess);
  RunUntilIdle();
  CHECK(CheckerReports().size() == 1);
}

TEST_CASE("an event is complete when its stream got there", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const cudaStream_t stream = NewRuntimeStream();
  const cudaEvent_t start = NewRuntimeEvent(cudaEventDefault);
  const cudaEvent_t end = NewRuntimeEvent(cudaEventDefault);
  CHECK(cudaEventQuery(start) == cudaSuccess);  // never recorded
  HoldStream(0, stream);
  REQUIRE(cudaEventRecord(start, stream) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(NewRuntimeMemory(), 1, 64, stream) == cudaSuccess);
  REQUIRE(cudaEventRecordWithFlags(end, stream, cudaEventRecordDefault) == cudaSuccess);
  CHECK(cudaEventQuery(end) == cudaErrorNotReady);
  ReleaseStream(0, stream);
  REQUIRE(cudaEventSynchronize(end) == cudaSuccess);
  float milliseconds = 0;
  REQUIRE(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
  CHECK(milliseconds > 0);
  REQUIRE(cudaEventDestroy(end) == cudaSuccess);
  CHECK(cudaEventDestroy(end) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("a capture records work and forbids what the driver forbids", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const cudaStream_t stream = NewRuntimeStream();
  char* const memory = NewRuntimeMemory();
  REQUIRE(cudaMemset(memory, 0, 64) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  REQUIRE(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  REQUIRE(cudaMemsetAsync(memory, 5, 64, stream) == cudaSuccess);

  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* dependencies = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  REQUIRE(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, &edges, &count) ==
          cudaSuccess);
  CHECK(id != 0);
  CHECK(count == 1);
  CHECK(edges == nullptr);
  size_t before = 1;
  REQUIRE(cudaGraphNodeGetDependencies(dependencies[0], nullptr, nullptr, &before) == cudaSuccess);
  CHECK(before == 0);

  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  CHECK(mode == cudaStreamCaptureModeGlobal);
  NewRuntimeMemory();  // allowed meanwhile
  REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
  CHECK(mode == cudaStreamCaptureModeRelaxed);

  cudaGraph_t ended = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &ended) == cudaSuccess);
  CHECK(ended == graph);
  CHECK(FirstByte(memory) == 0);
  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaGraphInstantiateWithFlags(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch) ==
          cudaSuccess);
  REQUIRE(cudaGraphLaunch(exec, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(FirstByte(memory) == 5);
  CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);

  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  void* more = nullptr;
  CHECK(cudaMalloc(&more, 512) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(stream, &ended) == cudaErrorStreamCaptureInvalidated);
}

TEST_CASE("a capture may be told to depend on other nodes", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const cudaStream_t stream = NewRuntimeStream();
  char* const memory = NewRuntimeMemory();
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory, 5, 64, stream) == cudaSuccess);
  REQUIRE(cudaStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0,
                                              cudaStreamSetCaptureDependencies) == cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* dependencies = nullptr;
  size_t count = 1;
  REQUIRE(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &dependencies, nullptr,
                                   &count) == cudaSuccess);
  CHECK(count == 0);
  const cudaGraphEdgeData edge{};
  CHECK(cudaStreamUpdateCaptureDependencies(
            stream, nullptr, &edge, 0, cudaStreamSetCaptureDependencies) == cudaErrorNotSupported);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  size_t nodes = 0;
  REQUIRE(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess);
  CHECK(nodes == 1);
}

}  // namespace
}  // namespace weir::sim
