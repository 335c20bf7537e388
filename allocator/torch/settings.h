// PyTorch's allocator settings (PYTORCH_ALLOC_CONF, PYTORCH_CUDA_ALLOC_CONF) and what they mean for
// Weir. PyTorch parses them, here they are read.
//
//   honoured     garbage_collection_threshold, per_process_memory_fraction,
//                roundup_power2_divisions, PYTORCH_NO_CUDA_MEMORY_CACHING=1 (mode:passthrough)
//   no effect    expandable_segments (memory is always mapped where the device can),
//                max_split_size_mb, max_non_split_rounding_mb, large_segment_size_mb (what they are
//                against does not happen: large free blocks are cut, joined and moved),
//                release_lock_on_cudamalloc (no lock that a hit needs is held across driver calls),
//                graph_capture_record_stream_reuse, backend
//   not Weir's   pinned_*
#ifndef WEIR_TORCH_SETTINGS_H_
#define WEIR_TORCH_SETTINGS_H_

#include <atomic>
#include <cstddef>
#include <string>

#include "torch_names.h"

namespace weir::torch_plugin {

// Weir's options (WEIR_CONF's form) that follow from the settings in force.
std::string OptionsFromSettings();

// Whether the settings name a backend: PyTorch then insists that the allocator's name is that.
bool NamesBackend();

// roundup_power2_divisions is set: sizes are rounded up as it says.
inline std::atomic<bool> rounds_sizes{false};
size_t RoundUp(size_t bytes);
inline size_t RoundAsConfigured(size_t bytes) {
  return rounds_sizes.load(std::memory_order_relaxed) ? RoundUp(bytes) : bytes;
}

// Follows changes of the settings from now on (torch.cuda.memory._set_allocator_settings).
void FollowSettings();

}  // namespace weir::torch_plugin

#endif  // WEIR_TORCH_SETTINGS_H_
