// RelaxedCaptureScope: for its lifetime the calling thread may make driver calls that are unsafe in
// a stream capture, without invalidating anybody's capture.
//
// One goes around each slow driver call, and around no callback: a callback must run in the mode of
// its caller. There is no way to ask for a thread's mode, so the exchange is made unconditionally;
// outside a capture it has no effect.
#ifndef WEIR_DRIVER_RELAXED_CAPTURE_SCOPE_H_
#define WEIR_DRIVER_RELAXED_CAPTURE_SCOPE_H_

#include "allocator/driver/driver_table.h"

namespace weir {

class RelaxedCaptureScope {
 public:
  explicit RelaxedCaptureScope(const DriverTable& entries) : entries_(entries) {
    exchanged_ = entries_.ThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
  }
  ~RelaxedCaptureScope() {
    // Fails only when the driver has gone away meanwhile; then there is no mode to restore.
    if (exchanged_) (void)entries_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
  RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

 private:
  const DriverTable& entries_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // the caller's mode, once exchanged
  bool exchanged_;
};

}  // namespace weir

#endif  // WEIR_DRIVER_RELAXED_CAPTURE_SCOPE_H_
