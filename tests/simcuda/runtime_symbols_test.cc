// The runtime face as a library: what programs that were linked with the real one ask of it.
#include <dlfcn.h>

#include "tests/simcuda/runtime_fixture.h"

namespace weir::sim {
namespace {

// What the libraries of the wheel torch 2.11.0 (CUDA 13.0) import.
constexpr const char* kTorchImports[] = {
    "__cudaGetKernel",
    "__cudaInitModule",
    "__cudaLaunchKernel",
    "__cudaPopCallConfiguration",
    "__cudaPushCallConfiguration",
    "__cudaRegisterFatBinary",
    "__cudaRegisterFatBinaryEnd",
    "__cudaRegisterFunction",
    "__cudaRegisterVar",
    "__cudaUnregisterFatBinary",
    "cudaDeviceCanAccessPeer",
    "cudaDeviceEnablePeerAccess",
    "cudaDeviceGetAttribute",
    "cudaDeviceGetDefaultMemPool",
    "cudaDeviceGetPCIBusId",
    "cudaDeviceGetStreamPriorityRange",
    "cudaDeviceSynchronize",
    "cudaDriverGetVersion",
    "cudaEventCreate",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventElapsedTime",
    "cudaEventQuery",
    "cudaEventRecord",
    "cudaEventRecordWithFlags",
    "cudaEventSynchronize",
    "cudaFree",
    "cudaFreeAsync",
    "cudaFreeHost",
    "cudaFuncGetAttributes",
    "cudaFuncSetAttribute",
    "cudaGetDevice",
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaGetDriverEntryPointByVersion",
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaGetLastError",
    "cudaGetSymbolAddress",
    "cudaGraphDebugDotPrint",
    "cudaGraphDestroy",
    "cudaGraphExecDestroy",
    "cudaGraphGetNodes",
    "cudaGraphInstantiateWithFlags",
    "cudaGraphLaunch",
    "cudaGraphNodeGetDependencies",
    "cudaHostAlloc",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaIpcCloseMemHandle",
    "cudaIpcGetEventHandle",
    "cudaIpcGetMemHandle",
    "cudaIpcOpenEventHandle",
    "cudaIpcOpenMemHandle",
    "cudaLaunchCooperativeKernel",
    "cudaLaunchHostFunc",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaMalloc",
    "cudaMallocAsync",
    "cudaMemGetInfo",
    "cudaMemPoolGetAttribute",
    "cudaMemPoolSetAccess",
    "cudaMemPoolSetAttribute",
    "cudaMemPoolTrimTo",
    "cudaMemcpy2DAsync",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemcpyPeerAsync",
    "cudaMemcpyToSymbol",
    "cudaMemset",
    "cudaMemsetAsync",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cudaPeekAtLastError",
    "cudaPointerGetAttributes",
    "cudaProfilerStart",
    "cudaProfilerStop",
    "cudaRuntimeGetVersion",
    "cudaSetDevice",
    "cudaStreamAddCallback",
    "cudaStreamBeginCapture",
    "cudaStreamCreate",
    "cudaStreamCreateWithPriority",
    "cudaStreamDestroy",
    "cudaStreamEndCapture",
    "cudaStreamGetCaptureInfo",
    "cudaStreamGetPriority",
    "cudaStreamIsCapturing",
    "cudaStreamQuery",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
    "cudaThreadExchangeStreamCaptureMode",
};

TEST_CASE("every function that PyTorch imports is there in the version it asks for",
          "[simcuda][runtime]") {
  void* const library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);  // the SONAME is what PyTorch's libraries name
  for (const char* name : kTorchImports) {
    INFO(name);
    CHECK(dlvsym(library, name, "libcudart.so.13") != nullptr);
  }
  CHECK(dlvsym(library, "simcuda_configure", "libcudart.so.13") == nullptr);
  dlclose(library);
}

}  // namespace
}  // namespace weir::sim
