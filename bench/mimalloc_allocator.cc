// The benchmark program of mimalloc, on CPU memory, for scale. Loaded privately and called by its
// own names, so that the program itself keeps the C library's malloc.
#include <dlfcn.h>

#include "bench/cpu_allocator.h"

namespace weir::bench {
namespace {

AllocatorInfo info = CpuAllocatorInfo("mimalloc", "");

void* (*mi_malloc)(size_t) = nullptr;
void (*mi_free)(void*) = nullptr;
void (*mi_collect)(bool) = nullptr;

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

const AllocatorInfo& Info() { return info; }

bool Start(const StartOptions&, std::string* error) {
  void* library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen("libmimalloc.so.2.0", RTLD_NOW | RTLD_LOCAL);
  int (*version)() = nullptr;
  if (library == nullptr || !Find(library, "mi_malloc", &mi_malloc) ||
      !Find(library, "mi_free", &mi_free) || !Find(library, "mi_version", &version) ||
      !Find(library, "mi_collect", &mi_collect)) {
    *error = std::string(dlerror()) + " (Debian's package libmimalloc2.0)";
    return false;
  }
  const int number = version();  // 209 is 2.0.9
  info.version = std::to_string(number / 100) + "." + std::to_string(number / 10 % 10) + "." +
                 std::to_string(number % 10);
  return true;
}

void* Allocate(size_t bytes, Stream) { return mi_malloc(bytes); }

void Free(void* pointer, size_t, Stream) { mi_free(pointer); }

void Reset() { mi_collect(true); }

uint64_t ReservedBytes() { return 0; }  // it tells the process's committed memory only

}  // namespace weir::bench
