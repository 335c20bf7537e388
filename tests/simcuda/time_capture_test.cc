// Stream capture: where it begins and ends, fork and join, and what belongs to it.
#include <thread>

#include "tests/simcuda/time_fixture.h"

namespace weir::sim {
namespace {

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

}  // namespace
}  // namespace weir::sim
