// Host functions, what they may not do, errors of queued work (page faults and what they break), and
// devices that lag behind.
#include "tests/simcuda/time_fixture.h"

namespace weir::sim {
namespace {

using Log = std::vector<std::string>;

TEST_CASE("a host function runs in stream order and may call no driver function",
          "[simcuda][time]") {
  const Machine machine;
  struct State {
    Log log;
    CUresult inside = CUDA_SUCCESS;
    CUresult launch = CUDA_SUCCESS;
  } state;
  const CUstream stream = NewStream();
  LaunchLogged(stream, "before", &state.log);
  REQUIRE(Cuda().cuLaunchHostFunc(
              stream,
              [](void* data) {
                auto* const seen = static_cast<State*>(data);
                seen->log.push_back("host");
                seen->inside = Cuda().cuCtxSynchronize();
                seen->launch = Launch(nullptr, "inside", {});
              },
              &state) == CUDA_SUCCESS);
  LaunchLogged(stream, "after", &state.log);
  REQUIRE(Cuda().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(state.log == Log{"before", "host", "after"});
  CHECK(state.inside == CUDA_ERROR_NOT_PERMITTED);
  CHECK(state.launch == CUDA_ERROR_NOT_PERMITTED);
  CHECK(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("after an error host functions do not run but callbacks do", "[simcuda][time]") {
  const Machine machine;
  const CUstream stream = NewStream();
  int host_function = 0;
  CUresult seen = CUDA_SUCCESS;
  REQUIRE(Launch(stream, "bad", {{NewMemory() + (uint64_t{1} << 40), 16, true}}) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuLaunchHostFunc(
              stream, [](void* n) { ++*static_cast<int*>(n); }, &host_function) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuStreamAddCallback(
              stream,
              [](CUstream, CUresult status, void* to) { *static_cast<CUresult*>(to) = status; },
              &seen, 0) == CUDA_SUCCESS);
  RunUntilIdle();
  CHECK(host_function == 0);
  CHECK(seen == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a page fault breaks the context of its device only, and is explained",
          "[simcuda][time]") {
  Config config;
  config.devices = 2;
  const Machine machine(config);
  const CUdeviceptr memory = NewMemory(4096);
  const CUstream stream = NewStream();
  REQUIRE(Cuda().cuMemsetD8Async(memory, 1, 4096, stream) == CUDA_SUCCESS);
  REQUIRE(Launch(stream, "beyond the end", {{memory, uint64_t{1} << 30, false}}) == CUDA_SUCCESS);
  CHECK(Cuda().cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUevent event = nullptr;
  CHECK(Cuda().cuEventCreate(&event, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(Launch(stream, "later", {}) == CUDA_ERROR_ILLEGAL_ADDRESS);
  const std::vector<Report> reports = CheckerReports();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].text.find("page fault: 'beyond the end'") != std::string::npos);
  CUcontext other = nullptr;
  REQUIRE(Cuda().cuDevicePrimaryCtxRetain(&other, 1) == CUDA_SUCCESS);
  REQUIRE(Cuda().cuCtxSetCurrent(other) == CUDA_SUCCESS);
  CHECK(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("a kernel that touches unmapped memory inside its body faults", "[simcuda][time]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory(4096);
  bool in_range = false;
  bool out_of_range = true;
  bool after_fault = true;
  REQUIRE(Launch(nullptr, "kernel", {}, [&](KernelMemory& view) {
            const uint32_t value = 7;
            in_range = view.Write(memory, &value, sizeof value);
            out_of_range = view.Write(memory + (uint64_t{1} << 40), &value, sizeof value);
            after_fault = view.Write(memory, &value, sizeof value);
          }) == CUDA_SUCCESS);
  CHECK(Cuda().cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(in_range);
  CHECK_FALSE(out_of_range);
  CHECK_FALSE(after_fault);
}

TEST_CASE("a device that lags is not hurried by questions, and still answers who waits",
          "[simcuda][time]") {
  Config config;
  config.SetLag(4);
  const Machine machine(config);
  Log log;
  const CUstream stream = NewStream();
  for (int i = 0; i < 10; ++i) {
    LaunchLogged(stream, std::to_string(i), &log);
    for (int k = 0; k < 3; ++k) CHECK(Cuda().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  }
  CHECK(log.size() == 6);
  int questions = 0;
  while (Cuda().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) ++questions;
  CHECK(questions < 100);
  CHECK(log.size() == 10);
}

}  // namespace
}  // namespace weir::sim
