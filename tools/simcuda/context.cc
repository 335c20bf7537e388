// Entry points: primary contexts and each thread's stack of current contexts. Other contexts do not
// exist (unsupported_entries.cc).
#include "tools/simcuda/entry.h"
#include "tools/simcuda/simulator.h"

namespace weir::sim {
namespace {

constexpr unsigned int kContextFlags = CU_CTX_FLAGS_MASK;

// The device of a live context.
CUresult LiveContext(CUcontext context, int* device) {
  Simulator& sim = Simulator::Get();
  *device = sim.DeviceOf(context);
  const bool live = *device >= 0 && sim.device(*device).active();
  return live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult Synchronize(int device) {
  Simulator& sim = Simulator::Get();
  if (const CUresult capture = sim.timeline().CheckContextCapture(device);
      capture != CUDA_SUCCESS) {
    return capture;
  }
  const CUresult result = sim.timeline().DrainContext(device);
  if (result == CUDA_SUCCESS) sim.OnSynchronized(device);
  return result;
}

}  // namespace

CUresult SimDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  Simulator& sim = Simulator::Get();
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  ++sim.device(device).retained;
  *context = sim.ContextOf(device);
  return CUDA_SUCCESS;
}

CUresult SimDevicePrimaryCtxRelease(CUdevice device) {
  Simulator& sim = Simulator::Get();
  if (!sim.IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  Device& released = sim.device(device);
  if (released.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--released.retained == 0) sim.ResetContext(device);
  return CUDA_SUCCESS;
}

CUresult SimDevicePrimaryCtxReset(CUdevice device) {
  Simulator& sim = Simulator::Get();
  if (!sim.IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  sim.ResetContext(device);
  return CUDA_SUCCESS;
}

CUresult SimDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  Simulator& sim = Simulator::Get();
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = sim.device(device).context_flags;
  *active = sim.device(device).active() ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult SimDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  Simulator& sim = Simulator::Get();
  if ((flags & ~kContextFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  sim.device(device).context_flags = flags;
  return CUDA_SUCCESS;
}

CUresult SimCtxGetCurrent(CUcontext* context) {
  const Simulator& sim = Simulator::Get();
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int device = sim.current_device();
  *context = device < 0 ? nullptr : sim.ContextOf(device);
  return CUDA_SUCCESS;
}

// Replaces the top of the stack; null pops it.
CUresult SimCtxSetCurrent(CUcontext context) {
  ContextStack& stack = Simulator::Get().context_stack();
  int device = -1;
  if (context != nullptr) {
    if (const CUresult result = LiveContext(context, &device); result != CUDA_SUCCESS) {
      return result;
    }
  }
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(device);
  return CUDA_SUCCESS;
}

CUresult SimCtxPushCurrent(CUcontext context) {
  int device = -1;
  if (const CUresult result = LiveContext(context, &device); result != CUDA_SUCCESS) return result;
  const bool pushed = Simulator::Get().context_stack().push_back(device);
  return pushed ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult SimCtxPopCurrent(CUcontext* context) {
  Simulator& sim = Simulator::Get();
  ContextStack& stack = sim.context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = sim.ContextOf(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult SimCtxGetDevice(CUdevice* device) { return SimCtxGetDeviceOf(device, nullptr); }

CUresult SimCtxGetDeviceOf(CUdevice* device, CUcontext context) {
  const Simulator& sim = Simulator::Get();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int found = context == nullptr ? sim.current_device() : sim.DeviceOf(context);
  if (found < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *device = found;
  return CUDA_SUCCESS;
}

CUresult SimCtxSynchronize() { return SimCtxSynchronizeOf(nullptr); }

CUresult SimCtxSynchronizeOf(CUcontext context) {
  int device = Simulator::Get().current_device();
  if (context == nullptr) {
    if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  } else if (const CUresult result = LiveContext(context, &device); result != CUDA_SUCCESS) {
    return result;
  }
  return Synchronize(device);
}

CUresult SimCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  Simulator& sim = Simulator::Get();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  int peer_device = -1;
  if (const CUresult result = LiveContext(peer, &peer_device); result != CUDA_SUCCESS) {
    return result;
  }
  if (peer_device == sim.current_device()) return CUDA_ERROR_INVALID_DEVICE;
  return sim.space().SetPeerAccess(sim.current_device(), peer_device, true)
             ? CUDA_SUCCESS
             : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult SimCtxDisablePeerAccess(CUcontext peer) {
  Simulator& sim = Simulator::Get();
  int peer_device = -1;
  if (const CUresult result = LiveContext(peer, &peer_device); result != CUDA_SUCCESS) {
    return result;
  }
  return sim.space().SetPeerAccess(sim.current_device(), peer_device, false)
             ? CUDA_SUCCESS
             : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace weir::sim
