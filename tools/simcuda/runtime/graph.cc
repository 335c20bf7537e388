// Stream capture and graphs.
#include <algorithm>

#include "tools/simcuda/runtime/face.h"

using namespace weir::sim::runtime;

namespace {

CUstreamCaptureMode DriverMode(cudaStreamCaptureMode mode) {
  return static_cast<CUstreamCaptureMode>(mode);
}

cudaStreamCaptureStatus RuntimeStatus(CUstreamCaptureStatus status) {
  return static_cast<cudaStreamCaptureStatus>(status);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuStreamBeginCapture(stream, DriverMode(mode));
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuStreamEndCapture(stream, graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (status == nullptr) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable& driver) {
    CUstreamCaptureStatus found = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = driver.cuStreamIsCapturing(stream, &found);
    if (result == CUDA_SUCCESS) *status = RuntimeStatus(found);
    return result;
  });
}

// All edges are of the default kind: the driver sets `edges` to null.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  if (status == nullptr || (edges != nullptr && dependencies == nullptr)) {
    return Finish(cudaErrorInvalidValue);
  }
  return InContext([=](const DriverTable& driver) {
    CUstreamCaptureStatus found = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t capture_id = 0;
    const CUresult result = driver.cuStreamGetCaptureInfo(stream, &found, &capture_id, graph,
                                                          dependencies, nullptr, count);
    if (result != CUDA_SUCCESS) return result;
    *status = RuntimeStatus(found);
    if (found == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
      if (id != nullptr) *id = capture_id;
      if (edges != nullptr) *edges = nullptr;
    }
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData* edges, size_t count,
                                                unsigned int flags) {
  if (edges != nullptr) return Finish(cudaErrorNotSupported);
  return InContext([=](const DriverTable& driver) {
    return driver.cuStreamUpdateCaptureDependencies(stream, dependencies, nullptr, count, flags);
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (mode == nullptr) return Finish(cudaErrorInvalidValue);
  return WithDriver([=](const DriverTable& driver) {
    CUstreamCaptureMode exchanged = DriverMode(*mode);
    const CUresult result = driver.cuThreadExchangeStreamCaptureMode(&exchanged);
    if (result == CUDA_SUCCESS) *mode = static_cast<cudaStreamCaptureMode>(exchanged);
    return result;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuGraphInstantiateWithFlags(exec, graph, flags);
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return InContext([=](const DriverTable& driver) { return driver.cuGraphLaunch(exec, stream); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return InContext([=](const DriverTable& driver) { return driver.cuGraphDestroy(graph); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return InContext([=](const DriverTable& driver) { return driver.cuGraphExecDestroy(exec); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuGraphGetNodes(graph, nodes, count); });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* dependencies,
                                         cudaGraphEdgeData* edges, size_t* count) {
  if (edges != nullptr && dependencies == nullptr) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable& driver) {
    const CUresult result = driver.cuGraphNodeGetDependencies(node, dependencies, nullptr, count);
    if (result == CUDA_SUCCESS && edges != nullptr) std::fill_n(edges, *count, cudaGraphEdgeData{});
    return result;
  });
}

}  // extern "C"
