// The driver calls whose legality during a stream capture is examined, one row each.
#ifndef WEIR_TOOLS_GPU_CHECK_CAPTURE_CALLS_H_
#define WEIR_TOOLS_GPU_CHECK_CAPTURE_CALLS_H_

#include <memory>
#include <optional>
#include <vector>

#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/resources.h"

namespace weir::gpu_check {

// Made anew before each capture: what the calls work on. What a call used up it forgets; what it
// made it leaves in `made`, to be freed when the capture is over.
struct CaptureScene {
  CaptureScene(const Gpu& g, unsigned stream_flags);
  ~CaptureScene();

  const Gpu& gpu;
  ScopedStream captured;
  ScopedStream other;
  ScopedEvent event;  // recorded outside the capture, complete
  ScopedEvent fresh;  // never recorded
  ScopedDeviceMemory classic;
  ScopedDeviceMemory to_free;
  ScopedPinned pinned;
  void* pinned_to_free = nullptr;
  std::vector<uint8_t> pageable;
  // Only with memory mapping: a mapped granule, one that is not, one in `spare` that is.
  struct Mapping {
    explicit Mapping(const Gpu& gpu);
    ScopedHandle handle;
    ScopedHandle loose;
    ScopedRange range;
    ScopedRange empty;
    ScopedRange spare;
  };
  std::unique_ptr<Mapping> mapping;

  struct Made {
    CUdeviceptr classic = 0;
    void* pinned = nullptr;
    CUdeviceptr pooled = 0;
    CUdeviceptr reserved = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUstream stream = nullptr;
    bool registered_pageable = false;
    bool mapped_empty = false;
  } made;
};

enum class InCapture { kLegal, kRefused, kOpen };  // what Weir's table says when not relaxed

struct CaptureCall {
  const char* name;
  // In a global or thread-local capture of the calling thread, without a relaxed scope.
  InCapture expected;
  // Weir makes the call on a slow path inside a RelaxedCaptureScope, capture or not.
  bool weir_makes_it;
  CUresult (*make)(CaptureScene& scene);
  // Of these the captured stream is an ordinary (blocking) one.
  bool blocking_stream = false;
};

const std::vector<CaptureCall>& CaptureCalls();

}  // namespace weir::gpu_check

#endif  // WEIR_TOOLS_GPU_CHECK_CAPTURE_CALLS_H_
