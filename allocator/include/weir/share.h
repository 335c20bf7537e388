/* SPDX-License-Identifier: MIT
 *
 * Weir's C API, memory that other devices and other processes use. What weir/weir.h says of all
 * functions holds here too.
 */
#ifndef WEIR_SHARE_H_
#define WEIR_SHARE_H_

#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lets `peer` read and write all memory that Weir has on `device`, now and later, and what it
 * imports there. Both devices must be of this process and able to reach each other, else
 * WEIR_ERROR_INVALID_ARGUMENT. Again, or with device == peer: nothing to do. It starts both
 * devices, and opens memory of cuMemAlloc to the peer as well, also that of others
 * (cuCtxEnablePeerAccess). There is no way back. */
WEIR_API int weir_enable_peer_access(int device, int peer);

/* What weir_export has found. The exported range consists of whole physical handles, so it is
 * usually larger than the block; whoever imports it can read and write all of it. */
typedef struct weir_export_result {
  uint64_t offset;     /* of the pointer in the range */
  uint64_t bytes;      /* of the range: the sum of all handle_bytes */
  size_t count;        /* handles */
  uint64_t unused_[4]; /* 0 */
} weir_export_t;

/* Exports the memory under the block that contains ptr to other processes: one file descriptor for
 * each physical handle, in the order of addresses, with its bytes. The descriptors are the
 * caller's, who sends them (SCM_RIGHTS, pidfd_getfd) and closes them; an importer needs them only
 * during weir_import. The memory stays where it is (as weir_pin_range) until weir_unexport.
 *
 * The arrays have space for `capacity` handles. If that is too few nothing is exported, the result
 * is WEIR_ERROR_INVALID_ARGUMENT, and *result says what is needed, as after success; so capacity 0
 * asks (the arrays may be NULL then). WEIR_ERROR_NOT_OWNED: no block in use contains ptr.
 * WEIR_ERROR_CONFIGURATION: memory that is not mapped (mode:passthrough, vmm:off, pools with a
 * source or without splitting) or that this system cannot export; cudaIpcGetMemHandle serves there.
 *
 * The contents are shared at once. That both sides do not write at the same time, and that the
 * block is not freed while others use it, is for the program to see to. */
WEIR_API int weir_export(const void* ptr, uint64_t* handle_bytes, int* fds, size_t capacity,
                         weir_export_t* result);

/* Takes one weir_export back: ptr points into the block it was called for, which may have been
 * freed meanwhile. The descriptors, and what was imported, stay valid: others hold the pages, which
 * may then serve other blocks here. WEIR_ERROR_INVALID_ARGUMENT if there is none. */
WEIR_API int weir_unexport(const void* ptr);

/* Maps handles that weir_export, or another allocator, has exported, side by side at a new address
 * of `device`, readable and writable there and on its peers. The descriptors stay the caller's and
 * may be closed afterwards. The memory is not Weir's: weir_free and the statistics do not know it.
 * Frees of blocks in the exporting process do not wait for work here. */
WEIR_API int weir_import(int device, const int* fds, const uint64_t* handle_bytes, size_t count,
                         void** ptr);

/* Unmaps what weir_import has mapped at ptr, after waiting for all work of the device. It fails
 * during a stream capture, and then nothing changes. */
WEIR_API int weir_close_import(void* ptr);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_SHARE_H_ */
