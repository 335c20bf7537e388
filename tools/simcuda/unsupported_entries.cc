// Entry points that real drivers have and that the simulated device answers with NOT_SUPPORTED, as
// its attributes say: contexts besides the primary ones, legacy IPC, pools and address ranges
// shared between processes, notifications. They exist so that programs take the path they take on a
// device without these.
#include "tools/simcuda/entry.h"

namespace weir::sim {

CUresult SimCtxCreate(CUcontext*, unsigned int, CUdevice) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult SimIpcGetMemHandle(CUipcMemHandle*, CUdeviceptr) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult SimIpcOpenMemHandle(CUdeviceptr*, CUipcMemHandle, unsigned int) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult SimIpcCloseMemHandle(CUdeviceptr) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult SimIpcGetEventHandle(CUipcEventHandle*, CUevent) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult SimIpcOpenEventHandle(CUevent*, CUipcEventHandle) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult SimMemPoolExportToShareableHandle(void*, CUmemoryPool, CUmemAllocationHandleType,
                                           unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult SimMemPoolImportFromShareableHandle(CUmemoryPool*, void*, CUmemAllocationHandleType,
                                             unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult SimMemPoolExportPointer(CUmemPoolPtrExportData*, CUdeviceptr) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult SimMemPoolImportPointer(CUdeviceptr*, CUmemoryPool, CUmemPoolPtrExportData*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult SimMemGetHandleForAddressRange(void*, CUdeviceptr, size_t, CUmemRangeHandleType,
                                        unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult SimDeviceRegisterAsyncNotification(CUdevice, CUasyncCallback, void*,
                                            CUasyncCallbackHandle*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace weir::sim
