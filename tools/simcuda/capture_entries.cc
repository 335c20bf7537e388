// Entry points of stream capture.
#include <algorithm>
#include <utility>

#include "tools/simcuda/time_entries.h"

namespace weir::sim {
namespace {

CUstreamCaptureStatus StatusOf(const Stream& stream) {
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// Asking about the legacy stream while it is unusable is an error that invalidates nothing.
CUresult FindForStatus(CUstream handle, std::shared_ptr<Stream>* stream) {
  *stream = FindStream(handle);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool unusable =
      (*stream)->kind == StreamKind::kLegacy && Time().captures().BlocksLegacy((*stream)->device);
  return unusable ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

}  // namespace

CUresult SimStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return Time().captures().Begin(stream, mode);
}

CUresult SimStreamEndCapture(CUstream handle, CUgraph* graph) {
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return Time().captures().End(stream, graph);
}

CUresult SimStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindForStatus(handle, &stream); result != CUDA_SUCCESS) return result;
  *status = StatusOf(*stream);
  return CUDA_SUCCESS;
}

CUresult SimStreamGetCaptureInfoV3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* count) {
  if (status == nullptr || (edges != nullptr && dependencies == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindForStatus(handle, &stream); result != CUDA_SUCCESS) return result;
  *status = StatusOf(*stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  const Capture& capture = *stream->capture;
  std::vector<CUgraphNode>& view = stream->capture_tail_view;
  view.clear();
  for (const uint32_t node : stream->capture_tail) {
    view.push_back(NodeHandle(capture.graph_handle, node));
  }
  if (id != nullptr) *id = capture.id;
  if (graph != nullptr) *graph = capture.graph_handle;
  if (dependencies != nullptr) *dependencies = view.data();
  if (edges != nullptr) *edges = nullptr;  // all edges are of the default kind
  if (count != nullptr) *count = view.size();
  return CUDA_SUCCESS;
}

CUresult SimStreamGetCaptureInfoV2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* count) {
  return SimStreamGetCaptureInfoV3(handle, status, id, graph, dependencies, nullptr, count);
}

CUresult SimStreamGetCaptureInfoV1(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return SimStreamGetCaptureInfoV3(handle, status, id, nullptr, nullptr, nullptr, nullptr);
}

CUresult SimStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* dependencies,
                                            size_t count, unsigned int flags) {
  const bool replace = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES;
  if (!replace && flags != CU_STREAM_ADD_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  if (dependencies == nullptr && count > 0) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const Capture& capture = *stream->capture;
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<uint32_t> tail;
  if (!replace) tail = stream->capture_tail;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t node = NodeIndex(capture.graph_handle, *capture.graph, dependencies[i]);
    if (node == UINT32_MAX) return CUDA_ERROR_INVALID_VALUE;
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
  stream->capture_tail = std::move(tail);
  return CUDA_SUCCESS;
}

CUresult SimStreamUpdateCaptureDependenciesV2(CUstream handle, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* edges, size_t count,
                                              unsigned int flags) {
  if (edges != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // edges of other kinds are not simulated
  return SimStreamUpdateCaptureDependencies(handle, dependencies, count, flags);
}

CUresult SimThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *mode = Time().captures().ExchangeThreadMode(*mode);
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
