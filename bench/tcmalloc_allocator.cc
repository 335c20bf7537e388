// The benchmark program of gperftools' tcmalloc, on CPU memory, for scale. Loaded privately and
// called by its own names, so that the program itself keeps the C library's malloc.
#include <dlfcn.h>

#include "bench/cpu_allocator.h"

namespace weir::bench {
namespace {

AllocatorInfo info = CpuAllocatorInfo("tcmalloc", "");

void* (*tc_malloc)(size_t) = nullptr;
void (*tc_free)(void*) = nullptr;
void (*release_free_memory)() = nullptr;
int (*get_numeric_property)(const char*, size_t*) = nullptr;

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

const AllocatorInfo& Info() { return info; }

bool Start(const StartOptions&, std::string* error) {
  void* library = dlopen("libtcmalloc_minimal.so.4", RTLD_NOW | RTLD_LOCAL);
  const char* (*version)(int*, int*, const char**) = nullptr;
  if (library == nullptr || !Find(library, "tc_malloc", &tc_malloc) ||
      !Find(library, "tc_free", &tc_free) || !Find(library, "tc_version", &version) ||
      !Find(library, "MallocExtension_ReleaseFreeMemory", &release_free_memory) ||
      !Find(library, "MallocExtension_GetNumericProperty", &get_numeric_property)) {
    *error = std::string(dlerror()) + " (Debian's package libtcmalloc-minimal4)";
    return false;
  }
  info.version = version(nullptr, nullptr, nullptr);
  return true;
}

void* Allocate(size_t bytes, Stream) { return tc_malloc(bytes); }

void Free(void* pointer, size_t, Stream) { tc_free(pointer); }

void Reset() { release_free_memory(); }

uint64_t ReservedBytes() {
  size_t heap = 0, unmapped = 0;
  get_numeric_property("generic.heap_size", &heap);
  get_numeric_property("tcmalloc.pageheap_unmapped_bytes", &unmapped);
  return heap - unmapped;
}

}  // namespace weir::bench
