// What the entry points of the time half share.
#ifndef WEIR_TOOLS_SIMCUDA_TIME_ENTRIES_H_
#define WEIR_TOOLS_SIMCUDA_TIME_ENTRIES_H_

#include <cuda.h>

#include <memory>

#include "tools/simcuda/entry.h"
#include "tools/simcuda/simulator.h"
#include "tools/simcuda/time_state.h"

namespace weir::sim {

inline TimelineState& Time() { return Simulator::Get().timeline().state(); }
inline int CurrentDevice() { return Simulator::Get().current_device(); }
// The stream as the calling thread names it; null if it names none.
inline std::shared_ptr<Stream> FindStream(CUstream handle) {
  return Time().FindStream(CurrentDevice(), handle);
}
// Waits, and lets the pools give memory back as after every synchronization.
inline CUresult WaitAsSynchronization(const Mark& mark, int device) {
  const CUresult result = Time().Wait(mark, device);
  if (result == CUDA_SUCCESS) Simulator::Get().OnSynchronized(device);
  return result;
}
// For calls that a capturing stream forbids in every mode: 900, or 901 if it was invalidated
// before.
inline CUresult RefuseWhileCapturing(const Stream& stream) {
  if (stream.capture == nullptr) return CUDA_SUCCESS;
  if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stream.capture->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_TIME_ENTRIES_H_
