// The kernels on a real GPU.
#include "tools/gpu_check/cuda_kernels.h"

#include <cudaTypedefs.h>

#include <algorithm>

#include "allocator/driver/driver.h"
#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/kernels.h"

namespace weir::gpu_check {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMaxBlocks = 64;  // so that two kernels find room at the same time
// Bounds a spin even if the device's timer stands still; each turn is a read over the bus.
constexpr uint32_t kMaxSpinTurns = 4'000'000;

class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(const Driver& driver) {
    const auto load =
        Need(reinterpret_cast<PFN_cuModuleLoadData_v2000>(driver.Find("cuModuleLoadData", 2000)),
             "cuModuleLoadData");
    const auto function = Need(
        reinterpret_cast<PFN_cuModuleGetFunction_v2000>(driver.Find("cuModuleGetFunction", 2000)),
        "cuModuleGetFunction");
    launch_ = Need(reinterpret_cast<PFN_cuLaunchKernel_v4000>(driver.Find("cuLaunchKernel", 4000)),
                   "cuLaunchKernel");
    CUmodule module = nullptr;
    Must(load(&module, KernelPtx()), "cuModuleLoadData");
    Must(function(&fill_, module, "weir_fill"), "cuModuleGetFunction");
    Must(function(&copy_, module, "weir_copy"), "cuModuleGetFunction");
    Must(function(&spin_, module, "weir_spin"), "cuModuleGetFunction");
  }

  void Fill(CUstream stream, CUdeviceptr dst, uint8_t value, uint64_t count, uint64_t stride,
            uint32_t rounds) override {
    uint32_t wide = value;
    void* arguments[] = {&dst, &count, &stride, &wide, &rounds};
    Launch(fill_, stream, Blocks(count), kThreads, arguments);
  }
  void Copy(CUstream stream, CUdeviceptr dst, CUdeviceptr src, uint64_t bytes) override {
    void* arguments[] = {&dst, &src, &bytes};
    Launch(copy_, stream, Blocks(bytes), kThreads, arguments);
  }
  void Spin(CUstream stream, uint32_t* flag) override {
    uint64_t ns = kMaxSpinNs;
    uint32_t turns = kMaxSpinTurns;
    void* arguments[] = {&flag, &ns, &turns};
    Launch(spin_, stream, 1, 1, arguments);
  }
  void Open(uint32_t* flag) override { __atomic_store_n(flag, 1U, __ATOMIC_SEQ_CST); }

 private:
  static unsigned Blocks(uint64_t count) {
    const uint64_t wanted = (count + kThreads - 1) / kThreads;
    return static_cast<unsigned>(std::clamp<uint64_t>(wanted, 1, kMaxBlocks));
  }
  void Launch(CUfunction function, CUstream stream, unsigned blocks, unsigned threads,
              void** arguments) {
    Must(launch_(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr),
         "cuLaunchKernel");
  }

  PFN_cuLaunchKernel_v4000 launch_ = nullptr;
  CUfunction fill_ = nullptr;
  CUfunction copy_ = nullptr;
  CUfunction spin_ = nullptr;
};

}  // namespace

const char* KernelPtx() {
  return
#include "tools/gpu_check/kernels.ptx.inc"
      ;
}

std::unique_ptr<Kernels> MakeCudaKernels(const Driver& driver) {
  return std::make_unique<CudaKernels>(driver);
}

}  // namespace weir::gpu_check
