// What the heap holds, in the form that PyTorch's tools and its viewer read.
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <map>

#include "torch_allocator.h"
#include "weir/inspect.h"
#include "weir/weir.h"

namespace weir::torch_plugin {
namespace {

struct Seen {
  weir_segment_info_t segment;
  std::vector<weir_block_info_t> blocks;
};

std::vector<Seen> Look(DeviceIndex device) {
  std::vector<Seen> seen;
  const int status = weir_visit_segments(
      device,
      [](const weir_segment_info_t* segment, const weir_block_info_t* blocks, size_t count,
         void* user) {
        static_cast<std::vector<Seen>*>(user)->push_back({*segment, {blocks, blocks + count}});
      },
      &seen);
  TORCH_CHECK(status == WEIR_OK, weir_last_error());
  return seen;
}

}  // namespace

SnapshotInfo TorchAllocator::snapshot(MempoolId_t id, bool include_traces) {
  SnapshotInfo result;
  const MemoryHistory::Scope scope(&history_, RecordContext::ALL);
  for (size_t device = 0; device < devices_.size(); ++device) {
    // Frees that waited for streams and need not any more are shown as complete. A failure only
    // leaves them waiting.
    weir_trim(static_cast<int>(device), SIZE_MAX);
  }
  history_.CompleteFreed();
  for (size_t d = 0; d < devices_.size(); ++d) {
    const auto device = static_cast<DeviceIndex>(d);
    uint64_t active = 0;
    for (const Seen& seen : Look(device)) {
      const weir_segment_info_t& segment = seen.segment;
      const MempoolId_t pool = pools_.IdOf(segment.pool);
      if (id != MempoolId_t{0, 0} && pool != id) continue;
      SegmentInfo& info = result.segments.emplace_back();
      info.device = device;
      info.address = segment.address;
      info.total_size = segment.bytes;
      info.requested_size = segment.requested_bytes;
      info.allocated_size = segment.allocated_bytes;
      info.active_size = segment.active_bytes;
      info.stream = segment.stream == WEIR_ANY_STREAM ? nullptr : segment.stream;
      info.is_large = segment.is_large != 0;
      info.is_expandable = segment.is_mapped != 0;
      info.owner_private_pool_id = pool;
      info.context_when_allocated = history_.SegmentContext(segment.address);
      active += segment.active_bytes;
      for (const weir_block_info_t& block : seen.blocks) {
        // Free memory is shown whole, though caches and size classes have cut it up.
        if (block.state == WEIR_BLOCK_FREE && !info.blocks.empty() && !info.blocks.back().active) {
          info.blocks.back().size += block.bytes;
          continue;
        }
        BlockInfo& b = info.blocks.emplace_back();
        b.size = block.bytes;
        b.requested_size = block.requested_bytes;
        b.allocated = block.state == WEIR_BLOCK_ALLOCATED;
        b.active = block.state != WEIR_BLOCK_FREE;
        if (b.allocated) b.context_when_allocated = history_.BlockContext(block.address);
      }
    }
    if (include_traces) result.device_traces.push_back(history_.Entries(device));
    history_.OnSnapshot(device, active, id, scope.context());
  }
  if (include_traces) result.external_annotations = history_.Annotations();

  auto& metadata = result.config_metadata;
  metadata.garbage_collection_threshold =
      AcceleratorAllocatorConfig::garbage_collection_threshold();
  metadata.max_split_size = AcceleratorAllocatorConfig::max_split_size();
  metadata.pinned_num_register_threads = CUDAAllocatorConfig::pinned_num_register_threads();
  metadata.expandable_segments = CUDAAllocatorConfig::expandable_segments();
  metadata.release_lock_on_malloc = CUDAAllocatorConfig::release_lock_on_cudamalloc();
  metadata.pinned_use_host_register = CUDAAllocatorConfig::pinned_use_cuda_host_register();
  metadata.graph_capture_record_stream_reuse =
      CUDAAllocatorConfig::graph_capture_record_stream_reuse();
  metadata.last_allocator_settings = c10::CachingAllocator::getAllocatorSettings();
  metadata.roundup_power2_divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  return result;
}

std::vector<StreamSegmentSize> TorchAllocator::getExpandableSegmentSizes(DeviceIndex device) {
  CheckDevice(device);
  std::map<std::pair<cudaStream_t, bool>, size_t> sums;
  for (const Seen& seen : Look(device)) {
    if (seen.segment.is_mapped) {
      sums[{seen.segment.stream, seen.segment.is_large == 0}] += seen.segment.bytes;
    }
  }
  std::vector<StreamSegmentSize> sizes;
  for (const auto& [key, bytes] : sums) sizes.emplace_back(key.first, key.second, bytes);
  return sizes;
}

void TorchAllocator::cacheInfo(DeviceIndex device, size_t* largest) {
  CheckDevice(device);
  if (*largest == 0) {  // what PyTorch takes for a first guess
    const c10::cuda::CUDAGuard guard(device);
    size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(largest, &total));
  }
  for (const Seen& seen : Look(device)) {
    for (const weir_block_info_t& block : seen.blocks) {
      if (block.state == WEIR_BLOCK_FREE) {
        *largest = std::max(*largest, static_cast<size_t>(block.bytes));
      }
    }
  }
}

void* TorchAllocator::getBaseAllocation(void* ptr, size_t* size) {
  weir_block_info_t block{};
  weir_segment_info_t segment{};
  const int status = weir_find_block(ptr, &block, &segment);
  TORCH_CHECK(status == WEIR_OK && block.state == WEIR_BLOCK_ALLOCATED,
              "invalid device pointer: ", ptr);
  if (size != nullptr) *size = segment.bytes;
  return reinterpret_cast<void*>(segment.address);
}

}  // namespace weir::torch_plugin
