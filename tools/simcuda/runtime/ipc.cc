// Memory and events of other processes. The handles are those of the driver under other names.
#include <cstring>

#include "tools/simcuda/runtime/face.h"

using namespace weir::sim::runtime;

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle));
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle), Address(pointer));
  });
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
  return InContext([=](const DriverTable& driver) {
    CUipcMemHandle same;
    std::memcpy(&same, &handle, sizeof(same));
    return driver.cuIpcOpenMemHandle(AddressOut(pointer), same, flags);
  });
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuIpcCloseMemHandle(Address(pointer)); });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuIpcGetEventHandle(reinterpret_cast<CUipcEventHandle*>(handle), event);
  });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return InContext([=](const DriverTable& driver) {
    CUipcEventHandle same;
    std::memcpy(&same, &handle, sizeof(same));
    return driver.cuIpcOpenEventHandle(event, same);
  });
}

}  // extern "C"
