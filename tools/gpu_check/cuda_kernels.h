// The device code as the driver gets it.
#ifndef WEIR_TOOLS_GPU_CHECK_CUDA_KERNELS_H_
#define WEIR_TOOLS_GPU_CHECK_CUDA_KERNELS_H_

namespace weir::gpu_check {

const char* KernelPtx();

}  // namespace weir::gpu_check

#endif  // WEIR_TOOLS_GPU_CHECK_CUDA_KERNELS_H_
