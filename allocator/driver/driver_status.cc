#include "allocator/driver/driver_status.h"

#include <cuda.h>

#include <algorithm>
#include <iterator>

namespace weir {
namespace {

struct Code {
  int result;
  DriverErrorClass error_class;
  const char* name;
};

// Sorted by result. Codes of other parts of CUDA (modules, graphics, profilers) cannot come back
// from the calls that Weir makes, except as the report of earlier asynchronous work.
constexpr Code kCodes[] = {
#define WEIR_CODE(name, error_class) \
  { CUDA_##name, DriverErrorClass::error_class, "CUDA_" #name }
    WEIR_CODE(SUCCESS, kNone),
    WEIR_CODE(ERROR_INVALID_VALUE, kMisuse),
    WEIR_CODE(ERROR_OUT_OF_MEMORY, kOutOfMemory),
    // Weir initializes before all else, so this is a forked child: CUDA stays unusable in it.
    WEIR_CODE(ERROR_NOT_INITIALIZED, kSticky),
    WEIR_CODE(ERROR_DEINITIALIZED, kShuttingDown),
    WEIR_CODE(ERROR_STUB_LIBRARY, kNotSupported),
    WEIR_CODE(ERROR_CALL_REQUIRES_NEWER_DRIVER, kNotSupported),
    WEIR_CODE(ERROR_DEVICE_UNAVAILABLE, kNotSupported),
    WEIR_CODE(ERROR_NO_DEVICE, kNotSupported),
    WEIR_CODE(ERROR_INVALID_DEVICE, kMisuse),
    WEIR_CODE(ERROR_INVALID_CONTEXT, kMisuse),
    WEIR_CODE(ERROR_MAP_FAILED, kOther),
    WEIR_CODE(ERROR_UNMAP_FAILED, kOther),
    WEIR_CODE(ERROR_ALREADY_MAPPED, kMisuse),
    WEIR_CODE(ERROR_NOT_MAPPED, kMisuse),
    WEIR_CODE(ERROR_ECC_UNCORRECTABLE, kSticky),
    WEIR_CODE(ERROR_NVLINK_UNCORRECTABLE, kSticky),
    WEIR_CODE(ERROR_CONTAINED, kSticky),
    WEIR_CODE(ERROR_OPERATING_SYSTEM, kOther),
    WEIR_CODE(ERROR_INVALID_HANDLE, kMisuse),
    WEIR_CODE(ERROR_ILLEGAL_STATE, kMisuse),
    WEIR_CODE(ERROR_NOT_FOUND, kMisuse),
    WEIR_CODE(ERROR_NOT_READY, kNotReady),
    WEIR_CODE(ERROR_ILLEGAL_ADDRESS, kSticky),
    WEIR_CODE(ERROR_LAUNCH_TIMEOUT, kSticky),
    WEIR_CODE(ERROR_PEER_ACCESS_ALREADY_ENABLED, kMisuse),
    WEIR_CODE(ERROR_PEER_ACCESS_NOT_ENABLED, kMisuse),
    WEIR_CODE(ERROR_CONTEXT_IS_DESTROYED, kSticky),
    WEIR_CODE(ERROR_ASSERT, kSticky),
    WEIR_CODE(ERROR_HOST_MEMORY_ALREADY_REGISTERED, kMisuse),
    WEIR_CODE(ERROR_HOST_MEMORY_NOT_REGISTERED, kMisuse),
    WEIR_CODE(ERROR_HARDWARE_STACK_ERROR, kSticky),
    WEIR_CODE(ERROR_ILLEGAL_INSTRUCTION, kSticky),
    WEIR_CODE(ERROR_MISALIGNED_ADDRESS, kSticky),
    WEIR_CODE(ERROR_INVALID_ADDRESS_SPACE, kSticky),
    WEIR_CODE(ERROR_INVALID_PC, kSticky),
    WEIR_CODE(ERROR_LAUNCH_FAILED, kSticky),
    WEIR_CODE(ERROR_TENSOR_MEMORY_LEAK, kSticky),
    WEIR_CODE(ERROR_NOT_PERMITTED, kNotSupported),
    WEIR_CODE(ERROR_NOT_SUPPORTED, kNotSupported),
    WEIR_CODE(ERROR_SYSTEM_NOT_READY, kNotSupported),
    WEIR_CODE(ERROR_SYSTEM_DRIVER_MISMATCH, kNotSupported),
    WEIR_CODE(ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, kNotSupported),
    WEIR_CODE(ERROR_STREAM_CAPTURE_UNSUPPORTED, kCaptureViolation),
    WEIR_CODE(ERROR_STREAM_CAPTURE_INVALIDATED, kCaptureViolation),
    WEIR_CODE(ERROR_STREAM_CAPTURE_MERGE, kCaptureViolation),
    WEIR_CODE(ERROR_STREAM_CAPTURE_UNMATCHED, kCaptureViolation),
    WEIR_CODE(ERROR_STREAM_CAPTURE_UNJOINED, kCaptureViolation),
    WEIR_CODE(ERROR_STREAM_CAPTURE_ISOLATION, kCaptureViolation),
    WEIR_CODE(ERROR_STREAM_CAPTURE_IMPLICIT, kCaptureViolation),
    WEIR_CODE(ERROR_CAPTURED_EVENT, kCaptureViolation),
    WEIR_CODE(ERROR_STREAM_CAPTURE_WRONG_THREAD, kCaptureViolation),
    WEIR_CODE(ERROR_TIMEOUT, kOther),
    WEIR_CODE(ERROR_EXTERNAL_DEVICE, kSticky),
    WEIR_CODE(ERROR_UNKNOWN, kOther),
#undef WEIR_CODE
};
static_assert(std::is_sorted(std::begin(kCodes), std::end(kCodes),
                             [](const Code& a, const Code& b) { return a.result < b.result; }));

const Code* FindCode(int result) {
  const auto* found =
      std::lower_bound(std::begin(kCodes), std::end(kCodes), result,
                       [](const Code& code, int value) { return code.result < value; });
  return found != std::end(kCodes) && found->result == result ? found : nullptr;
}

}  // namespace

DriverErrorClass DriverStatus::error_class() const {
  const Code* code = FindCode(result_);
  return code == nullptr ? DriverErrorClass::kOther : code->error_class;
}

std::string DriverStatus::ToString() const {
  const Code* code = FindCode(result_);
  const char* name =
      code == nullptr ? "an error that this version of Weir does not know" : code->name;
  return std::string(entry_) + (*entry_ == '\0' ? "" : ": ") + name + " (" +
         std::to_string(result_) + ")";
}

}  // namespace weir
