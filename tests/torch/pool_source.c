// A source of segments for torch.cuda.MemPool, as users write one: cudaMalloc and cudaFree of the
// runtime that PyTorch runs on, and two flags that tell a test whether they were called. One thread
// at a time.
#include <stddef.h>

typedef int cuda_error;
extern cuda_error cudaMalloc(void** pointer, size_t bytes);
extern cuda_error cudaFree(void* pointer);

#define EXPORT __attribute__((visibility("default")))

EXPORT int called_dummy_alloc = 0;  // 123 once dummy_alloc was called
EXPORT int called_dummy_free = 0;   // 321 once dummy_free was called
EXPORT size_t last_alloc_bytes = 0;
EXPORT size_t last_free_bytes = 0;

EXPORT void* dummy_alloc(size_t bytes, int device, void* stream) {
  (void)device;
  (void)stream;
  void* pointer = NULL;
  called_dummy_alloc = 123;
  last_alloc_bytes = bytes;
  return cudaMalloc(&pointer, bytes) == 0 ? pointer : NULL;
}

EXPORT void dummy_free(void* pointer, size_t bytes, int device, void* stream) {
  (void)device;
  (void)stream;
  called_dummy_free = 321;
  last_free_bytes = bytes;
  cudaFree(pointer);
}
