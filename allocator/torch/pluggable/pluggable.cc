#include "allocator/torch/pluggable/pluggable.h"

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "weir/inspect.h"
#include "weir/pools.h"

namespace {

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

void Check(int status) {
  if (status != WEIR_OK) throw std::runtime_error(std::string("Weir: ") + weir_last_error());
}

using Filter = std::function<bool(weir_stream_t)>;

struct Pool {
  weir_pool_t pool = 0;
  int users = 0;
  // Kept as long as the process runs: a request that has begun may still ask an old one.
  std::vector<std::unique_ptr<Filter>> filters;
};

struct Pools {
  std::mutex mu;
  std::map<std::pair<int, WeirTorchPoolId>, Pool> by_id;
};

Pools& ThePools() {
  static auto* const pools = new Pools();  // tensors may be freed at exit
  return *pools;
}

int Ask(weir_stream_t stream, void* filter) {
  try {
    return (*static_cast<const Filter*>(filter))(stream) ? 1 : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace

void* weir_torch_malloc(size_t bytes, int device, weir_stream_t stream) {
  if (bytes == 0) return nullptr;
  void* ptr = weir_malloc_async_device(bytes, device, stream);
  if (ptr != nullptr) return ptr;
  const bool is_out_of_memory = weir_last_status() == WEIR_ERROR_OUT_OF_MEMORY;
  std::string text =
      std::string(is_out_of_memory ? "CUDA out of memory. Weir: " : "Weir: ") + weir_last_error();
  if (is_out_of_memory) throw OutOfMemory(std::move(text));
  throw std::runtime_error(text);
}

void weir_torch_free(void* ptr, size_t, int, weir_stream_t) {
  if (ptr != nullptr) Check(weir_free_ordered(ptr));
}

void weir_torch_init(int) {}  // devices are started when they are first used

void weir_torch_reset() {
  int devices = 0;
  Check(weir_device_count(&devices));
  for (int device = 0; device < devices; ++device) {
    Check(weir_empty_cache(device));  // starts no device that is not in use
  }
}

void weir_torch_memory_fraction(double fraction, int device) {
  Check(fraction > 0 ? weir_set_memory_fraction(device, fraction)
                     : weir_set_memory_limit(device, 0));
}

void* weir_torch_base_alloc(void* ptr, size_t* bytes) {
  weir_segment_info_t segment{};
  Check(weir_find_block(ptr, nullptr, &segment));
  if (bytes != nullptr) *bytes = segment.bytes;
  return reinterpret_cast<void*>(segment.address);
}

void weir_torch_record_stream(void* ptr, weir_stream_t stream) {
  if (ptr != nullptr) Check(weir_record_use(ptr, stream));
}

void weir_torch_begin_allocate_to_pool(int device, WeirTorchPoolId id, Filter filter) {
  Pools& pools = ThePools();
  const std::lock_guard lock(pools.mu);
  Pool& pool = pools.by_id[{device, id}];
  Check(pool.users == 0 ? weir_pool_create(device, &pool.pool) : weir_pool_retain(pool.pool));
  ++pool.users;
  pool.filters.push_back(std::make_unique<Filter>(std::move(filter)));
  Check(weir_pool_begin_filter(pool.pool, &Ask, pool.filters.back().get()));
}

void weir_torch_end_allocate_to_pool(int device, WeirTorchPoolId id) {
  Pools& pools = ThePools();
  const std::lock_guard lock(pools.mu);
  Check(weir_pool_end(pools.by_id[{device, id}].pool));
}

void weir_torch_release_pool(int device, WeirTorchPoolId id) {
  Pools& pools = ThePools();
  const std::lock_guard lock(pools.mu);
  Pool& pool = pools.by_id[{device, id}];
  Check(weir_pool_release(pool.pool));
  --pool.users;
}
