// Copies by direction, for the functions that copy and those that copy to and from variables.
#ifndef WEIR_TOOLS_SIMCUDA_RUNTIME_COPY_H_
#define WEIR_TOOLS_SIMCUDA_RUNTIME_COPY_H_

#include "tools/simcuda/runtime/face.h"

namespace weir::sim::runtime {

cudaError_t CopyNow(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t CopyOnStream(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                         cudaStream_t stream);

}  // namespace weir::sim::runtime

#endif  // WEIR_TOOLS_SIMCUDA_RUNTIME_COPY_H_
