// Events.
#include "tools/simcuda/runtime/face.h"

using namespace weir::sim::runtime;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return InContext([=](const DriverTable& driver) { return driver.cuEventCreate(event, flags); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return InContext([=](const DriverTable& driver) { return driver.cuEventDestroy(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return InContext([=](const DriverTable& driver) { return driver.cuEventRecord(event, stream); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuEventRecordWithFlags(event, stream, flags);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return InContext([=](const DriverTable& driver) { return driver.cuEventQuery(event); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return InContext([=](const DriverTable& driver) { return driver.cuEventSynchronize(event); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuEventElapsedTime(milliseconds, start, end);
  });
}

}  // extern "C"
