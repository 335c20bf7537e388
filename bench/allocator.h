// What a benchmark program implements: one allocator, behind functions that are bound at link time.
//
// The cases (cases.h) are compiled once and linked into one program per allocator, so that every
// allocator pays the same for being measured: one direct call for each operation. A program defines
// all functions below in one file, bench/NAME_allocator.cc, and is declared with
// weir_add_bench_allocator() in bench/CMakeLists.txt.
//
// The cases call Info first, then Start once, on the main thread; everything else comes after.
// Unless stated otherwise a function may be called from several threads at once.
#ifndef WEIR_BENCH_ALLOCATOR_H_
#define WEIR_BENCH_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir::bench {

// A CUstream or cudaStream_t; whatever an allocator of CPU memory returns for it.
using Stream = void*;

struct AllocatorInfo {
  std::string name;     // as in the names of the cases: "rmm_pool"
  std::string version;  // of the allocator: "24.12.1"; known only after Start for some
  // One sentence for the report where a time needs one: "times count only on a real device".
  std::string note;
  bool device = true;          // allocates device memory; false: CPU memory, which has no streams
  bool record_use = false;     // RecordUse works
  bool free_on_other = false;  // FreeOnOther gives the block to the other stream in its order
  uint64_t max_blocks = UINT64_MAX;  // cases that keep more blocks are skipped: they take minutes
  uint64_t max_bytes = UINT64_MAX;   // so are cases that keep more memory
};
const AllocatorInfo& Info();

struct StartOptions {
  bool simulated = true;
  int device = 0;  // of the real driver; the simulated one is 0
};
// The simulated device, if it is to be used, has been configured by then (device.h). False with
// *error set if the allocator cannot work here.
bool Start(const StartOptions& options, std::string* error);

// What a thread must do before it allocates, e.g. set its device.
void StartThread();

// A new non-blocking stream, which is never destroyed; null if that failed.
Stream CreateStream();

// Null if there is no memory. `stream` null is the legacy default stream.
void* Allocate(size_t bytes, Stream stream);
// `bytes` and `stream` are those of the allocation.
void Free(void* pointer, size_t bytes, Stream stream);

// Only where Info allows them. The block was allocated on `stream`; work on `other` used it.
// FreeOnOther frees it in the order of `other`, where its memory is wanted next.
void RecordUse(void* pointer, Stream other);
void FreeOnOther(void* pointer, size_t bytes, Stream stream, Stream other);

// Gives back what is cached, or starts anew: called before each case, with every block freed and no
// other thread in the allocator, so that one case does not shape the next.
void Reset();

// Physical memory that the allocator holds now, from the driver or the operating system; 0 if it
// cannot say. Never called while time is measured.
uint64_t ReservedBytes();

}  // namespace weir::bench

#endif  // WEIR_BENCH_ALLOCATOR_H_
