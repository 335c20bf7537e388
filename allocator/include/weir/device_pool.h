// SPDX-License-Identifier: MIT
//
// weir::DevicePool: the memory of one device, for C++ programs.
//
// A handle on the process-wide pool of a device: cheap to copy, and all handles of a device share
// one pool. Thread-safe. Failures are exceptions (weir/error.h); what each call means, and when
// memory may be used and is reused, stands in weir/weir.h.
#ifndef WEIR_DEVICE_POOL_H_
#define WEIR_DEVICE_POOL_H_

#include <cstddef>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "weir/error.h"
#include "weir/inspect.h"
#include "weir/weir.h"

namespace weir {

class DevicePool {
 public:
  static constexpr std::size_t kDefaultAlignment = 512;

  // Throws Error if there is no such device.
  explicit DevicePool(int device = 0) : device_(device) {
    int count = 0;
    ThrowIfFailed(weir_device_count(&count));
    if (device < 0 || device >= count) {
      throw Error(WEIR_ERROR_NO_DEVICE, "there is no device " + std::to_string(device) + "; the " +
                                            "driver lists " + std::to_string(count));
    }
  }

  int device() const noexcept { return device_; }

  // Memory for use on any stream. Never nullptr.
  [[nodiscard]] void* Allocate(std::size_t bytes, std::size_t alignment = kDefaultAlignment) {
    return OrThrow(weir_aligned_alloc_device(alignment, bytes, device_));
  }
  // Reused when all work submitted before is complete. nullptr is allowed.
  void Deallocate(void* ptr) { ThrowIfFailed(weir_free(ptr)); }

  // Memory for use in the order of a stream.
  [[nodiscard]] void* AllocateAsync(std::size_t bytes, weir_stream_t stream,
                                    std::size_t alignment = kDefaultAlignment) {
    return OrThrow(weir_aligned_alloc_async_device(alignment, bytes, device_, stream));
  }
  void DeallocateAsync(void* ptr, weir_stream_t stream) {
    ThrowIfFailed(weir_free_async(ptr, stream));
  }

  // Work already submitted to the stream uses the block.
  void RecordUse(void* ptr, weir_stream_t stream) { ThrowIfFailed(weir_record_use(ptr, stream)); }

  // 0 for a pointer that is not the start of a live block.
  std::size_t UsableSize(const void* ptr) const noexcept { return weir_usable_size(ptr); }

  void EmptyCache() { ThrowIfFailed(weir_empty_cache(device_)); }
  void Trim(std::size_t keep_bytes) { ThrowIfFailed(weir_trim(device_, keep_bytes)); }
  void SetMemoryLimit(std::size_t bytes) { ThrowIfFailed(weir_set_memory_limit(device_, bytes)); }

  void SetMemoryFraction(double fraction) {
    ThrowIfFailed(weir_set_memory_fraction(device_, fraction));
  }
  void Preallocate(std::size_t bytes) { ThrowIfFailed(weir_preallocate(device_, bytes)); }

  // Why the device's last request failed for want of memory; "" if none has.
  std::string OomReport(weir_report_format_t format = WEIR_REPORT_TEXT) const {
    // Another failure may make it longer between the two calls.
    std::string text;
    for (std::size_t length = weir_oom_report(device_, format, nullptr, 0); length > 0;) {
      text.resize(length + 1);
      length = weir_oom_report(device_, format, text.data(), text.size());
      if (length >= text.size()) continue;
      text.resize(length);
      break;
    }
    return text;
  }

  weir_stats_t Stats() const {
    weir_stats_t stats;
    ThrowIfFailed(weir_get_stats(device_, &stats));
    return stats;
  }
  struct SizeStats {
    weir_size_stats_t small;
    weir_size_stats_t large;
  };
  SizeStats StatsBySize() const {
    SizeStats stats;
    ThrowIfFailed(weir_get_size_stats(device_, &stats.small, &stats.large));
    return stats;
  }
  void ResetPeakStats() { ThrowIfFailed(weir_reset_peak_stats(device_)); }

  struct Segment {
    weir_segment_info_t info;
    std::vector<weir_block_info_t> blocks;
  };
  // Every segment and block at one moment, in address order (weir_visit_segments).
  std::vector<Segment> Segments() const {
    Gathered gathered;
    ThrowIfFailed(weir_visit_segments(device_, &Gather, &gathered));
    if (gathered.lacks_memory) throw std::bad_alloc();
    return std::move(gathered.segments);
  }

  struct MemInfo {
    std::size_t free_bytes;
    std::size_t total_bytes;
  };
  MemInfo MemGetInfo() const {
    MemInfo info;
    ThrowIfFailed(weir_mem_get_info(device_, &info.free_bytes, &info.total_bytes));
    return info;
  }

  // Whether AllocateAsync(bytes, stream) would succeed now; changes nothing.
  bool WouldFit(std::size_t bytes, weir_stream_t stream = nullptr) const {
    int fits = 0;
    ThrowIfFailed(weir_would_fit(device_, bytes, stream, &fits, nullptr));
    return fits != 0;
  }
  // How many bytes would have to become free for that; 0: none.
  std::size_t MissingBytes(std::size_t bytes, weir_stream_t stream = nullptr) const {
    int fits = 0;
    std::size_t missing = 0;
    ThrowIfFailed(weir_would_fit(device_, bytes, stream, &fits, &missing));
    return missing;
  }

  // Memory of one may be deallocated through the other.
  friend bool operator==(const DevicePool& a, const DevicePool& b) noexcept {
    return a.device_ == b.device_;
  }
  friend bool operator!=(const DevicePool& a, const DevicePool& b) noexcept { return !(a == b); }

 private:
  struct Gathered {
    std::vector<Segment> segments;
    bool lacks_memory = false;
  };
  static void Gather(const weir_segment_info_t* segment, const weir_block_info_t* blocks,
                     std::size_t count, void* user) noexcept {
    auto* gathered = static_cast<Gathered*>(user);
    try {
      gathered->segments.push_back({*segment, {blocks, blocks + count}});
    } catch (const std::bad_alloc&) {
      gathered->lacks_memory = true;
    }
  }

  static void* OrThrow(void* ptr) {
    if (ptr == nullptr) ThrowLastError();
    return ptr;
  }

  int device_;
};

}  // namespace weir

#endif  // WEIR_DEVICE_POOL_H_
