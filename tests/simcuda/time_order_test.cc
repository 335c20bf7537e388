// The rules of stream order: streams, events, the legacy stream, holds, destruction, contexts.
#include <algorithm>
#include <set>

#include "tests/simcuda/time_fixture.h"

namespace weir::sim {
namespace {

using Log = std::vector<std::string>;

size_t Place(const Log& log, const std::string& name) {
  const auto at = std::find(log.begin(), log.end(), name);
  REQUIRE(at != log.end());
  return static_cast<size_t>(at - log.begin());
}

// The order in which three kernels on each of three unordered streams run.
Log Interleaving(uint64_t seed) {
  Config config;
  config.seed = seed;
  const Machine machine(config);
  Log log;
  for (const char* stream_name : {"a", "b", "c"}) {
    const CUstream stream = NewStream();
    for (int i = 0; i < 3; ++i) LaunchLogged(stream, stream_name + std::to_string(i), &log);
  }
  RunUntilIdle();
  return log;
}

TEST_CASE("operations of one stream run in the order of submission", "[simcuda][time]") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Log log = Interleaving(seed);
    REQUIRE(log.size() == 9);
    for (const char* name : {"a", "b", "c"}) {
      const std::string stream = name;
      CHECK(Place(log, stream + "0") < Place(log, stream + "1"));
      CHECK(Place(log, stream + "1") < Place(log, stream + "2"));
    }
  }
}

TEST_CASE("a seed fixes the interleaving and other seeds give others", "[simcuda][time]") {
  std::set<Log> different;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Log log = Interleaving(seed);
    CHECK(log == Interleaving(seed));
    different.insert(log);
  }
  CHECK(different.size() > 10);
}

TEST_CASE("an event wait orders streams, whatever the seed", "[simcuda][time]") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Config config;
    config.seed = seed;
    const Machine machine(config);
    Log log;
    const CUstream a = NewStream();
    const CUstream b = NewStream();
    const CUevent event = NewEvent();
    LaunchLogged(a, "before", &log);
    REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
    LaunchLogged(a, "beside", &log);
    REQUIRE(Cuda().cuStreamWaitEvent(b, event, 0) == CUDA_SUCCESS);
    LaunchLogged(b, "after", &log);
    RunUntilIdle();
    CHECK(Place(log, "before") < Place(log, "after"));
  }
}

TEST_CASE("a wait takes the state of the event at the call", "[simcuda][time]") {
  const Machine machine;
  Log log;
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  const CUevent event = NewEvent();
  HoldStream(0, a);
  REQUIRE(Cuda().cuStreamWaitEvent(b, event, 0) == CUDA_SUCCESS);  // never recorded: no wait
  LaunchLogged(b, "free", &log);
  LaunchLogged(a, "held", &log);
  REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
  RunUntilIdle();
  CHECK(log == Log{"free"});

  // The second record replaces the first for new waits; the first wait keeps what it took.
  const CUstream c = NewStream();
  REQUIRE(Cuda().cuStreamWaitEvent(b, event, 0) == CUDA_SUCCESS);
  LaunchLogged(b, "first", &log);
  REQUIRE(Cuda().cuEventRecord(event, c) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuStreamWaitEvent(c, event, 0) == CUDA_SUCCESS);
  LaunchLogged(c, "second", &log);
  REQUIRE(Cuda().cuEventDestroy(event) == CUDA_SUCCESS);  // does not wait, changes no wait
  RunUntilIdle();
  CHECK(log == Log{"free", "second"});
  ReleaseStream(0, a);
  RunUntilIdle();
  CHECK(log == Log{"free", "second", "held", "first"});
}

TEST_CASE("an event is complete when it was never recorded or its work is done",
          "[simcuda][time]") {
  const Machine machine;
  const CUstream stream = NewStream();
  const CUevent event = NewEvent();
  CHECK(Cuda().cuEventQuery(event) == CUDA_SUCCESS);
  CHECK(Cuda().cuEventSynchronize(event) == CUDA_SUCCESS);
  HoldStream(0, stream);
  REQUIRE(Cuda().cuEventRecord(event, stream) == CUDA_SUCCESS);
  CHECK(Cuda().cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  CHECK(Cuda().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  ReleaseStream(0, stream);
  CHECK(Cuda().cuEventSynchronize(event) == CUDA_SUCCESS);
  CHECK(Cuda().cuEventQuery(event) == CUDA_SUCCESS);
  CHECK(Cuda().cuStreamQuery(stream) == CUDA_SUCCESS);
}

TEST_CASE("a wait for a held stream is a deadlock unless the hook releases something",
          "[simcuda][time]") {
  const Machine machine;
  Log log;
  const CUstream stream = NewStream();
  LaunchLogged(stream, "work", &log);
  HoldStream(0, stream);
  int calls = 0;
  OnStalledWait([&] {
    ++calls;
    return false;
  });
  CHECK(Cuda().cuStreamSynchronize(stream) == CUDA_ERROR_TIMEOUT);
  CHECK(calls == 1);
  OnStalledWait([&] {
    ++calls;
    ReleaseStream(0, stream);
    return true;
  });
  CHECK(Cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(calls == 2);
  CHECK(log == Log{"work"});
  RunUntilIdle();
  CHECK(calls == 2);  // nobody waited
}

TEST_CASE("queries let the device go on", "[simcuda][time]") {
  const Machine machine;
  Log log;
  const CUstream stream = NewStream();
  LaunchLogged(stream, "a", &log);
  LaunchLogged(stream, "b", &log);
  CHECK(log.empty());
  CHECK(Cuda().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  CHECK(Cuda().cuStreamQuery(stream) == CUDA_SUCCESS);
  CHECK(log == Log{"a", "b"});
}

TEST_CASE("a query can say not ready although work is complete", "[simcuda][time]") {
  const Machine machine;
  const CUstream stream = NewStream();
  SetSpuriousNotReady(1.0);
  CHECK(Cuda().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  CHECK(Cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  SetSpuriousNotReady(0.0);
  CHECK(Cuda().cuStreamQuery(stream) == CUDA_SUCCESS);
}

TEST_CASE("event arguments are checked", "[simcuda][time]") {
  Config config;
  config.devices = 2;
  const Machine machine(config);
  const CUstream here = NewStream();
  const CUevent event = NewEvent();
  const CUevent timed = NewEvent(CU_EVENT_DEFAULT);
  Machine::UseDevice(1);
  const CUstream there = NewStream();
  CHECK(Cuda().cuEventRecord(event, there) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(Cuda().cuEventRecord(event, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(Cuda().cuEventRecord(event, here) == CUDA_SUCCESS);
  CHECK(Cuda().cuStreamWaitEvent(there, event, 0) == CUDA_SUCCESS);  // devices may differ
  Machine::UseDevice(0);

  CUevent made = nullptr;
  CHECK(Cuda().cuEventCreate(&made, CU_EVENT_INTERPROCESS) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Cuda().cuEventCreate(&made, 0x100) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Cuda().cuEventRecord(nullptr, here) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(Cuda().cuEventQuery(reinterpret_cast<CUevent>(here)) == CUDA_ERROR_INVALID_HANDLE);

  float ms = 0;
  CHECK(Cuda().cuEventElapsedTime(&ms, timed, event) == CUDA_ERROR_INVALID_HANDLE);
  HoldStream(0, here);
  const CUevent end = NewEvent(CU_EVENT_DEFAULT);
  REQUIRE(Cuda().cuEventRecord(timed, here) == CUDA_SUCCESS);
  CHECK(Cuda().cuEventElapsedTime(&ms, timed, end) == CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(Launch(here, "work", {}) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuEventRecord(end, here) == CUDA_SUCCESS);
  CHECK(Cuda().cuEventElapsedTime(&ms, timed, end) == CUDA_ERROR_NOT_READY);
  ReleaseStream(0, here);
  REQUIRE(Cuda().cuEventSynchronize(end) == CUDA_SUCCESS);
  CHECK(Cuda().cuEventElapsedTime(&ms, timed, end) == CUDA_SUCCESS);
  CHECK(ms > 0);
  REQUIRE(Cuda().cuEventDestroy(end) == CUDA_SUCCESS);
  CHECK(Cuda().cuEventDestroy(end) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("the legacy stream waits for blocking streams and they wait for it", "[simcuda][time]") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Config config;
    config.seed = seed;
    const Machine machine(config);
    Log log;
    const CUstream a = NewStream(CU_STREAM_DEFAULT);
    const CUstream b = NewStream(CU_STREAM_DEFAULT);
    LaunchLogged(a, "a", &log);
    LaunchLogged(CU_STREAM_PER_THREAD, "own", &log);
    LaunchLogged(seed % 2 == 0 ? nullptr : CU_STREAM_LEGACY, "legacy", &log);
    LaunchLogged(b, "b", &log);
    LaunchLogged(CU_STREAM_PER_THREAD, "own later", &log);
    RunUntilIdle();
    CHECK(Place(log, "a") < Place(log, "legacy"));
    CHECK(Place(log, "own") < Place(log, "legacy"));
    CHECK(Place(log, "legacy") < Place(log, "b"));
    CHECK(Place(log, "legacy") < Place(log, "own later"));
  }
}

TEST_CASE("non-blocking streams and the legacy stream do not wait for each other",
          "[simcuda][time]") {
  const Machine machine;
  Log log;
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  HoldStream(0, stream);
  LaunchLogged(stream, "held", &log);
  LaunchLogged(nullptr, "legacy", &log);
  CHECK(Cuda().cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
  CHECK(log == Log{"legacy"});
  HoldStream(0, nullptr);
  LaunchLogged(nullptr, "held legacy", &log);
  ReleaseStream(0, stream);
  CHECK(Cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(log == Log{"legacy", "held"});
  ReleaseStream(0, nullptr);
}

TEST_CASE("a per-thread stream does not wait for other blocking streams", "[simcuda][time]") {
  const Machine machine;
  Log log;
  const CUstream stream = NewStream(CU_STREAM_DEFAULT);
  HoldStream(0, stream);
  LaunchLogged(stream, "held", &log);
  LaunchLogged(CU_STREAM_PER_THREAD, "own", &log);
  CHECK(Cuda().cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
  CHECK(log == Log{"own"});
  ReleaseStream(0, stream);
}

TEST_CASE("the per-thread variants of entries turn the null stream into the thread's own",
          "[simcuda][time]") {
  const Machine machine;
  const auto synchronize = Resolve<PFN_cuStreamSynchronize_v7000_ptsz>(
      "cuStreamSynchronize", 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  const CUstream stream = NewStream(CU_STREAM_DEFAULT);
  HoldStream(0, stream);
  REQUIRE(Launch(stream, "held", {}) == CUDA_SUCCESS);
  CHECK(synchronize(nullptr) == CUDA_SUCCESS);  // the legacy stream would wait for the held one
  CHECK(Cuda().cuStreamSynchronize(nullptr) == CUDA_ERROR_TIMEOUT);
  ReleaseStream(0, stream);
}

TEST_CASE("a held stream keeps its work, and needing it is a deadlock that is explained",
          "[simcuda][time]") {
  const Machine machine;
  Log log;
  const CUstream stream = NewStream();
  const CUevent event = NewEvent();
  HoldStream(0, stream);
  LaunchLogged(stream, "held kernel", &log);
  REQUIRE(Cuda().cuEventRecord(event, stream) == CUDA_SUCCESS);
  RunUntilIdle();
  CHECK_FALSE(Step());
  CHECK(log.empty());
  CHECK(QueuedOperations() == 2);
  CHECK(Cuda().cuStreamSynchronize(stream) == CUDA_ERROR_TIMEOUT);
  CHECK(Cuda().cuEventSynchronize(event) == CUDA_ERROR_TIMEOUT);
  CHECK(Cuda().cuCtxSynchronize() == CUDA_ERROR_TIMEOUT);
  const std::vector<Report> reports = CheckerReports();
  REQUIRE(reports.size() == 3);
  CHECK(reports[0].text.find("held before 'held kernel'") != std::string::npos);
  ReleaseStream(0, stream);
  CHECK(Cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(log == Log{"held kernel"});
  CHECK(QueuedOperations() == 0);
}

TEST_CASE("the device runs by itself beyond run_ahead queued operations", "[simcuda][time]") {
  Config config;
  config.run_ahead = 4;
  const Machine machine(config);
  Log log;
  const CUstream stream = NewStream();
  for (int i = 0; i < 10; ++i) LaunchLogged(stream, std::to_string(i), &log);
  CHECK(QueuedOperations() == 4);
  CHECK(log.size() == 6);
}

TEST_CASE("a destroyed stream completes its work and its handle is invalid", "[simcuda][time]") {
  const Machine machine;
  Log log;
  const CUstream stream = NewStream();
  unsigned long long id = 0;
  REQUIRE(Cuda().cuStreamGetId(stream, &id) == CUDA_SUCCESS);
  LaunchLogged(stream, "work", &log);
  CHECK(Cuda().cuStreamDestroy(stream) == CUDA_SUCCESS);
  CHECK(log.empty());
  CHECK(Launch(stream, "late", {}) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(Cuda().cuStreamQuery(stream) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(Cuda().cuStreamDestroy(stream) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(Cuda().cuStreamDestroy(nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);  // awaits the rest
  CHECK(log == Log{"work"});
  const CUstream next = NewStream();
  CHECK(next == stream);  // handle values come back, ids do not
  unsigned long long next_id = 0;
  REQUIRE(Cuda().cuStreamGetId(next, &next_id) == CUDA_SUCCESS);
  CHECK(next_id != id);
}

TEST_CASE("a stream knows its device, context, priority and flags", "[simcuda][time]") {
  Config config;
  config.devices = 2;
  const Machine machine(config);
  const CUcontext context = Machine::UseDevice(1);
  CUstream stream = nullptr;
  CHECK(Cuda().cuStreamCreate(&stream, 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Cuda().cuStreamCreate(nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Cuda().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100) == CUDA_SUCCESS);
  Machine::UseDevice(0);
  CUdevice device = -1;
  CUcontext owner = nullptr;
  int priority = 0;
  unsigned int flags = 0;
  CHECK(Cuda().cuStreamGetDevice(stream, &device) == CUDA_SUCCESS);
  CHECK(Cuda().cuStreamGetCtx(stream, &owner) == CUDA_SUCCESS);
  CHECK(Cuda().cuStreamGetPriority(stream, &priority) == CUDA_SUCCESS);
  CHECK(Cuda().cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS);
  CHECK(device == 1);
  CHECK(owner == context);
  CHECK(priority == -5);
  CHECK(flags == CU_STREAM_NON_BLOCKING);
}

TEST_CASE("an event of a context covers all its streams", "[simcuda][time]") {
  const Machine machine;
  const CUcontext context = Machine::UseDevice(0);
  Log log;
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  const CUevent event = NewEvent();
  HoldStream(0, a);
  LaunchLogged(a, "a", &log);
  LaunchLogged(b, "b", &log);
  REQUIRE(Cuda().cuCtxRecordEvent(context, event) == CUDA_SUCCESS);
  LaunchLogged(b, "later", &log);  // not part of it
  RunUntilIdle();
  CHECK(Cuda().cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  HoldStream(0, b);
  ReleaseStream(0, a);
  LaunchLogged(b, "held", &log);
  CHECK(Cuda().cuEventSynchronize(event) == CUDA_SUCCESS);
  CHECK(log == Log{"b", "later", "a"});
  ReleaseStream(0, b);
  CHECK(Cuda().cuCtxRecordEvent(nullptr, event) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(Cuda().cuCtxRecordEvent(context, nullptr) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a wait of a context holds back all its streams, later ones too", "[simcuda][time]") {
  const Machine machine;
  const CUcontext context = Machine::UseDevice(0);
  Log log;
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  const CUevent event = NewEvent();
  HoldStream(0, a);
  LaunchLogged(a, "a", &log);
  REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuCtxWaitEvent(context, event) == CUDA_SUCCESS);
  const CUstream c = NewStream();
  LaunchLogged(b, "b", &log);
  LaunchLogged(c, "c", &log);
  RunUntilIdle();
  CHECK(log.empty());
  ReleaseStream(0, a);
  RunUntilIdle();
  CHECK(log.size() == 3);
  CHECK(log[0] == "a");
}

}  // namespace
}  // namespace weir::sim
