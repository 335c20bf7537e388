// Weir's statistics in PyTorch's words.
//
// PyTorch's small and large pool are Weir's small and large arenas: requests of up to 256 KiB, and
// larger ones. `segment` and `inactive_split` leave memory out that is mapped page by page, as
// PyTorch does with expandable segments. The rest are segments of cuMemAlloc: all memory of a
// device that cannot map any, and that of MemPools with an allocator of their own or without
// splitting. They are counted when somebody asks, so their peaks are those that were seen.
#include <algorithm>
#include <array>

#include "torch_allocator.h"
#include "weir/inspect.h"
#include "weir/weir.h"

namespace weir::torch_plugin {
namespace {

constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
constexpr auto kSmall = static_cast<size_t>(StatType::SMALL_POOL);
constexpr auto kLarge = static_cast<size_t>(StatType::LARGE_POOL);

Stat MakeStat(uint64_t now, uint64_t peak, uint64_t total) {
  Stat stat;
  stat.current = static_cast<int64_t>(now);
  stat.peak = static_cast<int64_t>(peak);
  stat.allocated = static_cast<int64_t>(total);
  stat.freed = static_cast<int64_t>(total - now);
  return stat;
}

// Segments that can only be given back whole, and the free blocks beside used ones in them.
struct Classic {
  std::array<int64_t, 3> segments{}, split{}, split_bytes{};
};

void CountClassic(const weir_segment_info_t* segment, const weir_block_info_t* blocks, size_t count,
                  void* user) {
  if (segment->is_mapped) return;
  auto& found = *static_cast<Classic*>(user);
  for (const size_t pool : {kAll, segment->is_large ? kLarge : kSmall}) {
    ++found.segments[pool];
    for (size_t i = 0; i < count && count > 1; ++i) {
      if (blocks[i].state != WEIR_BLOCK_FREE) continue;
      ++found.split[pool];
      found.split_bytes[pool] += static_cast<int64_t>(blocks[i].bytes);
    }
  }
}

void SetCurrent(Stat& stat, int64_t now) {
  const int64_t change = now - stat.current;
  if (change >= 0) {
    stat.increase(static_cast<size_t>(change));
  } else {
    stat.decrease(static_cast<size_t>(-change));
  }
}

// Calls fn(stat, stat) for each pair of the same meaning.
template <typename Fn>
void ForEachStat(DeviceStats& a, DeviceStats& b, Fn fn) {
  for (StatArray DeviceStats::*array :
       {&DeviceStats::allocation, &DeviceStats::segment, &DeviceStats::active,
        &DeviceStats::inactive_split, &DeviceStats::allocated_bytes, &DeviceStats::reserved_bytes,
        &DeviceStats::active_bytes, &DeviceStats::inactive_split_bytes,
        &DeviceStats::requested_bytes}) {
    for (size_t i = 0; i < (a.*array).size(); ++i) fn((a.*array)[i], (b.*array)[i]);
  }
}

}  // namespace

DeviceStats TorchAllocator::CountDevice(DeviceIndex device) const {
  weir_stats_t all{};
  weir_size_stats_t small{}, large{};
  TORCH_CHECK(weir_get_size_stats(device, &small, &large) == WEIR_OK, weir_last_error());
  TORCH_CHECK(weir_get_stats(device, &all) == WEIR_OK, weir_last_error());
  DeviceStats stats;
#define WEIR_TORCH_STAT(ours, theirs)                                                 \
  stats.theirs[kAll] = MakeStat(all.ours, all.peak_##ours, all.total_##ours);         \
  stats.theirs[kSmall] = MakeStat(small.ours, small.peak_##ours, small.total_##ours); \
  stats.theirs[kLarge] = MakeStat(large.ours, large.peak_##ours, large.total_##ours);
  WEIR_TORCH_STAT(allocations, allocation)
  WEIR_TORCH_STAT(active_blocks, active)
  WEIR_TORCH_STAT(allocated_bytes, allocated_bytes)
  WEIR_TORCH_STAT(reserved_bytes, reserved_bytes)
  WEIR_TORCH_STAT(active_bytes, active_bytes)
  WEIR_TORCH_STAT(requested_bytes, requested_bytes)
#undef WEIR_TORCH_STAT
  stats.num_ooms = static_cast<int64_t>(all.out_of_memory);
  // Requests for which new memory did not suffice.
  stats.num_alloc_retries = static_cast<int64_t>(all.served_waited + all.served_callbacks +
                                                 all.served_merged + all.out_of_memory);
  // Those that waited for work; calls of emptyCache are added.
  stats.num_sync_all_streams =
      static_cast<int64_t>(all.served_waited + all.served_merged + all.out_of_memory);
  stats.num_device_alloc = static_cast<int64_t>(all.total_handles);
  stats.num_device_free = static_cast<int64_t>(all.total_handles - all.handles);
  stats.max_split_size = static_cast<int64_t>(AcceleratorAllocatorConfig::max_split_size());
  return stats;
}

void TorchAllocator::CountSegments(DeviceIndex device, DeviceStats* stats) {
  Classic found;
  if (pools_.may_have_segments() || !CanMap(device)) {
    TORCH_CHECK(weir_visit_segments(device, &CountClassic, &found) == WEIR_OK, weir_last_error());
  }
  const std::lock_guard lock(mu_);
  DeviceStats& seen = devices_[static_cast<size_t>(device)].segments_seen;
  for (const size_t pool : {kAll, kSmall, kLarge}) {
    SetCurrent(seen.segment[pool], found.segments[pool]);
    SetCurrent(seen.inactive_split[pool], found.split[pool]);
    SetCurrent(seen.inactive_split_bytes[pool], found.split_bytes[pool]);
  }
  stats->num_sync_all_streams += devices_[static_cast<size_t>(device)].emptied;
  stats->segment = seen.segment;
  stats->inactive_split = seen.inactive_split;
  stats->inactive_split_bytes = seen.inactive_split_bytes;
}

bool TorchAllocator::CanMap(DeviceIndex device) {
  const std::lock_guard lock(mu_);
  std::optional<bool>& can_map = devices_[static_cast<size_t>(device)].can_map;
  if (!can_map.has_value()) {
    // The first memory of a device shows it.
    weir_visit_segments(
        device,
        [](const weir_segment_info_t* segment, const weir_block_info_t*, size_t, void* user) {
          if (segment->pool == 0)
            *static_cast<std::optional<bool>*>(user) = segment->is_mapped != 0;
        },
        &can_map);
  }
  return can_map.value_or(true);
}

DeviceStats TorchAllocator::getDeviceStats(DeviceIndex device) {
  CheckDevice(device);
  DeviceStats stats = CountDevice(device);
  CountSegments(device, &stats);
  const std::lock_guard lock(mu_);
  DeviceStats& zero = devices_[static_cast<size_t>(device)].zero;
  ForEachStat(stats, zero, [](Stat& stat, const Stat& counted) {
    stat.allocated -= counted.allocated;
    stat.freed -= counted.freed;
  });
  stats.num_ooms -= zero.num_ooms;
  stats.num_alloc_retries -= zero.num_alloc_retries;
  stats.num_sync_all_streams -= zero.num_sync_all_streams;
  stats.num_device_alloc -= zero.num_device_alloc;
  stats.num_device_free -= zero.num_device_free;
  return stats;
}

void TorchAllocator::resetAccumulatedStats(DeviceIndex device) {
  CheckDevice(device);
  DeviceStats stats = CountDevice(device);
  CountSegments(device, &stats);
  const std::lock_guard lock(mu_);
  devices_[static_cast<size_t>(device)].zero = std::move(stats);
}

void TorchAllocator::resetPeakStats(DeviceIndex device) {
  CheckDevice(device);
  TORCH_CHECK(weir_reset_peak_stats(device) == WEIR_OK, weir_last_error());
  const std::lock_guard lock(mu_);
  DeviceStats& seen = devices_[static_cast<size_t>(device)].segments_seen;
  for (StatArray* array : {&seen.segment, &seen.inactive_split, &seen.inactive_split_bytes}) {
    for (Stat& stat : *array) stat.reset_peak();
  }
}

}  // namespace weir::torch_plugin
