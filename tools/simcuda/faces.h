// What the shared libraries that look like CUDA (libcuda_face.cc, runtime/) need of libsimcuda.so
// besides the driver functions.
#ifndef WEIR_TOOLS_SIMCUDA_FACES_H_
#define WEIR_TOOLS_SIMCUDA_FACES_H_

#include "tools/simcuda/simcuda.h"

extern "C" {
// The function of an entry's ABI (entry_points.inc). Neither counted nor locked, and starts
// nothing, so that it may be called while libraries are being loaded. Null if there is none.
WEIR_SIM_API void* simcuda_find_entry(const char* name, int version, int per_thread);
// Whether cuInit fails from now on, because the machine has a real driver.
WEIR_SIM_API void simcuda_refuse(int refuse);
// What faces do when they are loaded. Refuses on a machine with a real driver, unless
// WEIR_SIMCUDA_FORCE=1, so that a program never runs on the simulated device by accident; and has
// the devices made as WEIR_CONF says (sim_memory, sim_devices) when they are first used. If it is
// wrong, the driver does not initialize and one line on stderr says why.
WEIR_SIM_API void simcuda_attach_face(void);
// How many devices there are or will be, without starting anything.
WEIR_SIM_API int simcuda_planned_devices(void);
// The identifier that a device has (cuDeviceGetUuid): 16 bytes.
WEIR_SIM_API void simcuda_uuid(int device, unsigned char* bytes);
// Whether this is a child of a process that had initialized CUDA: every call fails.
WEIR_SIM_API int simcuda_in_forked_child(void);
// The device of the calling thread's current context, -1 if none is current. Neither counted nor
// locked: what the real runtime reads without a call of the driver.
WEIR_SIM_API int simcuda_current_device(void);
// Changes at each Reset, which invalidates all handles and addresses.
WEIR_SIM_API uint64_t simcuda_generation(void);
}

#endif  // WEIR_TOOLS_SIMCUDA_FACES_H_
