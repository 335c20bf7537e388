// Errors: from the driver's codes to the runtime's, their names, and each thread's last error.
//
// The last error of a thread is the last one that any call in it returned. cudaGetLastError takes
// it away, unless the context was ended by it (an illegal address, ...): then it stays until the
// device is reset.
#include "tools/simcuda/runtime/face.h"

namespace weir::sim::runtime {
namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
#define WEIR_ERROR(name, text) \
  { name, #name, text }
// Those that the simulated driver or the face may return.
constexpr ErrorText kErrors[] = {
    WEIR_ERROR(cudaSuccess, "no error"),
    WEIR_ERROR(cudaErrorInvalidValue, "invalid argument"),
    WEIR_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    WEIR_ERROR(cudaErrorInitializationError, "initialization error"),
    WEIR_ERROR(cudaErrorCudartUnloading, "driver shutting down"),
    WEIR_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    WEIR_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    WEIR_ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    WEIR_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    WEIR_ERROR(cudaErrorMissingConfiguration, "launch without a configuration"),
    WEIR_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    WEIR_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    WEIR_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    WEIR_ERROR(cudaErrorDeviceUninitialized, "invalid device context"),
    WEIR_ERROR(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed"),
    WEIR_ERROR(cudaErrorUnmapBufferObjectFailed, "unmapping of buffer object failed"),
    WEIR_ERROR(cudaErrorAlreadyMapped, "resource already mapped"),
    WEIR_ERROR(cudaErrorNotMapped, "resource not mapped"),
    WEIR_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    WEIR_ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported"),
    WEIR_ERROR(cudaErrorNvlinkUncorrectable, "uncorrectable NVLink error"),
    WEIR_ERROR(cudaErrorOperatingSystem, "OS call failed or operation not supported"),
    WEIR_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    WEIR_ERROR(cudaErrorIllegalState, "resource in an illegal state"),
    WEIR_ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    WEIR_ERROR(cudaErrorNotReady, "device not ready"),
    WEIR_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    WEIR_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    WEIR_ERROR(cudaErrorPeerAccessNotEnabled, "peer access is not enabled"),
    WEIR_ERROR(cudaErrorContextIsDestroyed, "context is destroyed"),
    WEIR_ERROR(cudaErrorAssert, "device-side assert triggered"),
    WEIR_ERROR(cudaErrorHostMemoryAlreadyRegistered, "memory is already registered"),
    WEIR_ERROR(cudaErrorHostMemoryNotRegistered, "memory is not registered"),
    WEIR_ERROR(cudaErrorHardwareStackError, "hardware stack error"),
    WEIR_ERROR(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    WEIR_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    WEIR_ERROR(cudaErrorInvalidAddressSpace, "operation not supported on this address space"),
    WEIR_ERROR(cudaErrorInvalidPc, "invalid program counter"),
    WEIR_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    WEIR_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    WEIR_ERROR(cudaErrorNotSupported, "operation not supported"),
    WEIR_ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    WEIR_ERROR(cudaErrorSystemDriverMismatch, "display driver and CUDA driver differ"),
    WEIR_ERROR(cudaErrorStreamCaptureUnsupported, "not permitted while a stream captures"),
    WEIR_ERROR(cudaErrorStreamCaptureInvalidated, "capture was invalidated by an earlier error"),
    WEIR_ERROR(cudaErrorStreamCaptureMerge, "would merge two captures"),
    WEIR_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not begun on this stream"),
    WEIR_ERROR(cudaErrorStreamCaptureUnjoined, "capture has a fork that was not joined"),
    WEIR_ERROR(cudaErrorStreamCaptureIsolation, "dependency crosses the capture's border"),
    WEIR_ERROR(cudaErrorStreamCaptureImplicit, "implicit dependency on a capturing stream"),
    WEIR_ERROR(cudaErrorCapturedEvent, "event was last recorded in a capture"),
    WEIR_ERROR(cudaErrorStreamCaptureWrongThread, "capture was begun by another thread"),
    WEIR_ERROR(cudaErrorTimeout, "wait timed out"),
    WEIR_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef WEIR_ERROR

const ErrorText* FindError(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return &known;
  }
  return nullptr;
}

// The two sets of codes agree; a sample of them, from each group.
static_assert(int{cudaErrorMemoryAllocation} == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(int{cudaErrorInitializationError} == CUDA_ERROR_NOT_INITIALIZED);
static_assert(int{cudaErrorCudartUnloading} == CUDA_ERROR_DEINITIALIZED);
static_assert(int{cudaErrorInvalidDevice} == CUDA_ERROR_INVALID_DEVICE);
static_assert(int{cudaErrorDeviceUninitialized} == CUDA_ERROR_INVALID_CONTEXT);
static_assert(int{cudaErrorInvalidResourceHandle} == CUDA_ERROR_INVALID_HANDLE);
static_assert(int{cudaErrorSymbolNotFound} == CUDA_ERROR_NOT_FOUND);
static_assert(int{cudaErrorNotReady} == CUDA_ERROR_NOT_READY);
static_assert(int{cudaErrorIllegalAddress} == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(int{cudaErrorLaunchFailure} == CUDA_ERROR_LAUNCH_FAILED);
static_assert(int{cudaErrorNotSupported} == CUDA_ERROR_NOT_SUPPORTED);
static_assert(int{cudaErrorStreamCaptureWrongThread} == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
static_assert(int{cudaErrorUnknown} == CUDA_ERROR_UNKNOWN);

thread_local cudaError_t t_last_error = cudaSuccess;

// Whether the current context still answers every call with this error.
bool ContextEndedBy(cudaError_t error) {
  if (error == cudaSuccess || simcuda_current_device() < 0) return false;
  return Translate(Driver().cuCtxGetStreamPriorityRange(nullptr, nullptr)) == error;
}

}  // namespace

cudaError_t Translate(CUresult result) {
  const auto error = static_cast<cudaError_t>(result);
  return result == CUDA_SUCCESS || FindError(error) != nullptr ? error : cudaErrorUnknown;
}

cudaError_t Finish(cudaError_t error) {
  if (error != cudaSuccess) t_last_error = error;
  return error;
}

}  // namespace weir::sim::runtime

using namespace weir::sim::runtime;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = t_last_error;
  if (!ContextEndedBy(error)) t_last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return t_last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* known = FindError(error);
  return known == nullptr ? "unrecognized error code" : known->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* known = FindError(error);
  return known == nullptr ? "unrecognized error code" : known->text;
}

}  // extern "C"
