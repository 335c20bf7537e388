#include "tools/gpu_check/capture_calls.h"

namespace weir::gpu_check {
namespace {

constexpr uint64_t kBytes = 64 * 1024;

using S = CaptureScene;

CUresult NotThere() { return CUDA_ERROR_NOT_FOUND; }

// Calls an entry point that may be absent.
template <typename Function, typename... Args>
CUresult Try(Function function, Args... args) {
  return function == nullptr ? NotThere() : function(args...);
}

CUresult MapEmpty(S& s) {
  if (!s.mapping) return NotThere();
  const CUresult result = s.gpu.api().MemMap(s.mapping->empty.base(), s.gpu.Granularity(), 0,
                                             s.mapping->loose.get(), 0);
  s.made.mapped_empty = result == CUDA_SUCCESS;
  return result;
}

CUresult UnmapSpare(S& s) {
  if (!s.mapping) return NotThere();
  const CUresult result = s.gpu.api().MemUnmap(s.mapping->spare.base(), s.gpu.Granularity());
  if (result == CUDA_SUCCESS) s.mapping->spare.ForgetMappings();
  return result;
}

CUresult CreateHandle(S& s) {
  if (!s.mapping) return NotThere();
  const CUmemAllocationProp properties = s.gpu.Properties();
  return s.gpu.api().MemCreate(&s.made.handle, s.gpu.Granularity(), &properties, 0);
}

CUresult ReleaseLoose(S& s) {
  if (!s.mapping) return NotThere();
  const CUresult result = s.gpu.api().MemRelease(s.mapping->loose.get());
  if (result == CUDA_SUCCESS) s.mapping->loose.Forget();
  return result;
}

CUresult FreeClassic(S& s) {
  const CUresult result = s.gpu.api().MemFree(s.to_free.get());
  if (result == CUDA_SUCCESS) s.to_free.Forget();
  return result;
}

CUresult FreePinned(S& s) {
  const CUresult result = s.gpu.api().MemFreeHost(s.pinned_to_free);
  if (result == CUDA_SUCCESS) s.pinned_to_free = nullptr;
  return result;
}

CUresult PoolUsed(S& s) {
  CUmemoryPool pool = nullptr;
  const CUresult result = Try(s.gpu.api().DeviceGetDefaultMemPool, &pool, s.gpu.device());
  if (result != CUDA_SUCCESS) return result;
  cuuint64_t used = 0;
  return Try(s.gpu.api().MemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
             static_cast<void*>(&used));
}

CUresult IsCapturing(S& s, CUstream stream) {
  CUstreamCaptureStatus status;
  return s.gpu.api().StreamIsCapturing(stream, &status);
}

CUresult FreeReserved(S& s) {
  if (!s.mapping) return NotThere();
  CUdeviceptr at = 0;
  CUresult result = s.gpu.api().MemAddressReserve(&at, s.gpu.Granularity(), 0, 0, 0);
  if (result == CUDA_SUCCESS) result = s.gpu.api().MemAddressFree(at, s.gpu.Granularity());
  return result;
}

CUresult MemInfo(S& s) {
  size_t free = 0;
  size_t total = 0;
  return s.gpu.api().MemGetInfo(&free, &total);
}

CUresult MemoryType(S& s) {
  unsigned type = 0;
  return Try(s.gpu.api().PointerGetAttribute, static_cast<void*>(&type),
             CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s.classic.get());
}

CUresult DefaultPool(S& s) {
  CUmemoryPool pool = nullptr;
  return Try(s.gpu.api().DeviceGetDefaultMemPool, &pool, s.gpu.device());
}

CUresult StreamContext(S& s) {
  CUcontext context = nullptr;
  return s.gpu.api().StreamGetCtx(s.other.get(), &context);
}

CUresult StreamId(S& s) {
  unsigned long long id = 0;
  return Try(s.gpu.api().StreamGetId, s.other.get(), &id);
}

CUresult RegisterPageable(S& s) {
  const CUresult result =
      Try(s.gpu.api().MemHostRegister, static_cast<void*>(s.pageable.data()), size_t{kBytes}, 0U);
  s.made.registered_pageable = result == CUDA_SUCCESS;
  return result;
}

CUresult PushAndPopContext(S& s) {
  CUcontext popped = nullptr;
  const CUresult result = s.gpu.api().CtxPushCurrent(s.gpu.context());
  return result == CUDA_SUCCESS ? s.gpu.api().CtxPopCurrent(&popped) : result;
}

CUresult MakeAndDestroyEvent(S& s) {
  CUevent event = nullptr;
  const CUresult result = s.gpu.api().EventCreate(&event, CU_EVENT_DISABLE_TIMING);
  return result == CUDA_SUCCESS ? s.gpu.api().EventDestroy(event) : result;
}

CUresult AskGranularity(S& s) {
  if (!s.mapping) return NotThere();
  const CUmemAllocationProp properties = s.gpu.Properties();
  size_t granularity = 0;
  return s.gpu.api().MemGetAllocationGranularity(&granularity, &properties,
                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

// The event becomes a captured one first.
CUresult QueryCapturedEvent(S& s) {
  const CUresult result = s.gpu.api().EventRecord(s.fresh.get(), s.captured.get());
  return result == CUDA_SUCCESS ? s.gpu.api().EventQuery(s.fresh.get()) : result;
}

CUresult ManyAttributes(S& s) {
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  unsigned type = 0;
  void* values[] = {&type};
  return Try(s.gpu.api().PointerGetAttributes, 1U, attributes, values, s.classic.get());
}

CUresult StreamDevice(S& s) {
  CUdevice device = 0;
  return Try(s.gpu.api().StreamGetDevice, s.other.get(), &device);
}

CUresult CopyOn(S& s, CUstream stream) {
  return s.gpu.api().MemcpyAsync(s.classic.get(), s.pinned.address(), 16, stream);
}

}  // namespace

CaptureScene::Mapping::Mapping(const Gpu& g)
    : handle(g, g.Granularity()),
      loose(g, g.Granularity()),
      range(g, g.Granularity()),
      empty(g, g.Granularity()),
      spare(g, g.Granularity()) {
  range.Map(0, g.Granularity(), handle.get());
  spare.Map(0, g.Granularity(), handle.get());
}

CaptureScene::CaptureScene(const Gpu& g, unsigned stream_flags)
    : gpu(g),
      captured(g, stream_flags),
      other(g),
      event(g),
      fresh(g),
      classic(g, kBytes),
      to_free(g, kBytes),
      pinned(g, kBytes),
      pageable(kBytes) {
  Must(Need(g.api().MemHostAlloc, "cuMemHostAlloc")(&pinned_to_free, kBytes, 0), "cuMemHostAlloc");
  if (g.caps().vmm.value != 0) mapping = std::make_unique<Mapping>(g);
  Must(g.api().EventRecord(event.get(), other.get()), "cuEventRecord");
  g.Synchronize();
}

CaptureScene::~CaptureScene() {
  const Api& api = gpu.api();
  if (made.classic != 0) (void)api.MemFree(made.classic);
  if (made.registered_pageable) (void)api.MemHostUnregister(pageable.data());
  if (made.pinned != nullptr) (void)api.MemFreeHost(made.pinned);
  if (pinned_to_free != nullptr) (void)api.MemFreeHost(pinned_to_free);
  if (made.pooled != 0) (void)api.MemFreeAsync(made.pooled, other.get());
  if (made.mapped_empty) (void)api.MemUnmap(mapping->empty.base(), gpu.Granularity());
  if (made.reserved != 0) (void)api.MemAddressFree(made.reserved, gpu.Granularity());
  if (made.handle != 0) (void)api.MemRelease(made.handle);
  if (made.stream != nullptr) (void)api.StreamDestroy(made.stream);
}

const std::vector<CaptureCall>& CaptureCalls() {
  using enum InCapture;
  static const std::vector<CaptureCall> calls = {
      // Weir's slow paths: allocator/driver/entry_points.inc.
      {"cuMemAddressReserve", kLegal, true,
       [](S& s) {
         return s.mapping
                    ? s.gpu.api().MemAddressReserve(&s.made.reserved, s.gpu.Granularity(), 0, 0, 0)
                    : NotThere();
       }},
      {"cuMemAddressFree", kLegal, true, FreeReserved},
      {"cuMemCreate", kLegal, true, CreateHandle},
      {"cuMemRelease", kLegal, true, ReleaseLoose},
      {"cuMemMap", kLegal, true, MapEmpty},
      {"cuMemSetAccess", kLegal, true,
       [](S& s) {
         return s.mapping
                    ? ScopedRange::SetAccess(s.gpu, s.mapping->range.base(), s.gpu.Granularity())
                    : NotThere();
       }},
      {"cuMemUnmap", kLegal, true, UnmapSpare},
      {"cuMemAlloc", kRefused, true,
       [](S& s) { return s.gpu.api().MemAlloc(&s.made.classic, kBytes); }},
      {"cuMemGetInfo", kOpen, true, MemInfo},
      {"cuEventRecord (another stream)", kLegal, true,
       [](S& s) { return s.gpu.api().EventRecord(s.event.get(), s.other.get()); }},
      {"cuEventQuery", kRefused, true, [](S& s) { return s.gpu.api().EventQuery(s.event.get()); }},
      {"cuEventSynchronize", kRefused, true,
       [](S& s) { return s.gpu.api().EventSynchronize(s.event.get()); }},
      {"cuStreamWaitEvent (another stream)", kLegal, true,
       [](S& s) { return s.gpu.api().StreamWaitEvent(s.other.get(), s.event.get(), 0); }},
      {"cuStreamGetCtx", kOpen, true, StreamContext},
      {"cuStreamIsCapturing", kLegal, true, [](S& s) { return IsCapturing(s, s.captured.get()); }},
      {"cuMemcpyAsync (another stream)", kLegal, true,
       [](S& s) { return CopyOn(s, s.other.get()); }},
      {"cuMemsetD8Async (another stream)", kLegal, true,
       [](S& s) { return s.gpu.api().MemsetD8Async(s.classic.get(), 0, 16, s.other.get()); }},
      {"cuMemGetAllocationGranularity", kLegal, true, AskGranularity},
      {"cuCtxPushCurrent, cuCtxPopCurrent", kLegal, true, PushAndPopContext},
      {"cuEventCreate, cuEventDestroy", kOpen, true, MakeAndDestroyEvent},
      {"cuMemcpyAsync (captured)", kLegal, true, [](S& s) { return CopyOn(s, s.captured.get()); }},
      {"cuMemsetD8Async (captured)", kLegal, true,
       [](S& s) { return s.gpu.api().MemsetD8Async(s.classic.get(), 0, 16, s.captured.get()); }},
      // What Weir does not call while a capture is under way.
      {"cuMemFree", kRefused, false, FreeClassic},
      {"cuCtxSynchronize", kRefused, false, [](S& s) { return s.gpu.api().CtxSynchronize(); }},
      {"cuCtxRecordEvent", kRefused, false,
       [](S& s) { return Try(s.gpu.api().CtxRecordEvent, s.gpu.context(), s.event.get()); }},
      {"cuStreamSynchronize (captured)", kRefused, false,
       [](S& s) { return s.gpu.api().StreamSynchronize(s.captured.get()); }},
      {"cuStreamSynchronize (another stream)", kRefused, false,
       [](S& s) { return s.gpu.api().StreamSynchronize(s.other.get()); }},
      {"cuStreamWaitEvent (captured, outer event)", kRefused, false,
       [](S& s) { return s.gpu.api().StreamWaitEvent(s.captured.get(), s.event.get(), 0); }},
      {"cuEventQuery (captured event)", kRefused, false, QueryCapturedEvent},
      {"cuStreamIsCapturing (legacy, blocking captures)", kRefused, false,
       [](S& s) { return IsCapturing(s, nullptr); }, true},
      {"cuMemcpyAsync (legacy, blocking captures)", kRefused, false,
       [](S& s) { return CopyOn(s, nullptr); }, true},
      // What users call beside Weir.
      {"cuMemHostAlloc", kRefused, false,
       [](S& s) { return Try(s.gpu.api().MemHostAlloc, &s.made.pinned, kBytes, 0U); }},
      {"cuMemAllocManaged", kRefused, false,
       [](S& s) {
         return Try(s.gpu.api().MemAllocManaged, &s.made.classic, kBytes,
                    static_cast<unsigned>(CU_MEM_ATTACH_GLOBAL));
       }},
      {"cuMemHostRegister", kRefused, false, RegisterPageable},
      {"cuLaunchHostFunc (captured)", kLegal, false,
       [](S& s) {
         return Try(
             s.gpu.api().LaunchHostFunc, s.captured.get(), [](void*) {},
             static_cast<void*>(nullptr));
       }},
      {"cuMemAllocAsync (captured)", kOpen, false,
       [](S& s) {
         CUdeviceptr node = 0;  // belongs to the graph
         return Try(s.gpu.api().MemAllocAsync, &node, kBytes, s.captured.get());
       }},
      {"cuMemFreeHost", kOpen, false, FreePinned},
      {"cuMemAllocAsync (another stream)", kOpen, false,
       [](S& s) { return Try(s.gpu.api().MemAllocAsync, &s.made.pooled, kBytes, s.other.get()); }},
      {"cuMemPoolGetAttribute", kRefused, false, PoolUsed},
      {"cuDeviceGetDefaultMemPool", kLegal, false, DefaultPool},
      {"cuStreamCreate", kOpen, false,
       [](S& s) {
         return Try(s.gpu.api().StreamCreate, &s.made.stream,
                    static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
       }},
      {"cuStreamQuery (another stream)", kOpen, false,
       [](S& s) { return Try(s.gpu.api().StreamQuery, s.other.get()); }},
      {"cuStreamGetId", kOpen, false, StreamId},
      {"cuStreamGetDevice", kOpen, false, StreamDevice},
      {"cuPointerGetAttributes", kOpen, false, ManyAttributes},
      {"cuPointerGetAttribute", kOpen, false, MemoryType},
  };
  return calls;
}

}  // namespace weir::gpu_check
