// The driver functions that the runtime face is made of. They are those of libsimcuda.so, so that
// counters, faults, costs, held streams and the checker see what a program asks of the runtime.
#ifndef WEIR_TOOLS_SIMCUDA_RUNTIME_DRIVER_TABLE_H_
#define WEIR_TOOLS_SIMCUDA_RUNTIME_DRIVER_TABLE_H_

#include <cuda.h>
#include <cudaTypedefs.h>

namespace weir::sim::runtime {

// F(name, version). The formatter does not see that these are items of a list.
// clang-format off
#define WEIR_RUNTIME_DRIVER_FUNCTIONS(F)                                                           \
  F(cuInit, 2000) F(cuDriverGetVersion, 2020) F(cuGetProcAddress, 12000)                           \
  F(cuDeviceGetCount, 2000) F(cuDeviceGetName, 2000) F(cuDeviceGetUuid, 11040)                     \
  F(cuDeviceGetPCIBusId, 4010) F(cuDeviceTotalMem, 3020) F(cuDeviceGetAttribute, 2000)             \
  F(cuDeviceCanAccessPeer, 4000) F(cuDevicePrimaryCtxRetain, 7000)                                 \
  F(cuDevicePrimaryCtxReset, 11000) F(cuDevicePrimaryCtxGetState, 7000)                            \
  F(cuDevicePrimaryCtxSetFlags, 11000) F(cuCtxSetCurrent, 4000) F(cuCtxSynchronize, 2000)          \
  F(cuCtxEnablePeerAccess, 4000) F(cuCtxDisablePeerAccess, 4000)                                   \
  F(cuCtxGetStreamPriorityRange, 5050) F(cuMemGetInfo, 3020) F(cuMemAlloc, 3020)                   \
  F(cuMemAllocPitch, 3020) F(cuMemAllocManaged, 6000) F(cuMemFree, 3020)                           \
  F(cuPointerGetAttributes, 7000) F(cuMemHostAlloc, 2020) F(cuMemFreeHost, 2000)                   \
  F(cuMemHostRegister, 6050) F(cuMemHostUnregister, 4000) F(cuMemHostGetDevicePointer, 3020)       \
  F(cuMemHostGetFlags, 2030) F(cuMemAllocAsync, 11020) F(cuMemAllocFromPoolAsync, 11020)           \
  F(cuMemFreeAsync, 11020) F(cuMemPoolCreate, 11020) F(cuMemPoolDestroy, 11020)                    \
  F(cuMemPoolTrimTo, 11020) F(cuMemPoolSetAttribute, 11020) F(cuMemPoolGetAttribute, 11020)        \
  F(cuMemPoolSetAccess, 11020) F(cuMemPoolGetAccess, 11020) F(cuDeviceGetDefaultMemPool, 11020)    \
  F(cuDeviceGetMemPool, 11020) F(cuDeviceSetMemPool, 11020) F(cuStreamCreateWithPriority, 5050)    \
  F(cuStreamDestroy, 4000) F(cuStreamQuery, 2000) F(cuStreamSynchronize, 2000)                     \
  F(cuStreamWaitEvent, 3020) F(cuStreamGetId, 12000) F(cuStreamGetDevice, 12080)                   \
  F(cuStreamGetPriority, 5050) F(cuStreamGetFlags, 5050) F(cuLaunchHostFunc, 10000)                \
  F(cuStreamAddCallback, 5000) F(cuEventCreate, 2000) F(cuEventDestroy, 4000)                      \
  F(cuEventRecord, 2000) F(cuEventRecordWithFlags, 11010) F(cuEventQuery, 2000)                    \
  F(cuEventSynchronize, 2000) F(cuEventElapsedTime, 2000) F(cuMemcpy, 4000)                        \
  F(cuMemcpyAsync, 4000) F(cuMemcpyHtoD, 3020) F(cuMemcpyHtoDAsync, 3020) F(cuMemcpyDtoH, 3020)    \
  F(cuMemcpyDtoHAsync, 3020) F(cuMemcpyDtoD, 3020) F(cuMemcpyDtoDAsync, 3020)                      \
  F(cuMemcpyPeerAsync, 4000) F(cuMemsetD8, 3020) F(cuMemsetD8Async, 3020)                          \
  F(cuStreamBeginCapture, 10010) F(cuStreamEndCapture, 10000) F(cuStreamIsCapturing, 10000)        \
  F(cuStreamGetCaptureInfo, 12030) F(cuStreamUpdateCaptureDependencies, 12030)                     \
  F(cuThreadExchangeStreamCaptureMode, 10010) F(cuGraphInstantiateWithFlags, 11040)                \
  F(cuGraphLaunch, 10000) F(cuGraphExecDestroy, 10000) F(cuGraphDestroy, 10000)                    \
  F(cuGraphGetNodes, 10000) F(cuGraphNodeGetDependencies, 12030) F(cuIpcGetMemHandle, 4010)        \
  F(cuIpcOpenMemHandle, 11000) F(cuIpcCloseMemHandle, 4010) F(cuIpcGetEventHandle, 4010)           \
  F(cuIpcOpenEventHandle, 4010) F(cuUserObjectCreate, 11030) F(cuUserObjectRetain, 11030) F(cuUserObjectRelease, 11030) F(cuGraphRetainUserObject, 11030) F(cuDeviceGetGraphMemAttribute, 11040) F(cuDeviceSetGraphMemAttribute, 11040)
// clang-format on

struct DriverTable {
#define WEIR_DECLARE(name, version) PFN_##name##_v##version name;
  WEIR_RUNTIME_DRIVER_FUNCTIONS(WEIR_DECLARE)
#undef WEIR_DECLARE
};

const DriverTable& Driver();

}  // namespace weir::sim::runtime

#endif  // WEIR_TOOLS_SIMCUDA_RUNTIME_DRIVER_TABLE_H_
