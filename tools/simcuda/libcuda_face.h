// What libcuda.so.1 (libcuda_face.cc) needs of libsimcuda.so besides the driver functions.
#ifndef WEIR_TOOLS_SIMCUDA_LIBCUDA_FACE_H_
#define WEIR_TOOLS_SIMCUDA_LIBCUDA_FACE_H_

#include "tools/simcuda/simcuda.h"

extern "C" {
// The function of an entry's ABI (entry_points.inc). Neither counted nor locked, and starts
// nothing, so that it may be called while libraries are being loaded. Null if there is none.
WEIR_SIM_API void* simcuda_find_entry(const char* name, int version, int per_thread);
// Whether cuInit fails from now on, because the machine has a real driver.
WEIR_SIM_API void simcuda_refuse(int refuse);
}

#endif  // WEIR_TOOLS_SIMCUDA_LIBCUDA_FACE_H_
