// DriverStatus: what a driver call answered, sorted by what the allocator can do about it.
#ifndef WEIR_DRIVER_DRIVER_STATUS_H_
#define WEIR_DRIVER_DRIVER_STATUS_H_

#include <cstdint>
#include <string>

namespace weir {

enum class DriverErrorClass : uint8_t {
  kNone,              // success
  kOutOfMemory,       // recoverable: free something and try again
  kNotReady,          // not an error: work is still under way
  kMisuse,            // a wrong argument: a bug of ours or of the caller
  kCaptureViolation,  // the call is not legal while a stream is captured
  kNotSupported,      // this device, driver or container cannot do it: use another way
  kSticky,            // the context is broken, every later call fails: stop trying
  kShuttingDown,      // the driver is gone (process exit): leak quietly
  kOther,
};

class [[nodiscard]] DriverStatus {
 public:
  DriverStatus() = default;
  // `entry` is the driver function's name and lives for ever.
  DriverStatus(int result, const char* entry) : result_(result), entry_(entry) {}

  // For a call that was not made because a stream capture forbids it.
  static DriverStatus CaptureForbids(const char* entry) {
    constexpr int kStreamCaptureUnsupported = 900;  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    return DriverStatus(kStreamCaptureUnsupported, entry);
  }

  bool ok() const { return result_ == 0; }
  int result() const { return result_; }  // the CUresult
  const char* entry() const { return entry_; }
  DriverErrorClass error_class() const;
  bool is_out_of_memory() const { return error_class() == DriverErrorClass::kOutOfMemory; }
  // An optional mechanism does not work here, whatever the capability probe said.
  bool is_mechanism_failure() const {
    const DriverErrorClass c = error_class();
    return c == DriverErrorClass::kNotSupported || c == DriverErrorClass::kMisuse ||
           c == DriverErrorClass::kOther;
  }
  // The driver will answer nothing else any more.
  bool is_fatal() const {
    const DriverErrorClass c = error_class();
    return c == DriverErrorClass::kSticky || c == DriverErrorClass::kShuttingDown;
  }

  // For example "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2)".
  std::string ToString() const;

  void IgnoreError() const {}

 private:
  int result_ = 0;
  const char* entry_ = "";
};

}  // namespace weir

#endif  // WEIR_DRIVER_DRIVER_STATUS_H_
