// What the runtime says about devices, versions, and the driver below it.
#include <cuda_profiler_api.h>

#include <cstring>

#include "tools/simcuda/runtime/face.h"

using namespace weir::sim::runtime;

namespace {

// An attribute that the device has. The runtime's enumeration of attributes has the driver's
// numbers.
int Attribute(CUdevice_attribute attribute, int device) {
  int value = 0;
  const CUresult result = Driver().cuDeviceGetAttribute(&value, attribute, device);
  return result == CUDA_SUCCESS ? value : 0;
}

size_t Size(CUdevice_attribute attribute, int device) {
  return static_cast<size_t>(Attribute(attribute, device));
}

unsigned int Bits(CUdevice_attribute attribute, int device) {
  return static_cast<unsigned int>(Attribute(attribute, device));
}

void FillKernelLimits(cudaDeviceProp* prop, int device) {
  prop->sharedMemPerBlock = Size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device);
  prop->sharedMemPerBlockOptin =
      Size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
  prop->sharedMemPerMultiprocessor =
      Size(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device);
  prop->reservedSharedMemPerBlock =
      Size(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, device);
  prop->totalConstMem = Size(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, device);
  prop->regsPerBlock = Attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, device);
  prop->regsPerMultiprocessor =
      Attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, device);
  prop->warpSize = Attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
  prop->maxThreadsPerBlock = Attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device);
  prop->maxThreadsDim[0] = Attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, device);
  prop->maxThreadsDim[1] = Attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, device);
  prop->maxThreadsDim[2] = Attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, device);
  prop->maxGridSize[0] = Attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, device);
  prop->maxGridSize[1] = Attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, device);
  prop->maxGridSize[2] = Attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, device);
  prop->multiProcessorCount = Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  prop->maxThreadsPerMultiProcessor =
      Attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
  prop->maxBlocksPerMultiProcessor =
      Attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, device);
  prop->major = Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  prop->minor = Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  prop->concurrentKernels = Attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, device);
  prop->cooperativeLaunch = Attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device);
}

void FillMemory(cudaDeviceProp* prop, int device) {
  prop->memPitch = Size(CU_DEVICE_ATTRIBUTE_MAX_PITCH, device);
  prop->textureAlignment = Size(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device);
  prop->texturePitchAlignment = Size(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, device);
  prop->surfaceAlignment = Size(CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, device);
  prop->memoryBusWidth = Attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device);
  prop->l2CacheSize = Attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
  prop->globalL1CacheSupported = Attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, device);
  prop->localL1CacheSupported = Attribute(CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, device);
  prop->asyncEngineCount = Attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, device);
  prop->canMapHostMemory = Attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, device);
  prop->unifiedAddressing = Attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device);
  prop->managedMemory = Attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device);
  prop->concurrentManagedAccess = Attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
  prop->canUseHostPointerForRegisteredMem =
      Attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, device);
  prop->hostRegisterSupported = Attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, device);
  prop->memoryPoolsSupported = Attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device);
  prop->memoryPoolSupportedHandleTypes =
      Bits(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, device);
  prop->gpuDirectRDMASupported = Attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, device);
}

void FillPlace(cudaDeviceProp* prop, int device) {
  prop->pciBusID = Attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device);
  prop->pciDeviceID = Attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device);
  prop->pciDomainID = Attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device);
  prop->deviceNumaConfig = Attribute(CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, device);
  prop->deviceNumaId = Attribute(CU_DEVICE_ATTRIBUTE_NUMA_ID, device);
  prop->hostNumaId = Attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
  prop->streamPrioritiesSupported =
      Attribute(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, device);
}

}  // namespace

extern "C" {

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return Finish(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  return Finish(Driver().cuDriverGetVersion(version));
}

// Fields of what the device does not have (textures, surfaces, ...) are 0.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (prop == nullptr) return Finish(cudaErrorInvalidValue);
  return WithDriver([=](const DriverTable& driver) {
    size_t bytes = 0;
    const CUresult result = driver.cuDeviceTotalMem(&bytes, device);
    if (result != CUDA_SUCCESS) return result;
    *prop = {};
    prop->totalGlobalMem = bytes;
    FillKernelLimits(prop, device);
    FillMemory(prop, device);
    FillPlace(prop, device);
    const CUresult named = driver.cuDeviceGetName(prop->name, sizeof(prop->name), device);
    return named == CUDA_SUCCESS ? driver.cuDeviceGetUuid(&prop->uuid, device) : named;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return WithDriver([=](const DriverTable& driver) {
    return driver.cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device);
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  return WithDriver(
      [=](const DriverTable& driver) { return driver.cuDeviceGetPCIBusId(id, bytes, device); });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuCtxGetStreamPriorityRange(least, greatest);
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
  return WithDriver([=](const DriverTable& driver) {
    return driver.cuDeviceCanAccessPeer(can_access, device, peer);
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return InContext([=](const DriverTable& driver) {
    CUcontext context = nullptr;
    const CUresult found = PrimaryContext(peer, &context);
    return found == CUDA_SUCCESS ? driver.cuCtxEnablePeerAccess(context, flags) : found;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return InContext([=](const DriverTable& driver) {
    CUcontext context = nullptr;
    const CUresult found = PrimaryContext(peer, &context);
    return found == CUDA_SUCCESS ? driver.cuCtxDisablePeerAccess(context) : found;
  });
}

// There is no profiler to be told.
cudaError_t cudaProfilerStart() { return Finish(UseContext()); }
cudaError_t cudaProfilerStop() { return Finish(UseContext()); }

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                             unsigned int version, unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* status) {
  return WithDriver([=](const DriverTable&) {
    // The driver's own default is the legacy stream.
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult result =
        simcuda_get_proc_address(symbol, function, static_cast<int>(version), flags, &found);
    if (result != CUDA_SUCCESS) return result;
    if (status == nullptr) return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
    *status = static_cast<cudaDriverEntryPointQueryResult>(found);
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, status);
}

}  // extern "C"
