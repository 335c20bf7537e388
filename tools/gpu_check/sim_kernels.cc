// The kernels on the simulated device.
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/kernels.h"
#include "tools/simcuda/simcuda.h"

namespace weir::gpu_check {
namespace {

class SimKernels final : public Kernels {
 public:
  explicit SimKernels(int ordinal) : ordinal_(ordinal) {}

  void Fill(CUstream stream, CUdeviceptr dst, uint8_t value, uint64_t count, uint64_t stride,
            uint32_t /*rounds*/) override {
    std::vector<sim::Access> accesses;
    const uint64_t piece = stride == 1 ? count : 1;  // bytes that lie together
    for (uint64_t i = 0; i < count; i += piece) {
      accesses.push_back({dst + i * stride, piece, /*write=*/true});
    }
    const auto body = [accesses, value](sim::KernelMemory& memory) {
      for (const sim::Access& access : accesses) {
        const std::vector<uint8_t> data(access.bytes, value);
        if (!memory.Write(access.address, data.data(), data.size())) return;
      }
    };
    Must(sim::Launch(stream, "fill", accesses, body), "fill kernel");
  }

  void Copy(CUstream stream, CUdeviceptr dst, CUdeviceptr src, uint64_t bytes) override {
    const auto body = [=](sim::KernelMemory& memory) {
      std::vector<uint8_t> data(bytes);
      if (memory.Read(src, data.data(), bytes)) memory.Write(dst, data.data(), bytes);
    };
    Must(sim::Launch(stream, "copy", {{src, bytes, false}, {dst, bytes, true}}, body),
         "copy kernel");
  }

  void Spin(CUstream stream, uint32_t* flag) override {
    sim::HoldStream(ordinal_, stream);
    const std::lock_guard<std::mutex> guard(lock_);
    held_[flag].push_back(stream);
    Must(sim::Launch(stream, "spin", {}), "spin kernel");
  }

  void Open(uint32_t* flag) override {
    *flag = 1;
    const std::lock_guard<std::mutex> guard(lock_);
    for (CUstream stream : held_[flag]) sim::ReleaseStream(ordinal_, stream);
    held_.erase(flag);
  }

 private:
  const int ordinal_;
  std::mutex lock_;
  std::map<uint32_t*, std::vector<CUstream>> held_;  // by the flag that ends it
};

}  // namespace

std::unique_ptr<Kernels> MakeSimKernels(int ordinal) {
  return std::make_unique<SimKernels>(ordinal);
}

}  // namespace weir::gpu_check
