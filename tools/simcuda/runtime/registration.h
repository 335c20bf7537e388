// What a program's device code registers when it is loaded: kernels, by the address of their host
// stub, and variables, by the address of their host shadow. There is no device code behind them.
#ifndef WEIR_TOOLS_SIMCUDA_RUNTIME_REGISTRATION_H_
#define WEIR_TOOLS_SIMCUDA_RUNTIME_REGISTRATION_H_

#include <cuda_runtime_api.h>

#include <string>

#include "tools/simcuda/kernel_limits.h"

namespace weir::sim::runtime {

struct Kernel {
  std::string name;  // mangled
  KernelSettings settings{};
};

// False if no such kernel is registered.
bool FindKernel(const void* host_stub, Kernel* kernel);
// False if no such kernel is registered.
bool SetKernel(const void* host_stub, const Kernel& kernel);

// The address and size of a variable on the current device, which gets memory for it at first use.
cudaError_t FindVariable(const void* host_shadow, void** address, size_t* bytes);
// The memory of a device's variables is gone.
void ForgetVariables(int device);

}  // namespace weir::sim::runtime

#endif  // WEIR_TOOLS_SIMCUDA_RUNTIME_REGISTRATION_H_
