// Modules of device code and their functions. There is no device code: a module is loaded from an
// image that says it has none (kSimulatedImage), and has a function of every name.
//
// Under the simulator's lock.
#ifndef WEIR_TOOLS_SIMCUDA_MODULES_H_
#define WEIR_TOOLS_SIMCUDA_MODULES_H_

#include <cuda.h>

#include <map>
#include <string>

#include "tools/simcuda/handle_table.h"
#include "tools/simcuda/kernel_limits.h"

namespace weir::sim {

// What the images begin with that can be loaded. The stand-in for NVRTC makes them
// (allocator/python/weir/_standin_functions.py).
inline constexpr char kSimulatedImage[] = "weir simulated kernel image";

struct Module {
  int device;
  std::map<std::string, CUfunction> functions;  // those that were asked for
};

struct ModuleFunction {
  std::string name;
  CUmodule module;
  int device;
  KernelSettings settings;
};

struct Modules {
  HandleTable<Module, CUmodule, 0x57> modules;
  HandleTable<ModuleFunction, CUfunction, 0x58> functions;

  // The device's context ends, and everything that was loaded into it.
  void ForgetDevice(int device) {
    modules.RemoveIf([device](const Module& module) { return module.device == device; });
    functions.RemoveIf(
        [device](const ModuleFunction& function) { return function.device == device; });
  }
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_MODULES_H_
