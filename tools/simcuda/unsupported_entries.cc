// Entry points that real drivers have and that the simulated device answers with NOT_SUPPORTED, as
// its attributes say: contexts besides the primary ones, pools and address ranges shared between
// processes, notifications, device code. They exist so that programs load, and take the path they
// take on a device without these. Modules cannot be loaded, so handles of modules and of their
// functions are invalid.
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

CUresult SimModuleLoadData(CUmodule*, const void*) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult SimModuleLoadDataEx(CUmodule*, const void*, unsigned int, CUjit_option*, void**) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult SimModuleUnload(CUmodule) { return CUDA_ERROR_INVALID_HANDLE; }

CUresult SimModuleGetFunction(CUfunction*, CUmodule, const char*) {
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult SimLinkCreate(unsigned int, CUjit_option*, void**, CUlinkState*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult SimLinkAddData(CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned int,
                        CUjit_option*, void**) {
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult SimLinkComplete(CUlinkState, void**, size_t*) { return CUDA_ERROR_INVALID_HANDLE; }

CUresult SimFuncGetAttribute(int*, CUfunction_attribute, CUfunction) {
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult SimFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult SimFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_ERROR_INVALID_HANDLE; }

CUresult SimLaunchKernel(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                         unsigned int, unsigned int, unsigned int, CUstream, void**, void**) {
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult SimLaunchCooperativeKernel(CUfunction, unsigned int, unsigned int, unsigned int,
                                    unsigned int, unsigned int, unsigned int, unsigned int,
                                    CUstream, void**) {
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult SimOccupancyMaxActiveBlocksPerMultiprocessor(int*, CUfunction, int, size_t) {
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult SimTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace weir::sim
