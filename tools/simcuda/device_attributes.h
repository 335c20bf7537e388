// What the simulated device says about itself.
#ifndef WEIR_TOOLS_SIMCUDA_DEVICE_ATTRIBUTES_H_
#define WEIR_TOOLS_SIMCUDA_DEVICE_ATTRIBUTES_H_

#include <cuda.h>

#include "tools/simcuda/simcuda.h"

namespace weir::sim {

// False for an attribute that the simulated driver does not know; `value` is unchanged then.
bool FindDeviceAttribute(const Config& config, CUdevice_attribute attribute, int ordinal,
                         int* value);

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_DEVICE_ATTRIBUTES_H_
