// Entry points that real drivers have and that the simulated device answers with NOT_SUPPORTED, as
// its attributes say: contexts besides the primary ones, pools and address ranges shared between
// processes, notifications, device code in files and its linker. They exist so that programs load,
// and take the path they take on a device without these.
#include "tools/simcuda/entry.h"

namespace weir::sim {

CUresult SimCtxCreate(CUcontext*, unsigned int, CUdevice) { return CUDA_ERROR_NOT_SUPPORTED; }

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

CUresult SimModuleLoad(CUmodule*, const char*) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult SimLinkCreate(unsigned int, CUjit_option*, void**, CUlinkState*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult SimLinkAddData(CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned int,
                        CUjit_option*, void**) {
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult SimLinkComplete(CUlinkState, void**, size_t*) { return CUDA_ERROR_INVALID_HANDLE; }

CUresult SimTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace weir::sim
