// Entry points of modules and their functions. A launch is an operation of its stream, with its
// place in order, captures and graphs, that does nothing and touches nothing. Images with device
// code are NOT_SUPPORTED, as are files and the linker (unsupported_entries.cc).
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "tools/simcuda/device_attributes.h"
#include "tools/simcuda/modules.h"
#include "tools/simcuda/time_entries.h"

namespace weir::sim {
namespace {

Modules& Loaded() { return Simulator::Get().modules(); }

int Attribute(int device, CUdevice_attribute attribute) {
  int value = 0;
  FindDeviceAttribute(Simulator::Get().config(), attribute, device, &value);
  return value;
}

KernelLimits LimitsOf(const ModuleFunction& function) {
  return ReadKernelLimits(
      [&function](CUdevice_attribute attribute) { return Attribute(function.device, attribute); });
}

CUresult Load(CUmodule* module, const void* image) {
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Images say their size in ways of their own: reads no further than they are as expected.
  if (std::strncmp(static_cast<const char*>(image), kSimulatedImage, sizeof(kSimulatedImage) - 1) !=
      0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *module = Loaded().modules.Add(std::make_shared<Module>(Module{CurrentDevice(), {}}));
  return CUDA_SUCCESS;
}

struct Shape {
  unsigned int x, y, z;
};

CUresult LaunchFunction(CUfunction handle, Shape grid, Shape block, unsigned int shared_bytes,
                        CUstream stream_handle, bool two_kinds_of_arguments) {
  const std::shared_ptr<ModuleFunction> function = Loaded().functions.Find(handle);
  const std::shared_ptr<Stream> stream = FindStream(stream_handle);
  if (function == nullptr || stream == nullptr || stream->device != function->device) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (two_kinds_of_arguments ||
      !IsLaunchShape(grid, block, LimitsOf(*function).threads_per_block) ||
      shared_bytes > static_cast<unsigned int>(function->settings.dynamic_shared_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Operation kernel;
  kernel.kind = OperationKind::kKernel;
  kernel.label = function->name;
  return Time().Submit(stream, std::move(kernel));
}

}  // namespace

CUresult SimModuleLoadData(CUmodule* module, const void* image) { return Load(module, image); }

CUresult SimModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count,
                             CUjit_option* options, void** values) {
  if (count > 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = Load(module, image); result != CUDA_SUCCESS) return result;
  for (unsigned int i = 0; i < count; ++i) {
    // How much was written to the logs.
    if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
        options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      values[i] = nullptr;
    }
  }
  return CUDA_SUCCESS;
}

CUresult SimModuleUnload(CUmodule handle) {
  if (Loaded().modules.Remove(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Loaded().functions.RemoveIf(
      [handle](const ModuleFunction& function) { return function.module == handle; });
  return CUDA_SUCCESS;
}

CUresult SimModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Module> module = Loaded().modules.Find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (*name == '\0') return CUDA_ERROR_NOT_FOUND;
  CUfunction& found = module->functions[name];
  if (found == nullptr) {
    found = Loaded().functions.Add(
        std::make_shared<ModuleFunction>(ModuleFunction{name, handle, module->device, {}}));
  }
  *function = found;
  return CUDA_SUCCESS;
}

CUresult SimFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<ModuleFunction> function = Loaded().functions.Find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = LimitsOf(*function).threads_per_block;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = kAssumedRegisters;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = kAssumedCodeVersion;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function->settings.dynamic_shared_bytes;
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = function->settings.shared_carveout;
      break;
    default:  // static memory and clusters: none
      *value = 0;
      break;
  }
  return CUDA_SUCCESS;
}

CUresult SimFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  const std::shared_ptr<ModuleFunction> function = Loaded().functions.Find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value > LimitsOf(*function).shared_per_block) return CUDA_ERROR_INVALID_VALUE;
    function->settings.dynamic_shared_bytes = value;
  } else if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
    if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
    function->settings.shared_carveout = value;
  } else if (attribute >= CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET &&
             attribute < CU_FUNC_ATTRIBUTE_MAX) {
    return CUDA_ERROR_NOT_SUPPORTED;
  } else {
    return CUDA_ERROR_INVALID_VALUE;  // the rest cannot be set
  }
  return CUDA_SUCCESS;
}

// A hint.
CUresult SimFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  return Loaded().functions.Find(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult SimLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                         unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                         unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                         void** arguments, void** extra) {
  return LaunchFunction(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                        shared_bytes, stream, arguments != nullptr && extra != nullptr);
}

// Attributes of launches are hints, or about clusters, which the device does not have.
CUresult SimLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments,
                           void** extra) {
  if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned int i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return LaunchFunction(function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                        {config->blockDimX, config->blockDimY, config->blockDimZ},
                        config->sharedMemBytes, config->hStream,
                        arguments != nullptr && extra != nullptr);
}

CUresult SimLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                    unsigned int block_z, unsigned int shared_bytes,
                                    CUstream stream, void**) {
  return LaunchFunction(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                        shared_bytes, stream, false);
}

CUresult SimOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle,
                                                               int block_size, size_t shared_bytes,
                                                               unsigned int flags) {
  const bool known_flags =
      (flags & ~static_cast<unsigned int>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) == 0;
  if (blocks == nullptr || block_size <= 0 || !known_flags) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<ModuleFunction> function = Loaded().functions.Find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = ActiveBlocks(LimitsOf(*function), block_size, shared_bytes);
  return CUDA_SUCCESS;
}

CUresult SimOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                      int block_size, size_t shared_bytes) {
  return SimOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                               shared_bytes, 0);
}

// The largest block of those with the most threads at a time. The caller's function may not call
// CUDA, as a host function may not: the simulator's lock is held.
CUresult SimOccupancyMaxPotentialBlockSize(int* grid_size, int* block_size, CUfunction handle,
                                           CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
                                           int limit) {
  if (grid_size == nullptr || block_size == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<ModuleFunction> function = Loaded().functions.Find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const KernelLimits limits = LimitsOf(*function);
  const int most =
      limit == 0 ? limits.threads_per_block : std::min(limit, limits.threads_per_block);
  int best_blocks = 0;
  int best_size = 0;
  for (int size = most; size > 0; size = (size - 1) / limits.warp * limits.warp) {
    size_t shared = shared_bytes;
    if (shared_of_block != nullptr) {
      Timeline::CallHostFunction([&] { shared = shared_of_block(size); });
    }
    const int blocks = ActiveBlocks(limits, size, shared);
    if (blocks * size <= best_blocks * best_size) continue;
    best_blocks = blocks;
    best_size = size;
  }
  *grid_size = best_blocks * Attribute(function->device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  *block_size = best_size;
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
