// The happens-before checker: it finds each kind of missing order whatever ran first, and is silent
// about each legal one.
#include <algorithm>
#include <thread>

#include "tests/simcuda/time_fixture.h"

namespace weir::sim {
namespace {

// Runs `order` between two conflicting accesses on two streams, under several schedules, and
// returns how many reports came in each.
template <typename Order>
std::vector<size_t> ReportsWith(Order order, unsigned int flags = CU_STREAM_NON_BLOCKING) {
  std::vector<size_t> counts;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Config config;
    config.seed = seed;
    const Machine machine(config);
    const CUdeviceptr memory = NewMemory(4096);
    const CUstream a = NewStream(flags);
    const CUstream b = NewStream(flags);
    LaunchWrite(a, "first", memory, 4096);
    order(a, b);
    LaunchRead(b, "second", memory + 100, 10);
    RunUntilIdle();
    counts.push_back(CheckerReports().size());
  }
  return counts;
}

const std::vector<size_t> kSilent(10, 0);
const std::vector<size_t> kFound(10, 1);

TEST_CASE("unordered accesses are reported once, whichever runs first", "[simcuda][checker]") {
  CHECK(ReportsWith([](CUstream, CUstream) {}) == kFound);
}

TEST_CASE("a report names both operations, streams and ranges", "[simcuda][checker]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory(4096);
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  LaunchWrite(a, "writer", memory, 4096);
  RunUntilIdle();
  LaunchRead(b, "reader", memory + 100, 10);
  RunUntilIdle();
  const std::vector<Report> reports = CheckerReports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].first == "writer");
  CHECK(reports[0].second == "reader");
  CHECK(reports[0].text.find("'reader' (stream ") == 0);
  CHECK(reports[0].text.find("reads [0x") != std::string::npos);
  CHECK(reports[0].text.find("not ordered after 'writer'") != std::string::npos);
  CHECK(reports[0].text.find("+10)") != std::string::npos);
  ClearCheckerReports();
  CHECK(CheckerReports().empty());
}

TEST_CASE("only conflicting accesses to the same bytes count", "[simcuda][checker]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory(4096);
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  LaunchRead(a, "read", memory, 1024);
  LaunchRead(b, "read too", memory, 1024);
  LaunchWrite(a, "left", memory + 1024, 512);
  LaunchWrite(b, "right", memory + 1536, 512);
  RunUntilIdle();
  CHECK(CheckerReports().empty());
  LaunchWrite(b, "write after read", memory + 512, 1);
  RunUntilIdle();
  const std::vector<Report> reports = CheckerReports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].first == "read");
  CHECK(reports[0].second == "write after read");
}

TEST_CASE("a write conflicts with every unordered reader and with parts of older writes",
          "[simcuda][checker]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory(4096);
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  const CUstream c = NewStream();
  LaunchWrite(a, "w", memory, 4096);
  REQUIRE(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);
  LaunchRead(a, "r1", memory, 300);
  LaunchRead(b, "r2", memory + 200, 300);
  LaunchWrite(b, "w2", memory + 3000, 8);
  RunUntilIdle();
  REQUIRE(CheckerReports().empty());
  LaunchWrite(c, "all", memory, 4096);
  RunUntilIdle();
  std::vector<std::string> found;
  for (const Report& report : CheckerReports()) {
    CHECK(report.second == "all");
    found.push_back(report.first);
  }
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<std::string>{"r1", "r2", "w2"});
}

TEST_CASE("an event wait is an order", "[simcuda][checker]") {
  CHECK(ReportsWith([](CUstream a, CUstream b) {
          const CUevent event = NewEvent();
          REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuStreamWaitEvent(b, event, 0) == CUDA_SUCCESS);
        }) == kSilent);
}

TEST_CASE("an event wait over a third stream is an order", "[simcuda][checker]") {
  CHECK(ReportsWith([](CUstream a, CUstream b) {
          const CUstream c = NewStream();
          const CUevent event = NewEvent();
          REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuStreamWaitEvent(c, event, 0) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuEventRecord(event, c) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuStreamWaitEvent(b, event, 0) == CUDA_SUCCESS);
        }) == kSilent);
}

TEST_CASE("a wait on the wrong side of a record is no order", "[simcuda][checker]") {
  CHECK(ReportsWith([](CUstream a, CUstream b) {
          const CUevent event = NewEvent();
          REQUIRE(Cuda().cuStreamWaitEvent(b, event, 0) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
        }) == kFound);
}

TEST_CASE("an event recorded before the access is no order", "[simcuda][checker]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory(4096);
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  const CUevent event = NewEvent();
  REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
  LaunchWrite(a, "first", memory, 16);
  REQUIRE(Cuda().cuStreamWaitEvent(b, event, 0) == CUDA_SUCCESS);
  LaunchWrite(b, "second", memory, 16);
  RunUntilIdle();
  CHECK(CheckerReports().size() == 1);
}

TEST_CASE("what the host learned orders work submitted later", "[simcuda][checker]") {
  CHECK(ReportsWith([](CUstream a, CUstream) {
          REQUIRE(Cuda().cuStreamSynchronize(a) == CUDA_SUCCESS);
        }) == kSilent);
  CHECK(ReportsWith([](CUstream, CUstream) {
          REQUIRE(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);
        }) == kSilent);
  CHECK(ReportsWith([](CUstream a, CUstream) {
          const CUevent event = NewEvent();
          REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuEventSynchronize(event) == CUDA_SUCCESS);
        }) == kSilent);
  CHECK(ReportsWith([](CUstream a, CUstream) {
          while (Cuda().cuStreamQuery(a) == CUDA_ERROR_NOT_READY) {
          }
        }) == kSilent);
  CHECK(ReportsWith([](CUstream a, CUstream) {
          const CUevent event = NewEvent();
          REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
          while (Cuda().cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
          }
        }) == kSilent);
  // A host function is no news for the host.
  CHECK(ReportsWith([](CUstream a, CUstream) {
          REQUIRE(Cuda().cuLaunchHostFunc(
                      a, [](void*) {}, nullptr) == CUDA_SUCCESS);
          RunUntilIdle();
        }) == kFound);
}

TEST_CASE("what one host thread learned counts for the others", "[simcuda][checker]") {
  CHECK(ReportsWith([](CUstream a, CUstream) {
          std::thread([a] {
            Machine::UseDevice(0);
            REQUIRE(Cuda().cuStreamSynchronize(a) == CUDA_SUCCESS);
          }).join();
        }) == kSilent);
}

TEST_CASE("a synchronization of another stream is no order", "[simcuda][checker]") {
  CHECK(ReportsWith([](CUstream, CUstream) {
          const CUstream c = NewStream();
          REQUIRE(Launch(c, "other", {}) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuStreamSynchronize(c) == CUDA_SUCCESS);
        }) == kFound);
}

TEST_CASE("the legacy stream orders blocking streams only", "[simcuda][checker]") {
  const auto barrier = [](CUstream, CUstream) {
    REQUIRE(Launch(nullptr, "barrier", {}) == CUDA_SUCCESS);
  };
  CHECK(ReportsWith(barrier, CU_STREAM_DEFAULT) == kSilent);
  CHECK(ReportsWith(barrier, CU_STREAM_NON_BLOCKING) == kFound);
  CHECK(ReportsWith([](CUstream, CUstream) {}, CU_STREAM_DEFAULT) == kFound);
}

TEST_CASE("context events and context waits are orders", "[simcuda][checker]") {
  const auto record = [](CUstream, CUstream b) {
    const CUevent event = NewEvent();
    REQUIRE(Cuda().cuCtxRecordEvent(Machine::UseDevice(0), event) == CUDA_SUCCESS);
    REQUIRE(Cuda().cuStreamWaitEvent(b, event, 0) == CUDA_SUCCESS);
  };
  CHECK(ReportsWith(record) == kSilent);
  const auto wait = [](CUstream a, CUstream) {
    const CUevent event = NewEvent();
    REQUIRE(Cuda().cuEventRecord(event, a) == CUDA_SUCCESS);
    REQUIRE(Cuda().cuCtxWaitEvent(Machine::UseDevice(0), event) == CUDA_SUCCESS);
  };
  CHECK(ReportsWith(wait) == kSilent);
}

TEST_CASE("a stream made after another ended does not inherit its order", "[simcuda][checker]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory(4096);
  const CUstream a = NewStream();
  LaunchWrite(a, "first", memory, 64);
  REQUIRE(Cuda().cuStreamDestroy(a) == CUDA_SUCCESS);
  RunUntilIdle();
  const CUstream b = NewStream();
  LaunchWrite(b, "second", memory, 64);
  RunUntilIdle();
  CHECK(CheckerReports().size() == 1);
}

TEST_CASE("work of a destroyed stream is still ordered by contexts and the legacy stream",
          "[simcuda][checker]") {
  const auto end_a = [](CUstream a) {
    REQUIRE(Cuda().cuStreamDestroy(a) == CUDA_SUCCESS);
    RunUntilIdle();
    NewStream();  // looks after streams that ended
  };
  CHECK(ReportsWith([&](CUstream a, CUstream) { end_a(a); }) == kFound);
  CHECK(ReportsWith([&](CUstream a, CUstream) {
          end_a(a);
          REQUIRE(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);
        }) == kSilent);
  CHECK(ReportsWith([&](CUstream a, CUstream b) {
          end_a(a);
          const CUevent event = NewEvent();
          REQUIRE(Cuda().cuCtxRecordEvent(Machine::UseDevice(0), event) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuStreamWaitEvent(b, event, 0) == CUDA_SUCCESS);
        }) == kSilent);
  CHECK(ReportsWith(
            [&](CUstream a, CUstream) {
              end_a(a);
              REQUIRE(Launch(nullptr, "barrier", {}) == CUDA_SUCCESS);
            },
            CU_STREAM_DEFAULT) == kSilent);
}

TEST_CASE("history that the host knows to be over is forgotten without losing races",
          "[simcuda][checker]") {
  Config config;
  config.run_ahead = 0;
  const Machine machine(config);
  constexpr uint64_t kBlock = 64;
  constexpr uint64_t kBlocks = 150'000;  // enough for a sweep
  const CUdeviceptr memory = NewMemory(kBlocks * kBlock);
  const CUstream a = NewStream();
  const CUstream held = NewStream();
  const CUstream b = NewStream();
  HoldStream(0, held);
  LaunchWrite(held, "submitted before the host knew", memory, kBlock);
  for (uint64_t i = 0; i < kBlocks; ++i) LaunchWrite(a, "w", memory + i * kBlock, kBlock);
  REQUIRE(Cuda().cuStreamSynchronize(a) == CUDA_SUCCESS);
  LaunchWrite(a, "unknown", memory + kBlock, kBlock);
  for (uint64_t i = 2; i < kBlocks; ++i) LaunchWrite(b, "w2", memory + i * kBlock, kBlock);
  CHECK(CheckerReports().empty());
  LaunchWrite(b, "races", memory + kBlock, kBlock);
  REQUIRE(CheckerReports().size() == 1);
  CHECK(CheckerReports()[0].first == "unknown");
  ReleaseStream(0, held);
  RunUntilIdle();
  REQUIRE(CheckerReports().size() == 2);
  CHECK(CheckerReports()[1].second == "submitted before the host knew");
}

TEST_CASE("kept reports are bounded", "[simcuda][checker]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory(4096);
  const CUstream a = NewStream();
  const CUstream b = NewStream();
  for (int i = 0; i < 2000; ++i) LaunchWrite(i % 2 == 0 ? a : b, "w", memory, 64);
  RunUntilIdle();
  CHECK(CheckerReports().size() <= 1000);
  CHECK(CheckerReports().size() > 500);
}

TEST_CASE("the checker can be off", "[simcuda][checker]") {
  Config config;
  config.checker = false;
  const Machine machine(config);
  const CUdeviceptr memory = NewMemory(4096);
  LaunchWrite(NewStream(), "first", memory, 64);
  LaunchWrite(NewStream(), "second", memory, 64);
  RunUntilIdle();
  CHECK(CheckerReports().empty());
}

}  // namespace
}  // namespace weir::sim
