// Kernel launches. A launch is an operation of its stream, with its place in order, captures and
// graphs, that does nothing: the simulated device runs no device code, and does not know what the
// kernel would have touched. What depends on compiled code (registers, shared memory) is assumed.
#include <vector>

#include "tools/simcuda/kernel_limits.h"
#include "tools/simcuda/runtime/face.h"
#include "tools/simcuda/runtime/registration.h"

using namespace weir::sim::runtime;
using weir::sim::IsLaunchShape;
using weir::sim::KernelLimits;

namespace {

KernelLimits DeviceLimits() {
  return weir::sim::ReadKernelLimits([device = CurrentDevice()](CUdevice_attribute attribute) {
    int value = 0;
    Driver().cuDeviceGetAttribute(&value, attribute, device);
    return value;
  });
}

cudaError_t Launch(const void* function, dim3 grid, dim3 block, cudaStream_t stream) {
  return InContext([=](const DriverTable& driver) {
    Kernel kernel;
    if (!FindKernel(function, &kernel)) return cudaErrorInvalidDeviceFunction;
    int most_threads = 0;
    const CUresult result = driver.cuDeviceGetAttribute(
        &most_threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CurrentDevice());
    if (result != CUDA_SUCCESS) return Translate(result);
    if (!IsLaunchShape(grid, block, most_threads)) return cudaErrorInvalidConfiguration;
    return Translate(weir::sim::Launch(stream, kernel.name, {}));
  });
}

// What <<<...>>> says, until the kernel's stub asks for it.
struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> t_configurations;

}  // namespace

extern "C" {

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                         cudaStream_t stream) {
  t_configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  if (t_configurations.empty()) return Finish(cudaErrorMissingConfiguration);
  const Configuration configuration = t_configurations.back();
  t_configurations.pop_back();
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

// A kernel's handle is the address of its stub.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  Kernel known;
  if (kernel == nullptr) return Finish(cudaErrorInvalidValue);
  if (!FindKernel(function, &known)) return Finish(cudaErrorInvalidDeviceFunction);
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t,
                               cudaStream_t stream) {
  return Launch(kernel, grid, block, stream);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**, size_t,
                             cudaStream_t stream) {
  return Launch(function, grid, block, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void**, size_t,
                                        cudaStream_t stream) {
  return Launch(function, grid, block, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void**) {
  if (config == nullptr) return Finish(cudaErrorInvalidValue);
  return Launch(function, config->gridDim, config->blockDim, config->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  if (attributes == nullptr) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable&) {
    Kernel kernel;
    if (!FindKernel(function, &kernel)) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->maxThreadsPerBlock = DeviceLimits().threads_per_block;
    attributes->numRegs = weir::sim::kAssumedRegisters;
    attributes->ptxVersion = weir::sim::kAssumedCodeVersion;
    attributes->binaryVersion = weir::sim::kAssumedCodeVersion;
    attributes->maxDynamicSharedSizeBytes = kernel.settings.dynamic_shared_bytes;
    attributes->preferredShmemCarveout = kernel.settings.shared_carveout;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return InContext([=](const DriverTable&) {
    Kernel kernel;
    if (!FindKernel(function, &kernel)) return cudaErrorInvalidDeviceFunction;
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
      if (value < 0 || value > DeviceLimits().shared_per_block) return cudaErrorInvalidValue;
      kernel.settings.dynamic_shared_bytes = value;
    } else if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
      if (value < -1 || value > 100) return cudaErrorInvalidValue;
      kernel.settings.shared_carveout = value;
    } else {
      return cudaErrorNotSupported;
    }
    return SetKernel(function, kernel) ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  });
}

// What is assumed of a kernel is the same on all devices.
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute,
                                            int value, int device) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return error;
  if (device < 0 || device >= count) return Finish(cudaErrorInvalidDevice);
  return cudaFuncSetAttribute(kernel, attribute, value);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int block_size, size_t shared_bytes, unsigned int flags) {
  const bool known_flags =
      (flags & ~static_cast<unsigned int>(cudaOccupancyDisableCachingOverride)) == 0;
  if (blocks == nullptr || block_size <= 0 || !known_flags) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable&) {
    Kernel kernel;
    if (!FindKernel(function, &kernel)) return cudaErrorInvalidDeviceFunction;
    *blocks = weir::sim::ActiveBlocks(DeviceLimits(), block_size, shared_bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int block_size, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                                shared_bytes, 0);
}

}  // extern "C"
