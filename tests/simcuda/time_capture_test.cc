// Stream capture: what becomes a node, which calls are legal meanwhile and what they do to the
// capture (driver.md section 9), and the replay of graphs.
#include <algorithm>
#include <functional>
#include <thread>

#include "tests/simcuda/time_fixture.h"

namespace weir::sim {
namespace {

using Log = std::vector<std::string>;

constexpr CUstreamCaptureMode kModes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                          CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                          CU_STREAM_CAPTURE_MODE_RELAXED};
const char* const kModeNames[] = {"global", "thread-local", "relaxed"};

void Begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  REQUIRE(Cuda().cuStreamBeginCapture(stream, mode) == CUDA_SUCCESS);
}

CUstreamCaptureStatus Status(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  REQUIRE(Cuda().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
  return status;
}

CUgraph End(CUstream stream) {
  CUgraph graph = nullptr;
  REQUIRE(Cuda().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  REQUIRE(graph != nullptr);
  return graph;
}

CUgraphExec MakeExec(CUgraph graph) {
  CUgraphExec exec = nullptr;
  REQUIRE(Cuda().cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
  return exec;
}

size_t NodeCount(CUgraph graph) {
  size_t count = 0;
  REQUIRE(Cuda().cuGraphGetNodes(graph, nullptr, &count) == CUDA_SUCCESS);
  return count;
}

// ---- The legality table
// ---------------------------------------------------------------------------

struct Scene {
  CUstream capturing = nullptr;  // non-blocking
  CUstream other = nullptr;      // non-blocking, idle
  CUevent plain = nullptr;       // recorded on `other` before the capture
  CUevent captured = nullptr;    // recorded on `capturing` inside the capture
  CUdeviceptr memory = 0;
  CUdeviceptr to_free = 0;
  void* host = nullptr;
  CUmemoryPool pool = nullptr;
  CUcontext context = nullptr;
};

enum class Rule {
  kLegal,     // in every mode, and the capture goes on
  kUnsafe,    // "potentially unsafe": depends on modes and threads
  kNever,     // 900 in every mode and from every thread, and the capture is invalidated
  kCaptured,  // 907 likewise
};

struct Row {
  const char* name;
  Rule rule;
  std::function<CUresult(const Scene&)> call;
};

// One call of each row of the table. Calls that become nodes are legal.
const std::vector<Row>& Table() {
  static const std::vector<Row> table = {
      {"cuStreamIsCapturing", Rule::kLegal,
       [](const Scene& s) {
         CUstreamCaptureStatus status;
         return Cuda().cuStreamIsCapturing(s.capturing, &status);
       }},
      {"cuStreamGetCaptureInfo", Rule::kLegal,
       [](const Scene& s) {
         CUstreamCaptureStatus status;
         return Cuda().cuStreamGetCaptureInfo(s.capturing, &status, nullptr, nullptr, nullptr,
                                              nullptr);
       }},
      {"cuEventRecord, capturing stream", Rule::kLegal,
       [](const Scene& s) { return Cuda().cuEventRecord(s.plain, s.capturing); }},
      {"cuEventRecord, other stream", Rule::kLegal,
       [](const Scene& s) { return Cuda().cuEventRecord(s.plain, s.other); }},
      {"cuStreamWaitEvent, other stream", Rule::kLegal,
       [](const Scene& s) { return Cuda().cuStreamWaitEvent(s.other, s.plain, 0); }},
      {"cuMemsetD8Async, capturing stream", Rule::kLegal,
       [](const Scene& s) { return Cuda().cuMemsetD8Async(s.memory, 1, 64, s.capturing); }},
      {"cuMemcpyAsync, capturing stream", Rule::kLegal,
       [](const Scene& s) {
         return Cuda().cuMemcpyAsync(s.memory, s.memory + 64, 64, s.capturing);
       }},
      {"cuMemsetD8Async, other stream", Rule::kLegal,
       [](const Scene& s) { return Cuda().cuMemsetD8Async(s.memory, 1, 64, s.other); }},
      {"kernel launch", Rule::kLegal,
       [](const Scene& s) { return Launch(s.capturing, "kernel", {}); }},
      {"cuLaunchHostFunc", Rule::kLegal,
       [](const Scene& s) {
         return Cuda().cuLaunchHostFunc(
             s.capturing, [](void*) {}, nullptr);
       }},
      {"cuMemCreate and cuMemRelease", Rule::kLegal,
       [](const Scene&) {
         CUmemAllocationProp properties = {};
         properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
         properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
         CUmemGenericAllocationHandle handle = 0;
         const CUresult made = Cuda().cuMemCreate(&handle, 2 << 20, &properties, 0);
         return made != CUDA_SUCCESS ? made : Cuda().cuMemRelease(handle);
       }},
      {"cuMemAddressReserve", Rule::kLegal,
       [](const Scene&) {
         CUdeviceptr base = 0;
         return Cuda().cuMemAddressReserve(&base, 2 << 20, 0, 0, 0);
       }},
      {"cuDeviceGetDefaultMemPool", Rule::kLegal,
       [](const Scene&) {
         CUmemoryPool pool = nullptr;
         return Cuda().cuDeviceGetDefaultMemPool(&pool, 0);
       }},
      {"cuDeviceGetAttribute", Rule::kLegal,
       [](const Scene&) {
         int value = 0;
         return Cuda().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0);
       }},
      {"cuMemAlloc", Rule::kUnsafe,
       [](const Scene&) {
         CUdeviceptr memory = 0;
         return Cuda().cuMemAlloc(&memory, 64);
       }},
      {"cuMemFree", Rule::kUnsafe, [](const Scene& s) { return Cuda().cuMemFree(s.to_free); }},
      {"cuMemHostAlloc", Rule::kUnsafe,
       [](const Scene&) {
         void* host = nullptr;
         return Cuda().cuMemHostAlloc(&host, 64, 0);
       }},
      {"cuMemFreeHost", Rule::kUnsafe, [](const Scene& s) { return Cuda().cuMemFreeHost(s.host); }},
      {"cuMemPoolGetAttribute", Rule::kUnsafe,
       [](const Scene& s) {
         cuuint64_t value = 0;
         return Cuda().cuMemPoolGetAttribute(s.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
       }},
      {"cuMemGetInfo", Rule::kUnsafe,
       [](const Scene&) {
         size_t free = 0;
         size_t total = 0;
         return Cuda().cuMemGetInfo(&free, &total);
       }},
      {"cuEventCreate", Rule::kUnsafe,
       [](const Scene&) {
         CUevent event = nullptr;
         return Cuda().cuEventCreate(&event, 0);
       }},
      {"cuStreamCreate", Rule::kUnsafe,
       [](const Scene&) {
         CUstream stream = nullptr;
         return Cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
       }},
      {"cuEventQuery, ordinary event", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuEventQuery(s.plain); }},
      {"cuEventSynchronize, ordinary event", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuEventSynchronize(s.plain); }},
      {"cuStreamQuery, other stream", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuStreamQuery(s.other); }},
      {"cuStreamSynchronize, other stream", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuStreamSynchronize(s.other); }},
      {"cuMemcpy", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuMemcpy(s.memory, s.memory + 64, 64); }},
      {"cuMemsetD8", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuMemsetD8(s.memory, 1, 64); }},
      {"cuStreamGetId, capturing stream", Rule::kUnsafe,
       [](const Scene& s) {
         unsigned long long id = 0;
         return Cuda().cuStreamGetId(s.capturing, &id);
       }},
      {"cuStreamGetDevice, capturing stream", Rule::kUnsafe,
       [](const Scene& s) {
         CUdevice device = 0;
         return Cuda().cuStreamGetDevice(s.capturing, &device);
       }},
      {"cuStreamQuery, capturing stream", Rule::kNever,
       [](const Scene& s) { return Cuda().cuStreamQuery(s.capturing); }},
      {"cuStreamSynchronize, capturing stream", Rule::kNever,
       [](const Scene& s) { return Cuda().cuStreamSynchronize(s.capturing); }},
      {"cuCtxSynchronize", Rule::kNever, [](const Scene&) { return Cuda().cuCtxSynchronize(); }},
      {"cuStreamAddCallback", Rule::kNever,
       [](const Scene& s) {
         return Cuda().cuStreamAddCallback(
             s.capturing, [](CUstream, CUresult, void*) {}, nullptr, 0);
       }},
      {"cuCtxRecordEvent", Rule::kNever,
       [](const Scene& s) { return Cuda().cuCtxRecordEvent(s.context, s.plain); }},
      {"cuCtxWaitEvent", Rule::kNever,
       [](const Scene& s) { return Cuda().cuCtxWaitEvent(s.context, s.plain); }},
      {"cuEventQuery, captured event", Rule::kCaptured,
       [](const Scene& s) { return Cuda().cuEventQuery(s.captured); }},
      {"cuEventSynchronize, captured event", Rule::kCaptured,
       [](const Scene& s) { return Cuda().cuEventSynchronize(s.captured); }},
  };
  return table;
}

bool Refused(Rule rule, CUstreamCaptureMode capture, CUstreamCaptureMode thread, bool same_thread) {
  if (rule == Rule::kLegal) return false;
  if (rule != Rule::kUnsafe) return true;
  if (thread == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (same_thread) return capture != CU_STREAM_CAPTURE_MODE_RELAXED;
  return thread == CU_STREAM_CAPTURE_MODE_GLOBAL && capture == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

TEST_CASE("each call is legal or refused in a capture as the table says", "[simcuda][capture]") {
  for (const Row& row : Table()) {
    for (const CUstreamCaptureMode capture : kModes) {
      for (const CUstreamCaptureMode mode : kModes) {
        for (const bool same_thread : {true, false}) {
          INFO(row.name << ", " << kModeNames[capture] << " capture, "
                        << (same_thread ? "same" : "other") << " thread, " << kModeNames[mode]);
          const Machine machine;
          Scene scene;
          scene.context = Machine::UseDevice(0);
          scene.capturing = NewStream();
          scene.other = NewStream();
          scene.plain = NewEvent();
          scene.captured = NewEvent();
          scene.memory = NewMemory();
          scene.to_free = NewMemory();
          REQUIRE(Cuda().cuMemHostAlloc(&scene.host, 64, 0) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuDeviceGetDefaultMemPool(&scene.pool, 0) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuEventRecord(scene.plain, scene.other) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);
          Begin(scene.capturing, capture);
          REQUIRE(Cuda().cuEventRecord(scene.captured, scene.capturing) == CUDA_SUCCESS);

          CUresult got = CUDA_ERROR_UNKNOWN;
          CUstreamCaptureMode before = mode;
          const auto call = [&] {
            CUstreamCaptureMode swap = mode;
            Cuda().cuThreadExchangeStreamCaptureMode(&swap);
            before = swap;
            got = row.call(scene);
            Cuda().cuThreadExchangeStreamCaptureMode(&swap);
          };
          if (same_thread) {
            call();
          } else {
            std::thread([&] {
              Cuda().cuCtxSetCurrent(scene.context);
              call();
            }).join();
          }
          CHECK(before == CU_STREAM_CAPTURE_MODE_GLOBAL);

          const bool refused = Refused(row.rule, capture, mode, same_thread);
          const CUresult expected = !refused ? CUDA_SUCCESS
                                    : row.rule == Rule::kCaptured
                                        ? CUDA_ERROR_CAPTURED_EVENT
                                        : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
          CHECK(got == expected);
          CHECK(Status(scene.capturing) ==
                (refused ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE));
          CUgraph graph = nullptr;
          const CUresult end = Cuda().cuStreamEndCapture(scene.capturing, &graph);
          CHECK(end == (refused ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS));
          CHECK((graph == nullptr) == refused);
          CHECK(Status(scene.capturing) == CU_STREAM_CAPTURE_STATUS_NONE);
        }
      }
    }
  }
}

TEST_CASE("the legacy stream is unusable while a blocking stream captures", "[simcuda][capture]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory();
  const CUevent event = NewEvent();
  const std::vector<std::function<CUresult()>> calls = {
      [&] { return Cuda().cuMemsetD8Async(memory, 1, 64, nullptr); },
      [&] { return Cuda().cuMemsetD8(memory, 1, 64); },
      [&] { return Cuda().cuMemcpy(memory, memory + 64, 64); },
      [&] { return Cuda().cuEventRecord(event, CU_STREAM_LEGACY); },
      [&] { return Cuda().cuStreamSynchronize(nullptr); },
      [&] { return Launch(nullptr, "kernel", {}); },
  };
  for (const std::function<CUresult()>& call : calls) {
    const CUstream stream = NewStream(CU_STREAM_DEFAULT);
    Begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CHECK(Cuda().cuStreamIsCapturing(nullptr, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK(Status(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);  // asking is harmless
    CHECK(call() == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK(Status(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CUgraph graph = nullptr;
    CHECK(Cuda().cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(Status(nullptr) == CU_STREAM_CAPTURE_STATUS_NONE);
  }
}

// ---- Begin, end, fork and join
// --------------------------------------------------------------------

TEST_CASE("captures begin and end where they may", "[simcuda][capture]") {
  const Machine machine;
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  CUgraph graph = nullptr;
  CHECK(Cuda().cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(Cuda().cuStreamBeginCapture(a, static_cast<CUstreamCaptureMode>(3)) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(Cuda().cuStreamEndCapture(a, &graph) == CUDA_ERROR_ILLEGAL_STATE);
  const CUevent fork = NewEvent();
  Begin(a);
  CHECK(Cuda().cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_ILLEGAL_STATE);
  REQUIRE(Cuda().cuEventRecord(fork, a) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuStreamWaitEvent(b, fork, 0) == CUDA_SUCCESS);
  CHECK(Status(b) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(Cuda().cuStreamEndCapture(b, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  std::thread([&] {
    Machine::UseDevice(0);
    CHECK(Cuda().cuStreamEndCapture(a, &graph) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  CHECK(NodeCount(End(a)) == 0);
  CHECK(Status(b) == CU_STREAM_CAPTURE_STATUS_NONE);

  Begin(a, CU_STREAM_CAPTURE_MODE_RELAXED);
  std::thread([&] {
    Machine::UseDevice(0);
    CHECK(Cuda().cuStreamEndCapture(a, &graph) == CUDA_SUCCESS);
  }).join();
}

TEST_CASE("a fork that is not joined fails the capture", "[simcuda][capture]") {
  const Machine machine;
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  const CUevent fork = NewEvent();
  Begin(a);
  REQUIRE(Cuda().cuEventRecord(fork, a) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuStreamWaitEvent(b, fork, 0) == CUDA_SUCCESS);
  REQUIRE(Launch(b, "lost", {}) == CUDA_SUCCESS);
  CUgraph graph = nullptr;
  CHECK(Cuda().cuStreamEndCapture(a, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK(graph == nullptr);
  CHECK(Status(a) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(Status(b) == CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_CASE("waits may not cross the border of a capture", "[simcuda][capture]") {
  const Machine machine;
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  const CUevent outside = NewEvent();
  const CUevent inside = NewEvent();
  const CUevent never = NewEvent();
  CUgraph graph = nullptr;
  REQUIRE(Cuda().cuEventRecord(outside, b) == CUDA_SUCCESS);
  Begin(a);
  CHECK(Cuda().cuStreamWaitEvent(a, never, 0) == CUDA_SUCCESS);
  CHECK(Cuda().cuStreamWaitEvent(a, outside, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  CHECK(Launch(a, "late", {}) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(Cuda().cuStreamEndCapture(a, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  // The event of a capture that ended can be waited for by nobody, until it is recorded again.
  Begin(a);
  REQUIRE(Cuda().cuEventRecord(inside, a) == CUDA_SUCCESS);
  End(a);
  CHECK(Cuda().cuStreamWaitEvent(b, inside, 0) == CUDA_ERROR_CAPTURED_EVENT);
  CHECK(Cuda().cuEventQuery(inside) == CUDA_ERROR_CAPTURED_EVENT);
  REQUIRE(Cuda().cuEventRecord(inside, b) == CUDA_SUCCESS);
  CHECK(Cuda().cuEventSynchronize(inside) == CUDA_SUCCESS);
}

TEST_CASE("two captures cannot merge", "[simcuda][capture]") {
  const Machine machine;
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  const CUevent event = NewEvent();
  Begin(a);
  Begin(b);
  REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
  CHECK(Cuda().cuStreamWaitEvent(b, event, 0) == CUDA_ERROR_STREAM_CAPTURE_MERGE);
  CHECK(Status(a) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CHECK(Status(b) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
}

TEST_CASE("capture info gives the id, the graph and the nodes that the next one depends on",
          "[simcuda][capture]") {
  const Machine machine;
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  const CUevent event = NewEvent();
  Begin(a);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  cuuint64_t fork_id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 99;
  const auto info = [&](CUstream stream, cuuint64_t* to) {
    REQUIRE(Cuda().cuStreamGetCaptureInfo(stream, &status, to, &graph, &nodes, &count) ==
            CUDA_SUCCESS);
  };
  info(a, &id);
  CHECK(count == 0);
  REQUIRE(Launch(a, "first", {}) == CUDA_SUCCESS);
  info(a, &id);
  REQUIRE(count == 1);
  CUgraphNode first = nodes[0];
  REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuStreamWaitEvent(b, event, 0) == CUDA_SUCCESS);
  REQUIRE(Launch(b, "second", {}) == CUDA_SUCCESS);
  info(b, &fork_id);
  CHECK(fork_id == id);
  REQUIRE(count == 1);
  CUgraphNode second = nodes[0];
  CHECK(second != first);
  CHECK(Cuda().cuGraphDestroy(graph) == CUDA_ERROR_INVALID_VALUE);  // belongs to the capture

  // Joined by hand instead of by an event.
  CHECK(Cuda().cuStreamUpdateCaptureDependencies(
            a, &second, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES) == CUDA_SUCCESS);
  info(a, &id);
  CHECK(count == 2);
  CHECK(Cuda().cuStreamUpdateCaptureDependencies(
            a, &second, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES) == CUDA_SUCCESS);
  info(a, &id);
  CHECK(count == 1);
  CHECK(nodes[0] == second);
  const CUgraph made = End(a);
  CHECK(made == graph);
  CUgraphNode all[3] = {};
  count = 3;
  REQUIRE(Cuda().cuGraphGetNodes(made, all, &count) == CUDA_SUCCESS);
  CHECK(count == 2);
  CHECK(all[0] == first);
  CHECK(all[1] == second);
  CHECK(Cuda().cuStreamUpdateCaptureDependencies(a, nullptr, 0, 0) == CUDA_ERROR_ILLEGAL_STATE);

  Begin(a);
  cuuint64_t later = 0;
  info(a, &later);
  CHECK(later != id);
}

// ---- Graphs
// ---------------------------------------------------------------------------------------

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

}  // namespace
}  // namespace weir::sim
