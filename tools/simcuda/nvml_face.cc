// libnvidia-ml.so.1: what programs ask NVIDIA's management library about devices. PyTorch counts
// devices with it without initializing CUDA, and asks it how devices are connected: these are
// connected in no special way. Nothing here starts the simulator.
//
// Handles are opaque, and what would fill other structures than FabricInfo is NOT_SUPPORTED.
#include <cstdio>
#include <cstring>
#include <string>

#include "tools/simcuda/faces.h"

#define WEIR_NVML extern "C" __attribute__((visibility("default")))

namespace {

enum Result : int {
  kSuccess = 0,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
};

struct Device;  // 1 + its ordinal

// nvmlGpuFabricInfo_v2_t and its later versions begin so; more is not written.
struct FabricInfo {
  unsigned int version;
  unsigned char cluster[16];
  int status;
  unsigned int clique;
  unsigned char state;
};

int Ordinal(const Device* device) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(device)) - 1;
}

bool Known(const Device* device) {
  return Ordinal(device) >= 0 && Ordinal(device) < simcuda_planned_devices();
}

Result Find(int ordinal, Device** device) {
  if (device == nullptr || ordinal < 0 || ordinal >= simcuda_planned_devices()) {
    return kInvalidArgument;
  }
  *device = reinterpret_cast<Device*>(static_cast<std::intptr_t>(ordinal) + 1);
  return kSuccess;
}

std::string Uuid(int ordinal) {
  unsigned char bytes[16];
  simcuda_uuid(ordinal, bytes);
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    std::snprintf(digits, sizeof(digits), dash ? "-%02x" : "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

__attribute__((constructor)) void Attach() { simcuda_attach_face(); }

}  // namespace

WEIR_NVML Result nvmlInit_v2() {
  return simcuda_planned_devices() > 0 ? kSuccess : kDriverNotLoaded;
}
WEIR_NVML Result nvmlInit() { return nvmlInit_v2(); }
WEIR_NVML Result nvmlInitWithFlags(unsigned int) { return nvmlInit_v2(); }
WEIR_NVML Result nvmlShutdown() { return kSuccess; }

WEIR_NVML const char* nvmlErrorString(Result result) {
  switch (result) {
    case kSuccess:
      return "success";
    case kInvalidArgument:
      return "invalid argument";
    case kNotSupported:
      return "the simulated GPU does not know it";
    case kNotFound:
      return "not found";
    case kInsufficientSize:
      return "the buffer is too small";
    case kDriverNotLoaded:
      return "the simulated GPU does not start";
  }
  return "unknown error";
}

WEIR_NVML Result nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return kInvalidArgument;
  *version = weir::sim::Config().driver_version;
  return kSuccess;
}

WEIR_NVML Result nvmlDeviceGetCount_v2(unsigned int* count) {
  if (count == nullptr) return kInvalidArgument;
  *count = static_cast<unsigned int>(simcuda_planned_devices());
  return kSuccess;
}

WEIR_NVML Result nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device** device) {
  return Find(static_cast<int>(index), device);
}

// As cuDeviceGetPCIBusId says it, the domain with four or eight digits.
WEIR_NVML Result nvmlDeviceGetHandleByPciBusId_v2(const char* id, Device** device) {
  unsigned int domain = 0;
  unsigned int bus = 0;
  unsigned int slot = 0;
  if (id == nullptr || std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    return kInvalidArgument;
  }
  const bool found =
      domain == 0 && slot == 0 && bus >= 1 && Find(static_cast<int>(bus) - 1, device) == kSuccess;
  return found ? kSuccess : kNotFound;
}

WEIR_NVML Result nvmlDeviceGetHandleByUUID(const char* uuid, Device** device) {
  if (uuid == nullptr) return kInvalidArgument;
  for (int i = 0; i < simcuda_planned_devices(); ++i) {
    if (Uuid(i) == uuid) return Find(i, device);
  }
  return kNotFound;
}

WEIR_NVML Result nvmlDeviceGetUUID(const Device* device, char* text, unsigned int bytes) {
  if (text == nullptr || !Known(device)) return kInvalidArgument;
  const std::string uuid = Uuid(Ordinal(device));
  if (bytes <= uuid.size()) return kInsufficientSize;
  std::memcpy(text, uuid.c_str(), uuid.size() + 1);
  return kSuccess;
}

// Processes see each other's simulated devices no more than in a container: none is listed.
WEIR_NVML Result nvmlDeviceGetComputeRunningProcesses(const Device* device, unsigned int* count,
                                                      void*) {
  if (count == nullptr || !Known(device)) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}
// In no fabric: NVML_GPU_FABRIC_STATE_NOT_SUPPORTED is 0.
WEIR_NVML Result nvmlDeviceGetGpuFabricInfoV(const Device* device, FabricInfo* info) {
  if (info == nullptr || !Known(device)) return kInvalidArgument;
  FabricInfo none{};
  none.version = info->version;
  none.status = kNotSupported;
  *info = none;
  return kSuccess;
}
WEIR_NVML Result nvmlDeviceGetNvLinkRemoteDeviceType(const Device*, unsigned int, void*) {
  return kNotSupported;
}
WEIR_NVML Result nvmlDeviceGetNvLinkRemotePciInfo_v2(const Device*, unsigned int, void*) {
  return kNotSupported;
}
WEIR_NVML Result nvmlDeviceGetP2PStatus(const Device*, const Device*, int, void*) {
  return kNotSupported;
}
