// The kernels of weir_gpu_check: what they do, on the simulated device, and that the device code
// for GPUs is valid.
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/catch.h"
#include "tools/gpu_check/cuda_kernels.h"
#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/resources.h"
#include "tools/simcuda/simcuda.h"

namespace weir::gpu_check {
namespace {

std::unique_ptr<Gpu> OpenSim() {
  sim::Reset();
  std::string error;
  std::unique_ptr<Gpu> gpu = Gpu::Open(/*simulated=*/true, 0, &error);
  INFO(error);
  REQUIRE(gpu != nullptr);
  return gpu;
}

}  // namespace

TEST_CASE("the fill kernel writes every stride-th byte and no other", "[gpu_check]") {
  const auto gpu = OpenSim();
  const ScopedDeviceMemory memory(*gpu, 16);
  gpu->Set(memory.get(), 9, 16);
  gpu->kernels().Fill(nullptr, memory.get() + 1, 7, 4, 3);
  CHECK(gpu->Read(memory.get(), 16) ==
        std::vector<uint8_t>{9, 7, 9, 9, 7, 9, 9, 7, 9, 9, 7, 9, 9, 9, 9, 9});
}

TEST_CASE("the copy kernel copies the bytes it is given", "[gpu_check]") {
  const auto gpu = OpenSim();
  const ScopedDeviceMemory memory(*gpu, 8);
  gpu->Set(memory.get(), 0, 8);
  gpu->Set(memory.get(), 5, 3);
  gpu->kernels().Copy(nullptr, memory.get() + 4, memory.get(), 4);
  CHECK(gpu->Read(memory.get(), 8) == std::vector<uint8_t>{5, 5, 5, 0, 5, 5, 5, 0});
}

TEST_CASE("a stream behind a gate is busy until the gate opens", "[gpu_check]") {
  const auto gpu = OpenSim();
  const ScopedStream stream(*gpu);
  const ScopedEvent event(*gpu);
  Gate gate(*gpu);
  gate.Hold(stream.get());
  REQUIRE(gpu->api().EventRecord(event.get(), stream.get()) == CUDA_SUCCESS);
  CHECK_FALSE(event.IsComplete());
  gate.Open();
  event.Wait();
  CHECK(event.IsComplete());
}

TEST_CASE("a kernel that touches unmapped memory breaks the context", "[gpu_check]") {
  const auto gpu = OpenSim();
  const ScopedRange range(*gpu, gpu->Granularity());
  gpu->kernels().Fill(nullptr, range.base(), 1, 1);
  CHECK_THROWS_AS(gpu->Synchronize(), DriverFailure);
  sim::Reset();
}

#ifdef WEIR_TEST_PTXAS
TEST_CASE("the device code assembles for old and new GPUs", "[gpu_check]") {
  const std::string file = "/tmp/weir_gpu_check_" + std::to_string(getpid()) + ".ptx";
  {
    std::ofstream out(file);
    out << KernelPtx();
    REQUIRE(out);
  }
  for (const char* target : {"sm_75", "sm_90"}) {
    INFO(target);
    const std::string command =
        std::string(WEIR_TEST_PTXAS) + " -arch=" + target + " -o /dev/null " + file;
    CHECK(std::system(command.c_str()) == 0);
  }
  unlink(file.c_str());
}
#endif

}  // namespace weir::gpu_check
