// Timeline: the half of the simulator that knows time. It owns streams, events, captures, graphs,
// the executor and the happens-before checker, and is owned by the Simulator (one per process).
//
// Locks: one lock for the whole simulator (a std::mutex in the Simulator, handed over at
// construction). Every member function is called with it held unless it says otherwise. Functions
// marked (drops the lock) release it while host functions run or while worker threads are awaited,
// so whatever the caller looked up before must be looked up again.
#ifndef WEIR_TOOLS_SIMCUDA_TIME_H_
#define WEIR_TOOLS_SIMCUDA_TIME_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tools/simcuda/operation.h"
#include "tools/simcuda/simcuda.h"

namespace weir::sim {

// What an entry point means to stream captures (driver.md section 9).
enum class CaptureClass {
  kSafe,    // legal at any time
  kUnsafe,  // "potentially unsafe": refused with 900, and the captures it collides with are
            // invalidated, unless the calling thread is in relaxed mode
};

class TimelineState;  // time_state.h: for the files of this half only

class Timeline {
 public:
  // Both pointers must outlive the timeline. The lock need not be held.
  Timeline(std::mutex* lock, AddressTranslator* translator);
  ~Timeline();  // without the lock: joins worker threads
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Forgets all streams, events, graphs and reports. Queued work is dropped, not run. (drops the
  // lock)
  void Reset(const Config& config);

  // ---- For the entry wrapper --------------------------------------------------------------------
  // Whether the calling thread is inside a host function of a stream: every driver call must answer
  // CUDA_ERROR_NOT_PERMITTED then. Needs no lock, so ask before taking it.
  static bool InHostFunction();
  // Calls a host function that belongs to no stream. Without the lock.
  static void CallHostFunction(absl::FunctionRef<void()> function);
  // CUDA_SUCCESS, or CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED after invalidating the captures that the
  // call collides with. Costs one comparison while nothing captures.
  CUresult CheckCapture(CaptureClass what);
  // For calls that concern a whole context: 900 after invalidating every capture with a stream of
  // the device, in relaxed mode too. CUDA_SUCCESS if there is none.
  CUresult CheckContextCapture(int device);
  // CUDA_SUCCESS, or the error that broke the device's context.
  CUresult StickyError(int device) const;
  // Breaks the context (the first error stays); text goes to the reports.
  void SetStickyError(int device, CUresult error, const std::string& text);
  // The context is torn down and made anew (primary context reset): queued work is dropped, streams
  // and events of the device become invalid handles, the sticky error goes.
  void ResetDevice(int device);

  // ---- Work -------------------------------------------------------------------------------------
  // Queues the operation on the stream (NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD included),
  // or makes it a node if the stream captures. `device` is the current context's; a stream made for
  // another device runs the operation there. Errors: INVALID_HANDLE for an unknown stream, 901 for
  // an invalidated capture, 906 for the legacy stream while a blocking stream captures. May run
  // some queued operations. (drops the lock, if host functions are queued)
  CUresult Submit(int device, CUstream stream, Operation op);
  // Whether the stream is part of an active capture; false for unknown streams.
  bool IsCapturing(int device, CUstream stream) const;
  // Waits for all work submitted so far to the stream, or to every stream of the device: what
  // cuStreamSynchronize, cuCtxSynchronize and cuMemFree do. CUDA_ERROR_TIMEOUT in a deadlock, or
  // the sticky error. Says nothing about captures: check before. (drops the lock)
  CUresult DrainStream(int device, CUstream stream);
  CUresult DrainContext(int device);

  // ---- Memory, for the checker ------------------------------------------------------------------
  // The physical object is gone: its access history is forgotten.
  void OnStoreReleased(uint64_t store);
  // Call before an address range is unmapped or freed by the host at once (cuMemUnmap, not
  // cuMemFreeAsync), with what it maps. Reports device work that used these bytes through these
  // addresses and that the host has not learned to be complete. `entry` names the call in reports.
  void CheckHostRelease(std::string_view entry, CUdeviceptr address, uint64_t bytes,
                        const std::vector<PhysicalSpan>& spans);
  void AddReport(Report report);

  // For the other files of this half.
  TimelineState& state() { return *state_; }

 private:
  std::mutex* const lock_;
  AddressTranslator* const translator_;
  std::unique_ptr<TimelineState> state_;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_TIME_H_
