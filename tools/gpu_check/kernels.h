// Kernels: the device code of the checks. On a GPU it is PTX text that the driver compiles
// (cuda_kernels.cc); on the simulated device it is host functions with declared accesses
// (sim_kernels.cc). All calls only queue work, and throw DriverFailure if that fails.
#ifndef WEIR_TOOLS_GPU_CHECK_KERNELS_H_
#define WEIR_TOOLS_GPU_CHECK_KERNELS_H_

#include <cuda.h>

#include <cstdint>
#include <memory>

namespace weir {
class Driver;
}

namespace weir::gpu_check {

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Writes `value` into the bytes dst[0], dst[stride], ... dst[(count - 1) * stride], `rounds`
  // times.
  virtual void Fill(CUstream stream, CUdeviceptr dst, uint8_t value, uint64_t count,
                    uint64_t stride = 1, uint32_t rounds = 1) = 0;
  virtual void Copy(CUstream stream, CUdeviceptr dst, CUdeviceptr src, uint64_t bytes) = 0;
  // Keeps the stream busy until *flag (pinned host memory) is not 0, for kMaxSpinNs at most, so
  // that nothing can hang. The simulated device holds the stream instead, until Open(flag).
  virtual void Spin(CUstream stream, uint32_t* flag) = 0;
  // Sets the flag: what spins on it ends.
  virtual void Open(uint32_t* flag) = 0;

  static constexpr uint64_t kMaxSpinNs = 300'000'000;
};

std::unique_ptr<Kernels> MakeCudaKernels(const Driver& driver);
std::unique_ptr<Kernels> MakeSimKernels(int ordinal);

}  // namespace weir::gpu_check

#endif  // WEIR_TOOLS_GPU_CHECK_KERNELS_H_
