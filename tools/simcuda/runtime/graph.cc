// Stream capture and graphs.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "tools/simcuda/runtime/face.h"

using namespace weir::sim::runtime;

namespace {

CUstreamCaptureMode DriverMode(cudaStreamCaptureMode mode) {
  return static_cast<CUstreamCaptureMode>(mode);
}

cudaStreamCaptureStatus RuntimeStatus(CUstreamCaptureStatus status) {
  return static_cast<cudaStreamCaptureStatus>(status);
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// In the language of Graphviz: nodes are numbered, edges go from what must be done before.
CUresult Draw(const DriverTable& driver, CUgraph graph, const char* path) {
  size_t count = 0;
  CUresult result = driver.cuGraphGetNodes(graph, nullptr, &count);
  std::vector<CUgraphNode> nodes(count);
  if (result == CUDA_SUCCESS) result = driver.cuGraphGetNodes(graph, nodes.data(), &count);
  if (result != CUDA_SUCCESS) return result;
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path, "w"));
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  std::fputs("digraph {\n", file.get());
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::fprintf(file.get(), "  node%zu;\n", i);
    size_t edges = 0;
    result = driver.cuGraphNodeGetDependencies(nodes[i], nullptr, nullptr, &edges);
    std::vector<CUgraphNode> before(edges);
    if (result == CUDA_SUCCESS) {
      result = driver.cuGraphNodeGetDependencies(nodes[i], before.data(), nullptr, &edges);
    }
    if (result != CUDA_SUCCESS) return result;
    for (const CUgraphNode node : before) {
      const auto at = std::find(nodes.begin(), nodes.end(), node) - nodes.begin();
      std::fprintf(file.get(), "  node%td -> node%zu;\n", at, i);
    }
  }
  std::fputs("}\n", file.get());
  return std::ferror(file.get()) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
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

// The flags say what of each node to draw; there is nothing but its number.
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned int) {
  if (path == nullptr) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable& driver) { return Draw(driver, graph, path); });
}

// ---- What lives as long as a graph --------------------------------------------------------------

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy,
                                 unsigned int references, unsigned int flags) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuUserObjectCreate(object, data, destroy, references, flags);
  });
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned int count) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuUserObjectRetain(object, count); });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuUserObjectRelease(object, count); });
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                      unsigned int count, unsigned int flags) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuGraphRetainUserObject(graph, object, count, flags);
  });
}

// ---- Memory of graphs ---------------------------------------------------------------------------

cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute,
                                           void* value) {
  return WithDriver([=](const DriverTable& driver) {
    return driver.cuDeviceGetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(attribute),
                                               value);
  });
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute,
                                           void* value) {
  return WithDriver([=](const DriverTable& driver) {
    return driver.cuDeviceSetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(attribute),
                                               value);
  });
}

}  // extern "C"
