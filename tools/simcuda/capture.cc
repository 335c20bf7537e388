#include "tools/simcuda/capture.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace weir::sim {
namespace {

// A thread's mode counts for the capture set that it was set for, not for those after a Reset.
struct ThreadMode {
  uint64_t generation = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};
thread_local ThreadMode thread_mode;

std::atomic<uint64_t> last_generation{0};
std::atomic<uint64_t> last_capture_id{0};  // not reset: ids are unique over the process's life

}  // namespace

CaptureSet::CaptureSet(GraphTable* graphs) : graphs_(graphs), generation_(++last_generation) {}

CUstreamCaptureMode CaptureSet::ExchangeThreadMode(CUstreamCaptureMode mode) {
  const CUstreamCaptureMode before = CurrentThreadMode();
  thread_mode = {generation_, mode};
  return before;
}

CUstreamCaptureMode CaptureSet::CurrentThreadMode() const {
  return thread_mode.generation == generation_ ? thread_mode.mode : CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult CaptureSet::Check(CaptureClass what) {
  if (captures_.empty() || what == CaptureClass::kSafe) return CUDA_SUCCESS;
  const CUstreamCaptureMode mode = CurrentThreadMode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const std::shared_ptr<Capture>& capture : captures_) {
    const bool mine = capture->owner == std::this_thread::get_id();
    const bool collides = mine ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                               : mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                     capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!collides) continue;
    capture->invalidated = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

bool CaptureSet::InvalidateWhere(absl::FunctionRef<bool(const Stream&)> matches) {
  bool any = false;
  for (const std::shared_ptr<Capture>& capture : captures_) {
    for (const std::shared_ptr<Stream>& stream : capture->streams) {
      if (!matches(*stream)) continue;
      capture->invalidated = true;
      any = true;
    }
  }
  return any;
}

bool CaptureSet::BlocksLegacy(int device) const {
  for (const std::shared_ptr<Capture>& capture : captures_) {
    for (const std::shared_ptr<Stream>& stream : capture->streams) {
      if (stream->device == device && stream->kind == StreamKind::kBlocking) return true;
    }
  }
  return false;
}

bool CaptureSet::InvalidateBlockingLegacy(int device) {
  if (captures_.empty()) return false;
  return InvalidateWhere([device](const Stream& stream) {
    return stream.device == device && stream.kind == StreamKind::kBlocking;
  });
}

bool CaptureSet::InvalidateDevice(int device) {
  return InvalidateWhere([device](const Stream& stream) { return stream.device == device; });
}

CUresult CaptureSet::Begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode) {
  if (stream->kind == StreamKind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = ++last_capture_id;
  capture->mode = mode;
  capture->owner = std::this_thread::get_id();
  capture->graph = std::make_shared<Graph>();
  capture->graph->capturing = true;
  capture->graph_handle = graphs_->Add(capture->graph);
  capture->streams.push_back(stream);
  stream->capture = capture;
  stream->capture_tail.clear();
  captures_.push_back(std::move(capture));
  return CUDA_SUCCESS;
}

CUresult CaptureSet::End(const std::shared_ptr<Stream>& stream, CUgraph* graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->streams.front() != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->owner != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = CUDA_SUCCESS;
  if (capture->invalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else {
    const std::vector<bool> joined = capture->graph->WithAncestors(stream->capture_tail);
    for (const std::shared_ptr<Stream>& fork : capture->streams) {
      for (const uint32_t node : fork->capture_tail) {
        if (!joined[node]) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
      }
    }
  }
  if (result == CUDA_SUCCESS) {
    *graph = capture->graph_handle;
  } else {
    graphs_->Remove(capture->graph_handle);
  }
  Finish(*capture);
  return result;
}

void CaptureSet::Finish(Capture& capture) {
  capture.ended = true;
  capture.graph->capturing = false;
  for (const std::shared_ptr<Stream>& stream : capture.streams) {
    stream->capture_tail.clear();
    stream->capture_tail_view.clear();
    stream->capture = nullptr;
  }
  capture.streams.clear();
  captures_.erase(
      std::find_if(captures_.begin(), captures_.end(),
                   [&capture](const auto& candidate) { return candidate.get() == &capture; }));
}

CUresult CaptureSet::Join(const std::shared_ptr<Stream>& stream,
                          const std::shared_ptr<Capture>& capture,
                          const std::vector<uint32_t>& tail) {
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture == nullptr) {
    stream->capture = capture;
    stream->capture_tail = tail;
    capture->streams.push_back(stream);
    return CUDA_SUCCESS;
  }
  if (stream->capture != capture) {
    stream->capture->invalidated = true;
    capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  for (const uint32_t node : tail) {
    std::vector<uint32_t>& own = stream->capture_tail;
    if (std::find(own.begin(), own.end(), node) == own.end()) own.push_back(node);
  }
  return CUDA_SUCCESS;
}

CUresult CaptureSet::AddNode(Stream& stream, Operation operation) {
  Capture& capture = *stream.capture;
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<GraphNode>& nodes = capture.graph->nodes;
  nodes.push_back({std::move(operation), stream.device, std::move(stream.capture_tail)});
  stream.capture_tail = {static_cast<uint32_t>(nodes.size() - 1)};
  return CUDA_SUCCESS;
}

void CaptureSet::DropDevice(int device) {
  InvalidateDevice(device);
  const std::vector<std::shared_ptr<Capture>> captures = captures_;
  for (const std::shared_ptr<Capture>& capture : captures) {
    if (!capture->invalidated || capture->streams.front()->device != device) continue;
    graphs_->Remove(capture->graph_handle);
    Finish(*capture);
  }
}

}  // namespace weir::sim
