// Which driver calls are legal during a stream capture, and what the illegal ones do to it
// (the table of the simulated device's capture rules).
#include <algorithm>
#include <functional>
#include <thread>

#include "tests/simcuda/time_fixture.h"

namespace weir::sim {
namespace {

constexpr CUstreamCaptureMode kModes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                          CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                          CU_STREAM_CAPTURE_MODE_RELAXED};
const char* const kModeNames[] = {"global", "thread-local", "relaxed"};

struct Scene {
  CUstream capturing = nullptr;  // non-blocking
  CUstream other = nullptr;      // non-blocking, idle
  CUevent plain = nullptr;       // recorded on `other` before the capture
  CUevent captured = nullptr;    // recorded on `capturing` inside the capture
  CUdeviceptr memory = 0;
  CUdeviceptr to_free = 0;
  void* host = nullptr;
  CUmemoryPool pool = nullptr;
  CUcontext context = nullptr;
};

enum class Rule {
  kLegal,     // in every mode, and the capture goes on
  kUnsafe,    // "potentially unsafe": depends on modes and threads
  kNever,     // 900 in every mode and from every thread, and the capture is invalidated
  kCaptured,  // 907 likewise
};

struct Row {
  const char* name;
  Rule rule;
  std::function<CUresult(const Scene&)> call;
};

// One call of each row of the table. Calls that become nodes are legal.
const std::vector<Row>& Table() {
  static const std::vector<Row> table = {
      {"cuStreamIsCapturing", Rule::kLegal,
       [](const Scene& s) {
         CUstreamCaptureStatus status;
         return Cuda().cuStreamIsCapturing(s.capturing, &status);
       }},
      {"cuStreamGetCaptureInfo", Rule::kLegal,
       [](const Scene& s) {
         CUstreamCaptureStatus status;
         return Cuda().cuStreamGetCaptureInfo(s.capturing, &status, nullptr, nullptr, nullptr,
                                              nullptr);
       }},
      {"cuEventRecord, capturing stream", Rule::kLegal,
       [](const Scene& s) { return Cuda().cuEventRecord(s.plain, s.capturing); }},
      {"cuEventRecord, other stream", Rule::kLegal,
       [](const Scene& s) { return Cuda().cuEventRecord(s.plain, s.other); }},
      {"cuStreamWaitEvent, other stream", Rule::kLegal,
       [](const Scene& s) { return Cuda().cuStreamWaitEvent(s.other, s.plain, 0); }},
      {"cuMemsetD8Async, capturing stream", Rule::kLegal,
       [](const Scene& s) { return Cuda().cuMemsetD8Async(s.memory, 1, 64, s.capturing); }},
      {"cuMemcpyAsync, capturing stream", Rule::kLegal,
       [](const Scene& s) {
         return Cuda().cuMemcpyAsync(s.memory, s.memory + 64, 64, s.capturing);
       }},
      {"cuMemsetD8Async, other stream", Rule::kLegal,
       [](const Scene& s) { return Cuda().cuMemsetD8Async(s.memory, 1, 64, s.other); }},
      {"kernel launch", Rule::kLegal,
       [](const Scene& s) { return Launch(s.capturing, "kernel", {}); }},
      {"cuLaunchHostFunc", Rule::kLegal,
       [](const Scene& s) {
         return Cuda().cuLaunchHostFunc(
             s.capturing, [](void*) {}, nullptr);
       }},
      {"cuMemCreate and cuMemRelease", Rule::kLegal,
       [](const Scene&) {
         CUmemAllocationProp properties = {};
         properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
         properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
         CUmemGenericAllocationHandle handle = 0;
         const CUresult made = Cuda().cuMemCreate(&handle, 2 << 20, &properties, 0);
         return made != CUDA_SUCCESS ? made : Cuda().cuMemRelease(handle);
       }},
      {"cuMemAddressReserve", Rule::kLegal,
       [](const Scene&) {
         CUdeviceptr base = 0;
         return Cuda().cuMemAddressReserve(&base, 2 << 20, 0, 0, 0);
       }},
      {"cuDeviceGetDefaultMemPool", Rule::kLegal,
       [](const Scene&) {
         CUmemoryPool pool = nullptr;
         return Cuda().cuDeviceGetDefaultMemPool(&pool, 0);
       }},
      {"cuDeviceGetAttribute", Rule::kLegal,
       [](const Scene&) {
         int value = 0;
         return Cuda().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0);
       }},
      {"cuMemAlloc", Rule::kUnsafe,
       [](const Scene&) {
         CUdeviceptr memory = 0;
         return Cuda().cuMemAlloc(&memory, 64);
       }},
      {"cuMemFree", Rule::kUnsafe, [](const Scene& s) { return Cuda().cuMemFree(s.to_free); }},
      {"cuMemHostAlloc", Rule::kUnsafe,
       [](const Scene&) {
         void* host = nullptr;
         return Cuda().cuMemHostAlloc(&host, 64, 0);
       }},
      {"cuMemFreeHost", Rule::kUnsafe, [](const Scene& s) { return Cuda().cuMemFreeHost(s.host); }},
      {"cuMemPoolGetAttribute", Rule::kUnsafe,
       [](const Scene& s) {
         cuuint64_t value = 0;
         return Cuda().cuMemPoolGetAttribute(s.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
       }},
      {"cuMemGetInfo", Rule::kLegal,
       [](const Scene&) {
         size_t free = 0;
         size_t total = 0;
         return Cuda().cuMemGetInfo(&free, &total);
       }},
      {"cuEventCreate", Rule::kLegal,
       [](const Scene&) {
         CUevent event = nullptr;
         return Cuda().cuEventCreate(&event, 0);
       }},
      {"cuStreamCreate", Rule::kUnsafe,
       [](const Scene&) {
         CUstream stream = nullptr;
         return Cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
       }},
      {"cuEventQuery, ordinary event", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuEventQuery(s.plain); }},
      {"cuEventSynchronize, ordinary event", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuEventSynchronize(s.plain); }},
      {"cuStreamQuery, other stream", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuStreamQuery(s.other); }},
      {"cuStreamSynchronize, other stream", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuStreamSynchronize(s.other); }},
      {"cuMemcpy", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuMemcpy(s.memory, s.memory + 64, 64); }},
      {"cuMemsetD8", Rule::kUnsafe,
       [](const Scene& s) { return Cuda().cuMemsetD8(s.memory, 1, 64); }},
      {"cuStreamGetId, capturing stream", Rule::kUnsafe,
       [](const Scene& s) {
         unsigned long long id = 0;
         return Cuda().cuStreamGetId(s.capturing, &id);
       }},
      {"cuStreamGetDevice, capturing stream", Rule::kUnsafe,
       [](const Scene& s) {
         CUdevice device = 0;
         return Cuda().cuStreamGetDevice(s.capturing, &device);
       }},
      {"cuStreamQuery, capturing stream", Rule::kNever,
       [](const Scene& s) { return Cuda().cuStreamQuery(s.capturing); }},
      {"cuStreamSynchronize, capturing stream", Rule::kNever,
       [](const Scene& s) { return Cuda().cuStreamSynchronize(s.capturing); }},
      {"cuCtxSynchronize", Rule::kNever, [](const Scene&) { return Cuda().cuCtxSynchronize(); }},
      {"cuStreamAddCallback", Rule::kNever,
       [](const Scene& s) {
         return Cuda().cuStreamAddCallback(
             s.capturing, [](CUstream, CUresult, void*) {}, nullptr, 0);
       }},
      {"cuCtxRecordEvent", Rule::kNever,
       [](const Scene& s) { return Cuda().cuCtxRecordEvent(s.context, s.plain); }},
      {"cuCtxWaitEvent", Rule::kNever,
       [](const Scene& s) { return Cuda().cuCtxWaitEvent(s.context, s.plain); }},
      {"cuEventQuery, captured event", Rule::kCaptured,
       [](const Scene& s) { return Cuda().cuEventQuery(s.captured); }},
      {"cuEventSynchronize, captured event", Rule::kCaptured,
       [](const Scene& s) { return Cuda().cuEventSynchronize(s.captured); }},
  };
  return table;
}

bool Refused(Rule rule, CUstreamCaptureMode capture, CUstreamCaptureMode thread, bool same_thread) {
  if (rule == Rule::kLegal) return false;
  if (rule != Rule::kUnsafe) return true;
  if (thread == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (same_thread) return capture != CU_STREAM_CAPTURE_MODE_RELAXED;
  return thread == CU_STREAM_CAPTURE_MODE_GLOBAL && capture == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

TEST_CASE("each call is legal or refused in a capture as the table says", "[simcuda][capture]") {
  for (const Row& row : Table()) {
    for (const CUstreamCaptureMode capture : kModes) {
      for (const CUstreamCaptureMode mode : kModes) {
        for (const bool same_thread : {true, false}) {
          INFO(row.name << ", " << kModeNames[capture] << " capture, "
                        << (same_thread ? "same" : "other") << " thread, " << kModeNames[mode]);
          const Machine machine;
          Scene scene;
          scene.context = Machine::UseDevice(0);
          scene.capturing = NewStream();
          scene.other = NewStream();
          scene.plain = NewEvent();
          scene.captured = NewEvent();
          scene.memory = NewMemory();
          scene.to_free = NewMemory();
          REQUIRE(Cuda().cuMemHostAlloc(&scene.host, 64, 0) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuDeviceGetDefaultMemPool(&scene.pool, 0) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuEventRecord(scene.plain, scene.other) == CUDA_SUCCESS);
          REQUIRE(Cuda().cuCtxSynchronize() == CUDA_SUCCESS);
          Begin(scene.capturing, capture);
          REQUIRE(Cuda().cuEventRecord(scene.captured, scene.capturing) == CUDA_SUCCESS);

          CUresult got = CUDA_ERROR_UNKNOWN;
          CUstreamCaptureMode before = mode;
          const auto call = [&] {
            CUstreamCaptureMode swap = mode;
            Cuda().cuThreadExchangeStreamCaptureMode(&swap);
            before = swap;
            got = row.call(scene);
            Cuda().cuThreadExchangeStreamCaptureMode(&swap);
          };
          if (same_thread) {
            call();
          } else {
            std::thread([&] {
              Cuda().cuCtxSetCurrent(scene.context);
              call();
            }).join();
          }
          CHECK(before == CU_STREAM_CAPTURE_MODE_GLOBAL);

          const bool refused = Refused(row.rule, capture, mode, same_thread);
          const CUresult expected = !refused ? CUDA_SUCCESS
                                    : row.rule == Rule::kCaptured
                                        ? CUDA_ERROR_CAPTURED_EVENT
                                        : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
          CHECK(got == expected);
          CHECK(Status(scene.capturing) ==
                (refused ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE));
          CUgraph graph = nullptr;
          const CUresult end = Cuda().cuStreamEndCapture(scene.capturing, &graph);
          CHECK(end == (refused ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS));
          CHECK((graph == nullptr) == refused);
          CHECK(Status(scene.capturing) == CU_STREAM_CAPTURE_STATUS_NONE);
        }
      }
    }
  }
}

TEST_CASE("the legacy stream is unusable while a blocking stream captures", "[simcuda][capture]") {
  const Machine machine;
  const CUdeviceptr memory = NewMemory();
  const CUevent event = NewEvent();
  const std::vector<std::function<CUresult()>> calls = {
      [&] { return Cuda().cuMemsetD8Async(memory, 1, 64, nullptr); },
      [&] { return Cuda().cuMemsetD8(memory, 1, 64); },
      [&] { return Cuda().cuMemcpy(memory, memory + 64, 64); },
      [&] { return Cuda().cuEventRecord(event, CU_STREAM_LEGACY); },
      [&] { return Cuda().cuStreamSynchronize(nullptr); },
      [&] { return Launch(nullptr, "kernel", {}); },
  };
  for (const std::function<CUresult()>& call : calls) {
    const CUstream stream = NewStream(CU_STREAM_DEFAULT);
    Begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CHECK(Cuda().cuStreamIsCapturing(nullptr, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK(Status(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);  // asking is harmless
    CHECK(call() == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK(Status(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CUgraph graph = nullptr;
    CHECK(Cuda().cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(Status(nullptr) == CU_STREAM_CAPTURE_STATUS_NONE);
  }
}

}  // namespace
}  // namespace weir::sim
