// What the simulated device cannot do: device code that is loaded by hand, graphs made by hand and
// their conditions. The entries exist so that programs load. No library can be loaded, so every
// handle of one is invalid.
#include "tools/simcuda/runtime/face.h"

using namespace weir::sim::runtime;

extern "C" {

// ---- Libraries of device code -------------------------------------------------------------------

cudaError_t cudaLibraryLoadData(cudaLibrary_t*, const void*, cudaJitOption*, void**, unsigned int,
                                cudaLibraryOption*, void**, unsigned int) {
  return Finish(cudaErrorNotSupported);
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t*, const char*, cudaJitOption*, void**,
                                    unsigned int, cudaLibraryOption*, void**, unsigned int) {
  return Finish(cudaErrorNotSupported);
}

cudaError_t cudaLibraryUnload(cudaLibrary_t) { return Finish(cudaErrorInvalidResourceHandle); }

cudaError_t cudaLibraryGetKernel(cudaKernel_t*, cudaLibrary_t, const char*) {
  return Finish(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaLibraryGetKernelCount(unsigned int*, cudaLibrary_t) {
  return Finish(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaLibraryGetGlobal(void**, size_t*, cudaLibrary_t, const char*) {
  return Finish(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaLibraryGetManaged(void**, size_t*, cudaLibrary_t, const char*) {
  return Finish(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaLibraryGetUnifiedFunction(void**, cudaLibrary_t, const char*) {
  return Finish(cudaErrorInvalidResourceHandle);
}

// ---- Graphs made by hand ------------------------------------------------------------------------

cudaError_t cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*,
                             const cudaGraphEdgeData*, size_t, cudaGraphNodeParams*) {
  return Finish(cudaErrorNotSupported);
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle*, cudaGraph_t, unsigned int,
                                             unsigned int) {
  return Finish(cudaErrorNotSupported);
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t, cudaGraph_t, const cudaGraphNode_t*,
                                          const cudaGraphEdgeData*, size_t, cudaStreamCaptureMode) {
  return Finish(cudaErrorNotSupported);
}

}  // extern "C"
