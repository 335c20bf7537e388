// The threaded executor, and host threads that share the simulator. Meant for ThreadSanitizer too.
#include <atomic>
#include <thread>

#include "tests/simcuda/time_fixture.h"

namespace weir::sim {
namespace {

Config Threaded() {
  Config config;
  config.executor = Executor::kThreaded;
  return config;
}

TEST_CASE("threaded streams keep order, events and bytes", "[simcuda][threads]") {
  const Machine machine(Threaded());
  const CUdeviceptr memory = NewMemory(64);
  REQUIRE(Cuda().cuMemsetD32Async(memory, 0, 16, nullptr) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);
  constexpr int kStreams = 4;
  constexpr int kRounds = 100;
  std::vector<CUstream> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(NewStream());
  const CUevent event = NewEvent();
  // A counter that goes round the streams, each increment after the last by an event.
  for (int i = 0; i < kStreams * kRounds; ++i) {
    const CUstream stream = streams[static_cast<size_t>(i % kStreams)];
    REQUIRE(Cuda().cuStreamWaitEvent(stream, event, 0) == CUDA_SUCCESS);
    REQUIRE(Launch(stream, "increment", {{memory, 4, true}}, [memory](KernelMemory& view) {
              uint32_t value = 0;
              view.Read(memory, &value, sizeof value);
              ++value;
              view.Write(memory, &value, sizeof value);
            }) == CUDA_SUCCESS);
    REQUIRE(Cuda().cuEventRecord(event, stream) == CUDA_SUCCESS);
  }
  REQUIRE(Cuda().cuEventSynchronize(event) == CUDA_SUCCESS);
  uint32_t value = 0;
  REQUIRE(Cuda().cuMemcpyDtoH(&value, memory, sizeof value) == CUDA_SUCCESS);
  CHECK(value == kStreams * kRounds);
  CHECK(CheckerReports().empty());
}

TEST_CASE("the checker finds missing order between threaded streams", "[simcuda][threads]") {
  const Machine machine(Threaded());
  const CUdeviceptr memory = NewMemory(64);
  LaunchWrite(NewStream(), "first", memory, 64);
  LaunchWrite(NewStream(), "second", memory, 64);
  RunUntilIdle();
  CHECK(CheckerReports().size() == 1);
}

TEST_CASE("host functions of different streams run beside each other", "[simcuda][threads]") {
  const Machine machine(Threaded());
  static std::atomic<int> arrived;
  arrived = 0;
  const CUhostFn meet = [](void*) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  };
  REQUIRE(Cuda().cuLaunchHostFunc(NewStream(), meet, nullptr) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuLaunchHostFunc(NewStream(), meet, nullptr) == CUDA_SUCCESS);
  CHECK(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(arrived == 2);
}

TEST_CASE("a held threaded stream is a deadlock for who needs it", "[simcuda][threads]") {
  const Machine machine(Threaded());
  const CUstream stream = NewStream();
  HoldStream(0, stream);
  REQUIRE(Launch(stream, "held", {}) == CUDA_SUCCESS);
  CHECK(Cuda().cuStreamSynchronize(stream) == CUDA_ERROR_TIMEOUT);
  ReleaseStream(0, stream);
  CHECK(Cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK_FALSE(Step());
}

void Stress(const Config& config) {
  const Machine machine(config);
  const CUcontext context = Machine::UseDevice(0);
  constexpr int kThreads = 4;
  constexpr int kRounds = 150;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto expect = [&failures](CUresult got, CUresult other = CUDA_SUCCESS) {
        if (got != CUDA_SUCCESS && got != other) ++failures;
      };
      const Driver& cuda = Cuda();
      expect(cuda.cuCtxSetCurrent(context));
      CUdeviceptr memory = 0;
      expect(cuda.cuMemAlloc(&memory, 4096));
      CUevent event = nullptr;
      expect(cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
      for (int i = 0; i < kRounds; ++i) {
        CUstream stream = nullptr;
        expect(
            cuda.cuStreamCreate(&stream, i % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
        expect(cuda.cuStreamWaitEvent(stream, event, 0));
        expect(cuda.cuMemsetD8Async(memory, static_cast<unsigned char>(i), 4096, stream));
        expect(cuda.cuLaunchHostFunc(
            stream, [](void*) {}, nullptr));
        expect(cuda.cuEventRecord(event, stream));
        if (i % 10 == t) expect(Launch(nullptr, "legacy", {}));
        if (i % 7 == 0) expect(cuda.cuEventQuery(event), CUDA_ERROR_NOT_READY);
        if (i % 5 == 0) {
          uint8_t seen = 0;
          expect(cuda.cuMemcpyDtoHAsync(&seen, memory, 1, stream));
          if (seen != static_cast<uint8_t>(i)) ++failures;
        }
        expect(cuda.cuStreamDestroy(stream));
      }
      expect(cuda.cuEventSynchronize(event));
      expect(cuda.cuMemFree(memory));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(failures == 0);
  CHECK(QueuedOperations() == 0);
  const std::vector<Report> reports = CheckerReports();
  for (const Report& report : reports) UNSCOPED_INFO(report.text);
  CHECK(reports.empty());
}

TEST_CASE("host threads share threaded streams", "[simcuda][threads]") { Stress(Threaded()); }

TEST_CASE("host threads share the deterministic scheduler", "[simcuda][threads]") { Stress({}); }

}  // namespace
}  // namespace weir::sim
