#include "tools/gpu_check/gpu.h"

#include <thread>

#include "tools/gpu_check/resources.h"

namespace weir::gpu_check {

std::string ResultName(CUresult result) {
  if (result == CUDA_SUCCESS) return "SUCCESS";
  // ToString is "entry: CUDA_ERROR_NAME (code)".
  std::string text = DriverStatus(result, "").ToString();
  const size_t name = text.find("CUDA_ERROR_");
  return name == std::string::npos ? text : text.substr(name + sizeof("CUDA_ERROR_") - 1);
}

std::unique_ptr<Gpu> Gpu::Open(bool simulated, int ordinal, std::string* error) {
  std::unique_ptr<Gpu> gpu(new Gpu());
  DriverOptions options;
  options.simulated = simulated;
  gpu->driver_ = Driver::Open(options, error);
  if (gpu->driver_ == nullptr) return nullptr;
  const Driver& driver = *gpu->driver_;
  if (ordinal < 0 || ordinal >= driver.device_count()) {
    *error = "there is no device " + std::to_string(ordinal) + "; the driver sees " +
             std::to_string(driver.device_count());
    return nullptr;
  }
  static_cast<DriverTable&>(gpu->api_) = driver.entries();
#define WEIR_GPU_CHECK_ENTRY(Name, version) \
  gpu->api_.Name = reinterpret_cast<PFN_cu##Name##_v##version>(driver.Find("cu" #Name, version));
#include "tools/gpu_check/extra_entries.inc"

  gpu->device_ = driver.device(ordinal);
  try {
    Must(gpu->api_.DevicePrimaryCtxRetain(&gpu->context_, gpu->device_),
         "cuDevicePrimaryCtxRetain");
    Must(gpu->api_.CtxPushCurrent(gpu->context_), "cuCtxPushCurrent");
    gpu->pushed_ = true;
    gpu->caps_ = ProbeDevice(driver, ordinal, /*try_vmm=*/true);
    // The driver library found may be the simulated device's too.
    gpu->kernels_ = driver.simulated() ? MakeSimKernels(ordinal) : MakeCudaKernels(driver);
    gpu->WarmUp();
  } catch (const DriverFailure& failure) {
    *error = failure.what();
    return nullptr;
  }
  return gpu;
}

Gpu::~Gpu() {
  CUcontext popped;
  if (pushed_) (void)api_.CtxPopCurrent(&popped);
}

// The driver may load a kernel at its first launch and wait for the whole context then, which would
// never end while another kernel spins.
void Gpu::WarmUp() const {
  const ScopedPinned memory(*this, 2);
  kernels_->Fill(nullptr, memory.address(), 1, 1);
  kernels_->Copy(nullptr, memory.address() + 1, memory.address(), 1);
  Gate gate(*this);
  gate.Hold(nullptr);
  gate.Open();
  Synchronize();
}

int Gpu::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  if (api_.DeviceGetAttribute(&value, attribute, device_) != CUDA_SUCCESS) return 0;
  return value;
}

CUmemAllocationProp Gpu::Properties() const {
  Granularity();
  return HandleProperties(device_, caps_.posix_handles.value != 0, caps_.rdma.value != 0);
}

uint64_t Gpu::Granularity() const {
  if (caps_.vmm.value == 0) {
    throw DriverFailure(DriverStatus(CUDA_ERROR_NOT_SUPPORTED, "memory mapping"));
  }
  return static_cast<uint64_t>(caps_.vmm.value);
}

std::vector<uint8_t> Gpu::Read(CUdeviceptr address, uint64_t bytes) const {
  std::vector<uint8_t> data(bytes);
  Synchronize();
  Must(api_.MemcpyAsync(reinterpret_cast<CUdeviceptr>(data.data()), address, bytes, nullptr),
       "cuMemcpyAsync");
  Synchronize();
  return data;
}

void Gpu::Set(CUdeviceptr address, uint8_t value, uint64_t bytes) const {
  Synchronize();
  Must(api_.MemsetD8Async(address, value, bytes, nullptr), "cuMemsetD8Async");
  Synchronize();
}

void Gpu::RunInOtherThread(void (*run)(void*), void* argument) const {
  CUresult current = CUDA_SUCCESS;
  std::thread other([&] {
    current = api_.CtxPushCurrent(context_);
    if (current == CUDA_SUCCESS) run(argument);
  });
  other.join();
  Must(current, "cuCtxPushCurrent");
}

}  // namespace weir::gpu_check
