// Gpu: the device under examination, real or simulated, with its primary context current in the
// thread that opened it. Every check gets one.
//
// Checks throw DriverFailure where they cannot go on; the runner (check_runner.h) records it.
#ifndef WEIR_TOOLS_GPU_CHECK_GPU_H_
#define WEIR_TOOLS_GPU_CHECK_GPU_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/driver/device_caps.h"
#include "allocator/driver/driver.h"
#include "allocator/driver/driver_status.h"
#include "allocator/driver/driver_table.h"
#include "tools/gpu_check/kernels.h"

namespace weir::gpu_check {

// All entry points by name: Weir's own table, and what only the checks use. May be null.
struct Api : DriverTable {
#define WEIR_GPU_CHECK_ENTRY(Name, version) PFN_cu##Name##_v##version Name = nullptr;
#include "tools/gpu_check/extra_entries.inc"
};

// A driver call that a check depends on went wrong.
class DriverFailure : public std::exception {
 public:
  explicit DriverFailure(DriverStatus status) : status_(status), text_(status.ToString()) {}
  const DriverStatus& status() const { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  DriverStatus status_;
  std::string text_;
};

// `call` is the driver function's name and lives for ever.
inline void Must(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw DriverFailure(DriverStatus(result, call));
}
// Of an entry point that may be absent: the pointer, or DriverFailure with CUDA_ERROR_NOT_FOUND.
template <typename Function>
Function Need(Function function, const char* call) {
  if (function == nullptr) throw DriverFailure(DriverStatus(CUDA_ERROR_NOT_FOUND, call));
  return function;
}
// "SUCCESS", "INVALID_VALUE (1)"
std::string ResultName(CUresult result);

class Gpu {
 public:
  // nullptr with a text if there is no such device or its context cannot be made.
  static std::unique_ptr<Gpu> Open(bool simulated, int ordinal, std::string* error);
  // Gives the thread its former context back. The primary context stays: the driver may be going.
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const Api& api() const { return api_; }
  Kernels& kernels() const { return *kernels_; }
  const Driver& driver() const { return *driver_; }
  bool simulated() const { return driver_->simulated(); }
  int driver_version() const { return driver_->version(); }
  const DeviceCaps& caps() const { return caps_; }
  CUdevice device() const { return device_; }
  CUcontext context() const { return context_; }
  uint64_t NowNs() const { return driver_->NowNs(); }
  int Attribute(CUdevice_attribute attribute) const;  // 0 if the driver does not know it

  // The properties that Weir creates memory with, and the size in which it is mapped. Throws
  // NOT_SUPPORTED on a device without memory mapping.
  CUmemAllocationProp Properties() const;
  uint64_t Granularity() const;

  void Synchronize() const { Must(api_.CtxSynchronize(), "cuCtxSynchronize"); }
  // The bytes at an address, after all work so far.
  std::vector<uint8_t> Read(CUdeviceptr address, uint64_t bytes) const;
  // Fills synchronously.
  void Set(CUdeviceptr address, uint8_t value, uint64_t bytes) const;

  // Runs body() in another thread that has the context current, and returns when it is done.
  template <typename Body>
  void InOtherThread(Body body) const;

 private:
  Gpu() = default;
  void WarmUp() const;
  void RunInOtherThread(void (*run)(void*), void* argument) const;

  std::unique_ptr<const Driver> driver_;
  Api api_;
  std::unique_ptr<Kernels> kernels_;
  DeviceCaps caps_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  bool pushed_ = false;
};

template <typename Body>
void Gpu::InOtherThread(Body body) const {
  std::exception_ptr failure;
  auto guarded = [&] {
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  RunInOtherThread([](void* argument) { (*static_cast<decltype(guarded)*>(argument))(); },
                   &guarded);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace weir::gpu_check

#endif  // WEIR_TOOLS_GPU_CHECK_GPU_H_
