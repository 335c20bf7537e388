// The replay of graphs: when and in which order captured work runs, and what the happens-before
// checker finds in it.
#include "tests/simcuda/time_fixture.h"

namespace weir::sim {
namespace {

using Log = std::vector<std::string>;

TEST_CASE("captured work runs at each launch and not before", "[simcuda][graph]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory();
  REQUIRE(Cuda().cuMemsetD8(memory, 0, 4096) == CUDA_SUCCESS);
  const CUstream stream = NewStream();
  Log log;
  Begin(stream);
  REQUIRE(Cuda().cuMemsetD8Async(memory, 7, 64, stream) == CUDA_SUCCESS);
  LaunchLogged(stream, "kernel", &log);
  REQUIRE(Cuda().cuLaunchHostFunc(
              stream, [](void* to) { static_cast<Log*>(to)->push_back("host"); }, &log) ==
          CUDA_SUCCESS);
  const CUgraph graph = End(stream);
  CHECK(NodeCount(graph) == 3);
  RunUntilIdle();
  CHECK(log.empty());
  CHECK(ByteAt(memory) == 0);
  const CUgraphExec exec = MakeExec(graph);
  REQUIRE(Cuda().cuGraphDestroy(graph) == CUDA_SUCCESS);  // the executable keeps what it needs
  CHECK(Cuda().cuGraphDestroy(graph) == CUDA_ERROR_INVALID_VALUE);
  for (int i = 0; i < 2; ++i) REQUIRE(Cuda().cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuGraphExecDestroy(exec) == CUDA_SUCCESS);  // so do launches under way
  CHECK(Cuda().cuGraphLaunch(exec, stream) == CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(Cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(log == Log{"kernel", "host", "kernel", "host"});
  CHECK(ByteAt(memory) == 7);
}

TEST_CASE("nodes run after their dependencies, in a seeded order otherwise", "[simcuda][graph]") {
  bool b_first = false;
  bool c_first = false;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Config config;
    config.seed = seed;
    const Machine machine(config);
    Log log;
    const CUstream a = NewStream();
    const CUstream b = NewStream();
    const CUevent fork = NewEvent();
    const CUevent join = NewEvent();
    Begin(a);
    LaunchLogged(a, "a", &log);
    REQUIRE(Cuda().cuEventRecord(fork, a) == CUDA_SUCCESS);
    REQUIRE(Cuda().cuStreamWaitEvent(b, fork, 0) == CUDA_SUCCESS);
    LaunchLogged(b, "b", &log);
    LaunchLogged(a, "c", &log);
    REQUIRE(Cuda().cuEventRecord(join, b) == CUDA_SUCCESS);
    REQUIRE(Cuda().cuStreamWaitEvent(a, join, 0) == CUDA_SUCCESS);
    LaunchLogged(a, "d", &log);
    REQUIRE(Cuda().cuGraphLaunch(MakeExec(End(a)), a) == CUDA_SUCCESS);
    REQUIRE(Cuda().cuStreamSynchronize(a) == CUDA_SUCCESS);
    REQUIRE(log.size() == 4);
    CHECK(log[0] == "a");
    CHECK(log[3] == "d");
    b_first = b_first || log[1] == "b";
    c_first = c_first || log[1] == "c";
  }
  CHECK(b_first);
  CHECK(c_first);
}

TEST_CASE("a graph launch is one operation in stream order", "[simcuda][graph]") {
  const Machine machine;
  Log log;
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  Begin(a);
  LaunchLogged(a, "graph", &log);
  const CUgraphExec exec = MakeExec(End(a));
  LaunchLogged(a, "before", &log);
  REQUIRE(Cuda().cuGraphLaunch(exec, a) == CUDA_SUCCESS);
  LaunchLogged(a, "after", &log);
  HoldStream(0, a);
  REQUIRE(Cuda().cuGraphLaunch(exec, b) == CUDA_SUCCESS);  // not beside its other launch
  RunUntilIdle();
  CHECK(log.empty());
  ReleaseStream(0, a);
  REQUIRE(Cuda().cuStreamSynchronize(b) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuStreamSynchronize(a) == CUDA_SUCCESS);
  REQUIRE(log.size() == 4);
  CHECK(log[0] == "before");
  CHECK(log[1] == "graph");
}

TEST_CASE("a replay uses the captured addresses even after they were unmapped",
          "[simcuda][graph]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory(4 << 20);
  const CUstream stream = NewStream();
  Begin(stream);
  REQUIRE(Cuda().cuMemsetD8Async(memory, 7, 64, stream) == CUDA_SUCCESS);
  const CUgraphExec exec = MakeExec(End(stream));
  REQUIRE(Cuda().cuMemFree(memory) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
  CHECK(Cuda().cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("nodes of a graph without a path between them are unordered", "[simcuda][checker]") {
  for (const bool joined : {false, true}) {
    const Machine machine;
    const CUdeviceptr memory = NewMemory(4096);
    const CUstream a = NewStream();
    const CUstream b = NewStream();
    const CUevent fork = NewEvent();
    const CUevent join = NewEvent();
    Begin(a);
    LaunchWrite(a, "root", memory, 64);
    REQUIRE(Cuda().cuEventRecord(fork, a) == CUDA_SUCCESS);
    REQUIRE(Cuda().cuStreamWaitEvent(b, fork, 0) == CUDA_SUCCESS);
    LaunchWrite(b, "branch", memory, 64);
    REQUIRE(Cuda().cuEventRecord(join, b) == CUDA_SUCCESS);
    if (joined) REQUIRE(Cuda().cuStreamWaitEvent(a, join, 0) == CUDA_SUCCESS);
    LaunchWrite(a, "trunk", memory, 64);
    if (!joined) REQUIRE(Cuda().cuStreamWaitEvent(a, join, 0) == CUDA_SUCCESS);
    const CUgraphExec exec = MakeExec(End(a));
    LaunchWrite(a, "before", memory, 64);
    for (int i = 0; i < 3; ++i) REQUIRE(Cuda().cuGraphLaunch(exec, a) == CUDA_SUCCESS);
    LaunchWrite(a, "after", memory, 64);
    RunUntilIdle();
    CHECK(CheckerReports().size() == (joined ? 0 : 3));
    if (!joined) continue;
    LaunchWrite(b, "beside", memory, 64);
    RunUntilIdle();
    CHECK(CheckerReports().size() == 1);
  }
}

TEST_CASE("a replay that touches memory given to somebody else is reported", "[simcuda][checker]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory(4096);
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  Begin(a);
  REQUIRE(Cuda().cuMemsetD8Async(memory, 1, 64, a) == CUDA_SUCCESS);
  const CUgraphExec exec = MakeExec(End(a));
  LaunchWrite(b, "new owner", memory, 64);
  RunUntilIdle();
  REQUIRE(CheckerReports().empty());
  REQUIRE(Cuda().cuGraphLaunch(exec, a) == CUDA_SUCCESS);
  RunUntilIdle();
  REQUIRE(CheckerReports().size() == 1);
  CHECK(CheckerReports()[0].second.find("in cuGraphLaunch #") != std::string::npos);
}

TEST_CASE("a node knows the nodes it depends on", "[simcuda]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory(4096);
  const CUstream a = NewStream();
  Begin(a);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(Cuda().cuMemsetD8Async(memory, 1, 64, a) == CUDA_SUCCESS);
  }
  const CUgraph graph = End(a);
  CUgraphNode nodes[3] = {};
  size_t count = 3;
  REQUIRE(Cuda().cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS);
  const auto dependencies = Cuda().cuGraphNodeGetDependencies;

  REQUIRE(dependencies(nodes[0], nullptr, nullptr, &count) == CUDA_SUCCESS);
  CHECK(count == 0);
  REQUIRE(dependencies(nodes[2], nullptr, nullptr, &count) == CUDA_SUCCESS);
  CHECK(count == 1);
  CUgraphNode found[2] = {nodes[2], nodes[2]};
  CUgraphEdgeData edges[2] = {{1, 1, 1, {}}, {1, 1, 1, {}}};
  count = 2;
  REQUIRE(dependencies(nodes[2], found, edges, &count) == CUDA_SUCCESS);
  CHECK(count == 1);
  CHECK(found[0] == nodes[1]);
  CHECK(found[1] == nullptr);
  CHECK(edges[0].type == 0);

  CHECK(dependencies(nullptr, nullptr, nullptr, &count) == CUDA_ERROR_INVALID_VALUE);
  CHECK(dependencies(nodes[0], nullptr, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(dependencies(nodes[0], nullptr, edges, &count) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Cuda().cuGraphDestroy(graph) == CUDA_SUCCESS);
  CHECK(dependencies(nodes[0], nullptr, nullptr, &count) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("instantiation takes the flags that change nothing here and no others", "[simcuda]") {
  const Machine machine;
  const CUstream a = NewStream();
  Begin(a);
  const CUgraph graph = End(a);
  CUgraphExec exec = nullptr;
  const auto instantiate = [&](unsigned long long flags) {
    return Cuda().cuGraphInstantiateWithFlags(&exec, graph, flags);
  };
  CHECK(instantiate(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                    CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) == CUDA_SUCCESS);
  CHECK(instantiate(CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(instantiate(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == CUDA_ERROR_INVALID_VALUE);
  CHECK(instantiate(1 << 20) == CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace weir::sim
