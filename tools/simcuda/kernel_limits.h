// What is assumed of kernels, whose code the simulated device does not know, and what follows from
// it with the limits of the device: which launches are possible, how many blocks run at a time. For
// functions of modules (module_entries.cc) and for the runtime's kernels (runtime/launch.cc).
#ifndef WEIR_TOOLS_SIMCUDA_KERNEL_LIMITS_H_
#define WEIR_TOOLS_SIMCUDA_KERNEL_LIMITS_H_

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace weir::sim {

inline constexpr int kAssumedRegisters = 32;  // per thread
// Of PTX and of machine code: the device's compute capability, 9.0.
inline constexpr int kAssumedCodeVersion = 90;

// What a program may set for a kernel.
struct KernelSettings {
  int dynamic_shared_bytes = 48 << 10;  // at most; what a launch may ask for unless more is set
  int shared_carveout = -1;             // percent; -1: the driver chooses
};

struct KernelLimits {
  int threads_per_block = 0;
  int threads_per_multiprocessor = 0;
  int blocks_per_multiprocessor = 0;
  int registers_per_multiprocessor = 0;
  int shared_per_block = 0;
  int shared_per_multiprocessor = 0;
  int shared_reserved = 0;
  int warp = 1;
};

// `get` answers the value of an attribute of the device.
template <typename Get>
KernelLimits ReadKernelLimits(Get get) {
  return {
      .threads_per_block = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
      .threads_per_multiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
      .blocks_per_multiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
      .registers_per_multiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR),
      .shared_per_block = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
      .shared_per_multiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
      .shared_reserved = get(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
      .warp = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE)};
}

// Of dim3, or anything else with x, y and z. False if the grid is empty, or the block empty or of
// more threads than the device takes.
template <typename Dim3>
bool IsLaunchShape(Dim3 grid, Dim3 block, int most_threads) {
  const auto most = static_cast<uint64_t>(most_threads);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return false;
  if (block.x > most || block.y > most || block.z > most) return false;  // no overflow below
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  return threads > 0 && threads <= most;
}

// Blocks of one kernel that a multiprocessor runs at a time. Expects a positive block size.
inline int ActiveBlocks(const KernelLimits& limits, int block_size, size_t shared_bytes) {
  if (block_size > limits.threads_per_block ||
      shared_bytes > static_cast<size_t>(limits.shared_per_block)) {
    return 0;
  }
  const int threads = (block_size + limits.warp - 1) / limits.warp * limits.warp;
  const int shared = static_cast<int>(shared_bytes) + limits.shared_reserved;
  return std::min({limits.blocks_per_multiprocessor, limits.threads_per_multiprocessor / threads,
                   limits.registers_per_multiprocessor / (threads * kAssumedRegisters),
                   limits.shared_per_multiprocessor / shared});
}

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_KERNEL_LIMITS_H_
