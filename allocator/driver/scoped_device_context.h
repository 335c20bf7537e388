// ScopedDeviceContext: makes a context current for its lifetime and then gives the caller's back.
//
// Push and pop only if another context (or none) is current: in most programs the device's primary
// context is, because the CUDA runtime made it so.
#ifndef WEIR_DRIVER_SCOPED_DEVICE_CONTEXT_H_
#define WEIR_DRIVER_SCOPED_DEVICE_CONTEXT_H_

#include "allocator/driver/driver_status.h"
#include "allocator/driver/driver_table.h"

namespace weir {

class ScopedDeviceContext {
 public:
  ScopedDeviceContext(const DriverTable& entries, CUcontext context) : entries_(entries) {
    CUcontext current = nullptr;
    status_ = DriverStatus(entries_.CtxGetCurrent(&current), "cuCtxGetCurrent");
    if (!status_.ok() || current == context) return;
    status_ = DriverStatus(entries_.CtxPushCurrent(context), "cuCtxPushCurrent");
    pushed_ = status_.ok();
  }
  ~ScopedDeviceContext() {
    CUcontext popped;
    if (pushed_) (void)entries_.CtxPopCurrent(&popped);
  }
  ScopedDeviceContext(const ScopedDeviceContext&) = delete;
  ScopedDeviceContext& operator=(const ScopedDeviceContext&) = delete;

  // Not ok: the context is not current, and no call may be made.
  const DriverStatus& status() const { return status_; }

 private:
  const DriverTable& entries_;
  DriverStatus status_;
  bool pushed_ = false;
};

}  // namespace weir

#endif  // WEIR_DRIVER_SCOPED_DEVICE_CONTEXT_H_
