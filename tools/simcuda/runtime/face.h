// What all functions of the runtime face begin and end with: the current device and its context,
// the translation of errors, and each thread's last error.
//
// A function of the face is one expression: InContext(...) for what needs a context,
// WithDriver(...) for what only needs the driver to be initialized. The simulated driver checks the
// arguments. Everything is thread-safe.
#ifndef WEIR_TOOLS_SIMCUDA_RUNTIME_FACE_H_
#define WEIR_TOOLS_SIMCUDA_RUNTIME_FACE_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "tools/simcuda/faces.h"
#include "tools/simcuda/runtime/driver_table.h"

namespace weir::sim::runtime {

// ---- Errors (error.cc) --------------------------------------------------------------------------

cudaError_t Translate(CUresult result);
// Remembers an error as the calling thread's last one, and returns it. cudaErrorNotReady too.
cudaError_t Finish(cudaError_t error);
inline cudaError_t Finish(CUresult result) { return Finish(Translate(result)); }

// ---- Devices and contexts (context.cc) ----------------------------------------------------------

// Initializes the driver, once per Reset of the simulator.
CUresult Initialize();
// The calling thread's device: that of its current context, or what it chose last, 0 at first.
int CurrentDevice();
// Chooses the calling thread's device and makes its primary context current, which the face holds
// from then on.
CUresult UseDevice(int device);
// The primary context of a device, held by the face.
CUresult PrimaryContext(int device, CUcontext* context);

inline CUresult UseContext() {
  return simcuda_current_device() >= 0 ? CUDA_SUCCESS : UseDevice(CurrentDevice());
}

// ---- Calls --------------------------------------------------------------------------------------

// `call` takes the DriverTable and returns CUresult or cudaError_t.
template <typename Function>
cudaError_t InContext(Function call) {
  const CUresult context = UseContext();
  return context == CUDA_SUCCESS ? Finish(call(Driver())) : Finish(context);
}
template <typename Function>
cudaError_t WithDriver(Function call) {
  const CUresult ready = Initialize();
  return ready == CUDA_SUCCESS ? Finish(call(Driver())) : Finish(ready);
}

inline CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// For driver functions that write an address where the runtime's write a pointer.
inline CUdeviceptr* AddressOut(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

}  // namespace weir::sim::runtime

#endif  // WEIR_TOOLS_SIMCUDA_RUNTIME_FACE_H_
