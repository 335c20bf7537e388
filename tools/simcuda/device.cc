// Entry points: initialization, versions, errors, devices.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tools/simcuda/entry.h"
#include "tools/simcuda/simulator.h"

namespace weir::sim {
namespace {

constexpr char kDeviceName[] = "Weir simulated GPU";

struct ErrorText {
  CUresult error;
  const char* name;
  const char* text;
};
#define WEIR_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    WEIR_ERROR(CUDA_SUCCESS, "no error"),
    WEIR_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    WEIR_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    WEIR_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    WEIR_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    WEIR_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    WEIR_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    WEIR_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    WEIR_ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    WEIR_ERROR(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    WEIR_ERROR(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    WEIR_ERROR(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    WEIR_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    WEIR_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported"),
    WEIR_ERROR(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error"),
    WEIR_ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported"),
    WEIR_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    WEIR_ERROR(CUDA_ERROR_ILLEGAL_STATE, "resource in an illegal state"),
    WEIR_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    WEIR_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    WEIR_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    WEIR_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    WEIR_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access is not enabled"),
    WEIR_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    WEIR_ERROR(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    WEIR_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "memory is already registered"),
    WEIR_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "memory is not registered"),
    WEIR_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    WEIR_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    WEIR_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    WEIR_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    WEIR_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    WEIR_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "display driver and CUDA driver differ"),
    WEIR_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not permitted while a stream captures"),
    WEIR_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
               "capture was invalidated by an earlier error"),
    WEIR_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "would merge two captures"),
    WEIR_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not begun on this stream"),
    WEIR_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capture has a fork that was not joined"),
    WEIR_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency crosses the capture's border"),
    WEIR_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "implicit dependency on a capturing stream"),
    WEIR_ERROR(CUDA_ERROR_CAPTURED_EVENT, "event was last recorded in a capture"),
    WEIR_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "capture was begun by another thread"),
    WEIR_ERROR(CUDA_ERROR_TIMEOUT, "wait timed out"),
    WEIR_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef WEIR_ERROR

const ErrorText* FindError(CUresult error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return &known;
  }
  return nullptr;
}

// The value of an attribute, or -2 for those the simulated driver does not know.
constexpr int kUnknownAttribute = -2;
int Attribute(const Config& config, CUdevice_attribute attribute, int ordinal) {
  const int vmm = config.vmm ? 1 : 0;
  const int pools = config.memory_pools ? 1 : 0;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 1;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return 0;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 1;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
      return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      return CU_COMPUTEMODE_DEFAULT;
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
      return 1;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return ordinal + 1;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
      return 0;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      return 1;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
      return 1;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
      return 0;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
      return 1;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      return 1;
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
      return 0;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return vmm;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return vmm;
    case CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
      return vmm;
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      return pools;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
      return 0;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
      return 0;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_NUMA_CONFIG:
      return 0;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
      return -1;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      return -1;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return 0;
    case CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED:
      return 0;
    default:
      return kUnknownAttribute;
  }
}

CUresult CheckDevice(CUdevice device) {
  return Simulator::Get().IsDevice(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

CUresult SimInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Simulator& sim = Simulator::Get();
  if (Simulator::refused) {
    std::fputs(
        "simcuda: this libcuda.so.1 is Weir's simulated GPU and this machine has a real NVIDIA "
        "driver; remove it from the library path, or set WEIR_SIMCUDA_FORCE=1 to use it\n",
        stderr);
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  sim.used = sim.initialized = true;
  return CUDA_SUCCESS;
}

CUresult SimDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = Simulator::Get().config().driver_version;
  return CUDA_SUCCESS;
}

CUresult SimGetErrorName(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* known = FindError(error);
  *text = known == nullptr ? nullptr : known->name;
  return known == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult SimGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* known = FindError(error);
  *text = known == nullptr ? nullptr : known->text;
  return known == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult SimDeviceGet(CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckDevice(ordinal); result != CUDA_SUCCESS) return result;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult SimDeviceGetCount(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = Simulator::Get().device_count();
  return CUDA_SUCCESS;
}

CUresult SimDeviceGetName(char* name, int bytes, CUdevice device) {
  if (name == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckDevice(device); result != CUDA_SUCCESS) return result;
  std::snprintf(name, static_cast<size_t>(bytes), "%s", kDeviceName);
  return CUDA_SUCCESS;
}

CUresult SimDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckDevice(device); result != CUDA_SUCCESS) return result;
  std::memcpy(uuid->bytes, "weir-simulated", 14);
  uuid->bytes[14] = 0;
  uuid->bytes[15] = static_cast<char>(device);
  return CUDA_SUCCESS;
}

CUresult SimDeviceGetPCIBusId(char* id, int bytes, CUdevice device) {
  if (id == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckDevice(device); result != CUDA_SUCCESS) return result;
  std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
  return CUDA_SUCCESS;
}

CUresult SimDeviceTotalMem(size_t* bytes, CUdevice device) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckDevice(device); result != CUDA_SUCCESS) return result;
  *bytes = Simulator::Get().device(device).arena->capacity();
  return CUDA_SUCCESS;
}

CUresult SimDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckDevice(device); result != CUDA_SUCCESS) return result;
  const int found = Attribute(Simulator::Get().config(), attribute, device);
  if (found == kUnknownAttribute) return CUDA_ERROR_INVALID_VALUE;
  *value = found;
  return CUDA_SUCCESS;
}

CUresult SimDeviceCanAccessPeer(int* can_access, CUdevice device, CUdevice peer) {
  if (can_access == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckDevice(device); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckDevice(peer); result != CUDA_SUCCESS) return result;
  *can_access = device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
