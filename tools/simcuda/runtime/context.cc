// The current device. As in the real runtime, every call works on the context that is current in
// its thread; a thread without one gets the primary context of its device, which the face holds.
#include <map>
#include <mutex>

#include "tools/simcuda/runtime/face.h"
#include "tools/simcuda/runtime/registration.h"

namespace weir::sim::runtime {
namespace {

// What one Reset of the simulator makes void. Guarded by g_lock.
struct Held {
  uint64_t generation = 0;
  bool initialized = false;
  std::map<int, CUcontext> contexts;  // held, by device
};
std::mutex g_lock;
Held g_held;

struct ThreadDevice {
  uint64_t generation = 0;
  int device = 0;
};
thread_local ThreadDevice t_device;

// With g_lock held.
Held& Current() {
  const uint64_t generation = simcuda_generation();
  if (g_held.generation != generation) {
    g_held = {};
    g_held.generation = generation;
  }
  return g_held;
}

__attribute__((constructor)) void Attach() { simcuda_attach_face(); }

}  // namespace

CUresult Initialize() {
  if (simcuda_in_forked_child() != 0) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard<std::mutex> hold(g_lock);
  Held& held = Current();
  if (held.initialized) return CUDA_SUCCESS;
  const CUresult result = Driver().cuInit(0);
  held.initialized = result == CUDA_SUCCESS;
  return result;
}

int CurrentDevice() {
  const int current = simcuda_current_device();
  if (current >= 0) return current;
  return t_device.generation == simcuda_generation() ? t_device.device : 0;
}

CUresult PrimaryContext(int device, CUcontext* context) {
  if (const CUresult result = Initialize(); result != CUDA_SUCCESS) return result;
  const std::lock_guard<std::mutex> hold(g_lock);
  std::map<int, CUcontext>& contexts = Current().contexts;
  if (const auto held = contexts.find(device); held != contexts.end()) {
    *context = held->second;
    return CUDA_SUCCESS;
  }
  const CUresult result = Driver().cuDevicePrimaryCtxRetain(context, device);
  if (result == CUDA_SUCCESS) contexts[device] = *context;
  return result;
}

CUresult UseDevice(int device) {
  if (simcuda_in_forked_child() != 0) return CUDA_ERROR_NOT_INITIALIZED;
  if (simcuda_current_device() != device) {
    CUcontext context = nullptr;
    CUresult result = PrimaryContext(device, &context);
    if (result == CUDA_SUCCESS) result = Driver().cuCtxSetCurrent(context);
    if (result != CUDA_SUCCESS) return result;
  }
  t_device = {simcuda_generation(), device};
  return CUDA_SUCCESS;
}

}  // namespace weir::sim::runtime

using namespace weir::sim::runtime;

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return Finish(cudaErrorInvalidValue);
  *device = CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return Finish(UseDevice(device)); }

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags) {
  if (flags > cudaInitDeviceFlagsAreValid) return Finish(cudaErrorInvalidValue);
  return WithDriver([=](const DriverTable& driver) {
    CUcontext context = nullptr;
    CUresult result = CUDA_SUCCESS;
    if (flags != 0) result = driver.cuDevicePrimaryCtxSetFlags(device, device_flags);
    return result == CUDA_SUCCESS ? PrimaryContext(device, &context) : result;
  });
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return Finish(cudaErrorInvalidValue);
  *count = 0;
  return WithDriver([=](const DriverTable& driver) { return driver.cuDeviceGetCount(count); });
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  // They have the driver's values.
  return WithDriver([=](const DriverTable& driver) {
    return driver.cuDevicePrimaryCtxSetFlags(CurrentDevice(), flags);
  });
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  return WithDriver([=](const DriverTable& driver) {
    int active = 0;
    return driver.cuDevicePrimaryCtxGetState(CurrentDevice(), flags, &active);
  });
}

cudaError_t cudaDeviceSynchronize() {
  return InContext([](const DriverTable& driver) { return driver.cuCtxSynchronize(); });
}

cudaError_t cudaDeviceReset() {
  return WithDriver([](const DriverTable& driver) {
    const int device = CurrentDevice();
    ForgetVariables(device);
    return driver.cuDevicePrimaryCtxReset(device);
  });
}

}  // extern "C"
