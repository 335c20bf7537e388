// What the simulated device cannot do: memory and events of other processes, as the driver says,
// and drawings of graphs. The entries exist so that programs load.
#include "tools/simcuda/runtime/face.h"

using namespace weir::sim::runtime;

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void* pointer) {
  return InContext([=](const DriverTable& driver) {
    CUipcMemHandle handle;
    return driver.cuIpcGetMemHandle(&handle, Address(pointer));
  });
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t, unsigned int flags) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuIpcOpenMemHandle(AddressOut(pointer), {}, flags);
  });
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuIpcCloseMemHandle(Address(pointer)); });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t event) {
  return InContext([=](const DriverTable& driver) {
    CUipcEventHandle handle;
    return driver.cuIpcGetEventHandle(&handle, event);
  });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuIpcOpenEventHandle(event, {}); });
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned int) {
  return Finish(cudaErrorNotSupported);
}

}  // extern "C"
