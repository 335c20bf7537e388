// Entry points: initialization, versions, errors, devices.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tools/simcuda/device_attributes.h"
#include "tools/simcuda/entry.h"
#include "tools/simcuda/faces.h"
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

CUresult CheckDevice(CUdevice device) {
  return Simulator::Get().IsDevice(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

CUresult SimInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Simulator& sim = Simulator::Get();
  if (Simulator::refused) {
    std::fputs(
        "simcuda: a library of Weir's simulated GPU (libcuda.so.1, libcudart.so.13) was loaded and "
        "this machine has a real NVIDIA driver; remove it from the library path, or set "
        "WEIR_SIMCUDA_FORCE=1 to use it\n",
        stderr);
    return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  }
  if (sim.wrong_environment) return CUDA_ERROR_INVALID_VALUE;  // it was said when it was found
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
  simcuda_uuid(device, reinterpret_cast<unsigned char*>(uuid->bytes));
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
  const bool known = FindDeviceAttribute(Simulator::Get().config(), attribute, device, value);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult SimDeviceCanAccessPeer(int* can_access, CUdevice device, CUdevice peer) {
  if (can_access == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = CheckDevice(device); result != CUDA_SUCCESS) return result;
  if (const CUresult result = CheckDevice(peer); result != CUDA_SUCCESS) return result;
  *can_access = device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
