// A source of memory for pools that gives segments of the simulated driver and counts them.
#ifndef WEIR_TESTS_POOL_POOL_SOURCE_H_
#define WEIR_TESTS_POOL_POOL_SOURCE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "tests/pool/capture_fixture.h"

namespace weir::test {

class PoolSource {
 public:
  explicit PoolSource(const SimDevice& device) : device_(device) {}

  weir_pool_options_t Options(bool no_split = false, bool use_on_oom = false) {
    weir_pool_options_t options = {};
    options.allocate = [](size_t bytes, int, weir_stream_t stream, void* self) {
      return static_cast<PoolSource*>(self)->Allocate(bytes, stream);
    };
    options.deallocate = [](void* at, size_t bytes, int, weir_stream_t stream, void* self) {
      static_cast<PoolSource*>(self)->Deallocate(at, bytes, stream);
    };
    options.user = this;
    options.no_split = no_split;
    options.use_on_oom = use_on_oom;
    return options;
  }

  uint64_t limit = UINT64_MAX;                // of bytes given
  std::function<uint64_t(size_t)> make;       // instead of the driver
  std::function<void(uint64_t, size_t)> end;  // with `make`

  uint64_t bytes() const { return bytes_; }
  size_t segments() const { return segments_.size(); }
  const std::vector<size_t>& asked() const { return asked_; }
  int returned() const { return returned_; }
  int wrong() const { return wrong_; }  // calls that do not fit what was given
  // Whether all of [at, at + bytes) lies in one segment.
  bool Has(uint64_t at, uint64_t bytes) const {
    const std::lock_guard lock(mu_);
    const auto after = segments_.upper_bound(at);
    if (after == segments_.begin()) return false;
    const auto& [begin, given] = *std::prev(after);
    return at + bytes <= begin + given.bytes;
  }

 private:
  struct Given {
    size_t bytes;
    weir_stream_t stream;
  };

  void* Allocate(size_t bytes, weir_stream_t stream) {
    {
      const std::lock_guard lock(mu_);
      asked_.push_back(bytes);
      if (bytes > limit - bytes_) return nullptr;
    }
    CUdeviceptr at = 0;
    if (make) {
      at = make(bytes);
    } else if (device_.entries().MemAlloc(&at, bytes) != CUDA_SUCCESS) {
      at = 0;
    }
    const std::lock_guard lock(mu_);
    if (at == 0) return nullptr;
    bytes_ += bytes;
    if (!segments_.emplace(at, Given{bytes, stream}).second) bytes_ -= bytes;
    return reinterpret_cast<void*>(at);
  }
  void Deallocate(void* ptr, size_t bytes, weir_stream_t stream) {
    const auto at = reinterpret_cast<uintptr_t>(ptr);
    {
      const std::lock_guard lock(mu_);
      ++returned_;
      const auto given = segments_.find(at);
      if (given == segments_.end() || given->second.bytes != bytes ||
          given->second.stream != stream) {
        ++wrong_;
        return;
      }
      bytes_ -= bytes;
      segments_.erase(given);
    }
    if (make) {
      if (end) end(at, bytes);
    } else if (device_.entries().MemFree(at) != CUDA_SUCCESS) {
      ++wrong_;
    }
  }

  const SimDevice& device_;
  mutable std::mutex mu_;
  std::map<uint64_t, Given> segments_;
  std::vector<size_t> asked_;
  uint64_t bytes_ = 0;
  int returned_ = 0;
  int wrong_ = 0;
};

}  // namespace weir::test

#endif  // WEIR_TESTS_POOL_POOL_SOURCE_H_
