// Graphs through the runtime face: drawings, the memory of graphs, and what lives as long as one.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "tests/simcuda/runtime_fixture.h"

namespace weir::sim {
namespace {

// A graph of two fills, one after the other.
cudaGraph_t NewGraph(cudaStream_t stream) {
  char* const memory = NewRuntimeMemory();
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory, 1, 16, stream) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory, 2, 16, stream) == cudaSuccess);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  return graph;
}

struct Destroyed {
  int times = 0;
  cudaError_t inside = cudaSuccess;  // what a CUDA call in the destructor answers
};

void Destroy(void* data) {
  auto* const destroyed = static_cast<Destroyed*>(data);
  ++destroyed->times;
  destroyed->inside = cudaDeviceSynchronize();
}

cudaUserObject_t NewUserObject(Destroyed* destroyed, unsigned int references = 1) {
  cudaUserObject_t object = nullptr;
  REQUIRE(cudaUserObjectCreate(&object, destroyed, &Destroy, references,
                               cudaUserObjectNoDestructorSync) == cudaSuccess);
  return object;
}

TEST_CASE("a user object is destroyed once, with the last of callers, graphs and executables",
          "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const cudaStream_t stream = NewRuntimeStream();
  const cudaGraph_t graph = NewGraph(stream);
  Destroyed destroyed;
  const cudaUserObject_t object = NewUserObject(&destroyed);
  const bool move = GENERATE(false, true);
  REQUIRE(cudaGraphRetainUserObject(graph, object, 1, move ? cudaGraphUserObjectMove : 0) ==
          cudaSuccess);
  if (!move) REQUIRE(cudaUserObjectRelease(object, 1) == cudaSuccess);
  CHECK(cudaUserObjectRelease(object, 1) == cudaErrorInvalidValue);  // the graph's, not ours
  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  HoldStream(0, stream);
  REQUIRE(cudaGraphLaunch(exec, stream) == cudaSuccess);
  REQUIRE(cudaGraphExecDestroy(exec) == cudaSuccess);
  CHECK(destroyed.times == 0);  // the launch is under way
  ReleaseStream(0, stream);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  cudaStreamDestroy(stream);
  CHECK(destroyed.times == 1);
  CHECK(destroyed.inside == cudaErrorNotPermitted);
}

TEST_CASE("user objects refuse wrong arguments", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  Destroyed destroyed;
  cudaUserObject_t object = nullptr;
  CHECK(cudaUserObjectCreate(&object, &destroyed, &Destroy, 1, 0) == cudaErrorInvalidValue);
  CHECK(cudaUserObjectCreate(&object, &destroyed, nullptr, 1, cudaUserObjectNoDestructorSync) ==
        cudaErrorInvalidValue);
  object = NewUserObject(&destroyed, 2);
  CHECK(cudaGraphRetainUserObject(nullptr, object, 1, 0) == cudaErrorInvalidValue);
  CHECK(cudaUserObjectRelease(object, 3) == cudaErrorInvalidValue);
  REQUIRE(cudaUserObjectRetain(object, 1) == cudaSuccess);
  REQUIRE(cudaUserObjectRelease(object, 3) == cudaSuccess);
  CHECK(destroyed.times == 1);
}

TEST_CASE("a drawing of a graph has its nodes and what they wait for", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const cudaGraph_t graph = NewGraph(NewRuntimeStream());
  char path[] = "/tmp/weir_graph_XXXXXX";
  const int file = mkstemp(path);
  REQUIRE(file >= 0);
  close(file);
  REQUIRE(cudaGraphDebugDotPrint(graph, path, 0) == cudaSuccess);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  unlink(path);
  CHECK(text.str() == "digraph {\n  node0;\n  node1;\n  node0 -> node1;\n}\n");
  CHECK(cudaGraphDebugDotPrint(graph, nullptr, 0) == cudaErrorInvalidValue);
  CHECK(cudaGraphDebugDotPrint(nullptr, path, 0) == cudaErrorInvalidValue);
}

TEST_CASE("graphs hold no memory of their own", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  uint64_t bytes = 1;
  CHECK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &bytes) == cudaSuccess);
  CHECK(bytes == 0);
  CHECK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &bytes) == cudaSuccess);
  CHECK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &bytes) ==
        cudaErrorInvalidValue);
  CHECK(cudaDeviceGetGraphMemAttribute(7, cudaGraphMemAttrUsedMemHigh, &bytes) ==
        cudaErrorInvalidDevice);
}

// The answer of a call in a forked child.
template <typename Call>
int InForkedChild(Call call) {
  const pid_t child = fork();
  if (child == 0) _exit(static_cast<int>(call()));
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a forked child of a process that uses the device is refused, a child of another is not",
          "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const auto allocate = [] {
    void* memory = nullptr;
    return cudaMalloc(&memory, 16);
  };
  CHECK(InForkedChild(allocate) == cudaSuccess);  // nothing was initialized
  REQUIRE(allocate() == cudaSuccess);
  CHECK(InForkedChild(allocate) == cudaErrorInitializationError);
  CHECK(InForkedChild([] { return cudaSetDevice(0); }) == cudaErrorInitializationError);
}

}  // namespace
}  // namespace weir::sim
