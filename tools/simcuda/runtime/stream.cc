// Streams and what the host does in their order.
#include <memory>

#include "tools/simcuda/runtime/face.h"

using namespace weir::sim::runtime;

namespace {

struct Callback {
  cudaStreamCallback_t function;
  void* data;
};

void CUDA_CB RunCallback(CUstream stream, CUresult status, void* data) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(data));
  callback->function(stream, Translate(status), callback->data);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuStreamCreateWithPriority(stream, flags, priority);
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return InContext([=](const DriverTable& driver) { return driver.cuStreamDestroy(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return InContext([=](const DriverTable& driver) { return driver.cuStreamQuery(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return InContext([=](const DriverTable& driver) { return driver.cuStreamSynchronize(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuStreamWaitEvent(stream, event, flags); });
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return InContext([=](const DriverTable& driver) { return driver.cuStreamGetId(stream, id); });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuStreamGetDevice(stream, device); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuStreamGetPriority(stream, priority); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuStreamGetFlags(stream, flags); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuLaunchHostFunc(stream, function, data); });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data,
                                  unsigned int flags) {
  if (function == nullptr) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable& driver) {
    auto callback = std::make_unique<Callback>(Callback{function, data});
    const CUresult result = driver.cuStreamAddCallback(stream, &RunCallback, callback.get(), flags);
    if (result == CUDA_SUCCESS) callback.release();  // it deletes itself
    return result;
  });
}

}  // extern "C"
