// Entry points of streams and host functions. Which captures they collide with is decided here, as
// it depends on the stream (driver.md section 9).
#include <algorithm>

#include "tools/simcuda/time_entries.h"

namespace weir::sim {
namespace {

constexpr int kGreatestPriority = -5;
constexpr int kLeastPriority = 0;

// Queries of a stream's properties: refused while it captures, unless the thread is relaxed.
CUresult FindForProperty(CUstream handle, std::shared_ptr<Stream>* stream) {
  *stream = FindStream(handle);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return (*stream)->capture == nullptr ? CUDA_SUCCESS
                                       : Time().captures().Check(CaptureClass::kUnsafe);
}

// Queries and waits for a stream's completion.
CUresult FindForCompletion(CUstream handle, std::shared_ptr<Stream>* stream) {
  *stream = FindStream(handle);
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = RefuseWhileCapturing(**stream); result != CUDA_SUCCESS) return result;
  if (const CUresult result = Time().CheckLegacy(**stream); result != CUDA_SUCCESS) return result;
  return Time().captures().Check(CaptureClass::kUnsafe);
}

}  // namespace

CUresult SimStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  const StreamKind kind =
      flags == CU_STREAM_NON_BLOCKING ? StreamKind::kNonBlocking : StreamKind::kBlocking;
  *stream = Time().CreateStream(CurrentDevice(), kind,
                                std::clamp(priority, kGreatestPriority, kLeastPriority));
  return CUDA_SUCCESS;
}

CUresult SimStreamCreate(CUstream* stream, unsigned int flags) {
  return SimStreamCreateWithPriority(stream, flags, kLeastPriority);
}

CUresult SimCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult SimStreamDestroy(CUstream handle) {
  const bool implicit =
      handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
  const std::shared_ptr<Stream> stream = implicit ? nullptr : FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = RefuseWhileCapturing(*stream); result != CUDA_SUCCESS) return result;
  Time().DestroyStream(stream);
  return CUDA_SUCCESS;
}

CUresult SimStreamQuery(CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindForCompletion(handle, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  return Time().Query(Time().StreamMark(stream), stream->device);
}

CUresult SimStreamSynchronize(CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindForCompletion(handle, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  return WaitAsSynchronization(Time().StreamMark(stream), stream->device);
}

CUresult SimStreamGetId(CUstream handle, unsigned long long* id) {
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindForProperty(handle, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  *id = stream->id;
  return CUDA_SUCCESS;
}

CUresult SimStreamGetDevice(CUstream handle, CUdevice* device) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindForProperty(handle, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  *device = stream->device;
  return CUDA_SUCCESS;
}

CUresult SimStreamGetCtx(CUstream handle, CUcontext* context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindForProperty(handle, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  *context = Simulator::Get().ContextOf(stream->device);
  return CUDA_SUCCESS;
}

CUresult SimStreamGetCtxV2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
  if (green != nullptr) *green = nullptr;  // no stream belongs to a green context
  return SimStreamGetCtx(handle, context);
}

CUresult SimStreamGetPriority(CUstream handle, int* priority) {
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindForProperty(handle, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult SimStreamGetFlags(CUstream handle, unsigned int* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = FindForProperty(handle, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  *flags = stream->kind == StreamKind::kNonBlocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
  return CUDA_SUCCESS;
}

CUresult SimLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Operation operation;
  operation.kind = OperationKind::kHostFunction;
  operation.label = Time().Label("cuLaunchHostFunc");
  operation.body = [function, data] {
    function(data);
    return CUDA_SUCCESS;
  };
  return Time().Submit(stream, std::move(operation));
}

CUresult SimStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data,
                              unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  TimelineState& time = Time();
  if (const CUresult result = RefuseWhileCapturing(*stream); result != CUDA_SUCCESS) return result;
  if (const CUresult result = time.CheckLegacy(*stream); result != CUDA_SUCCESS) return result;
  Operation operation;
  operation.kind = OperationKind::kHostFunction;
  operation.label = time.Label("cuStreamAddCallback");
  operation.body = [callback, handle, data, &time, device = stream->device] {
    callback(handle, time.sticky(device), data);
    return CUDA_SUCCESS;
  };
  time.Enqueue(stream, std::move(operation), {}, /*even_after_errors=*/true);
  time.RunAhead();
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
