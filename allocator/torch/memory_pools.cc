#include "memory_pools.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <unordered_set>

#include "torch_allocator.h"
#include "weir/weir.h"

namespace weir::torch_plugin {
namespace {

void Check(int status) { TORCH_CHECK(status == WEIR_OK, weir_last_error()); }

}  // namespace

// ---- Memory with an allocator of its own --------------------------------------------------------

void* MemoryPools::AllocateFrom(size_t bytes, int device, weir_stream_t, void* user) {
  const auto& source = *static_cast<const Source*>(user);
  try {
    const c10::cuda::CUDAGuard guard(static_cast<DeviceIndex>(device));
    void* ptr = source.allocator->raw_alloc(bytes);
    if (ptr != nullptr) {
      TorchAllocator::Get().history().OnSegment(TraceEntry::SEGMENT_ALLOC, source.device,
                                                reinterpret_cast<uintptr_t>(ptr), bytes, source.id);
    }
    return ptr;
  } catch (const std::exception&) {
    return nullptr;  // no memory, which Weir reports
  }
}

void MemoryPools::DeallocateTo(void* ptr, size_t bytes, int device, weir_stream_t, void* user) {
  const auto& source = *static_cast<const Source*>(user);
  try {
    const c10::cuda::CUDAGuard guard(static_cast<DeviceIndex>(device));
    TorchAllocator::Get().history().OnSegment(TraceEntry::SEGMENT_FREE, source.device,
                                              reinterpret_cast<uintptr_t>(ptr), bytes, source.id);
    source.allocator->raw_delete(ptr);
  } catch (const std::exception& error) {
    TORCH_WARN("a MemPool's allocator could not free its memory: ", error.what());
  }
}

// ---- Users --------------------------------------------------------------------------------------

MemoryPools::Pool& MemoryPools::Get(DeviceIndex device, MempoolId_t id) {
  const auto pool = pools_.find({device, id});
  TORCH_CHECK(pool != pools_.end(), "there is no memory pool (", id.first, ", ", id.second,
              ") on device ", static_cast<int>(device));
  return pool->second;
}

void MemoryPools::Retain(DeviceIndex device, MempoolId_t id,
                         std::shared_ptr<CUDAAllocator> source) {
  const std::lock_guard lock(mu_);
  Pool& pool = pools_[{device, id}];
  if (pool.users > 0) {
    TORCH_CHECK(source == nullptr || (pool.source != nullptr && pool.source->allocator == source),
                "the memory pool exists already with another allocator");
    if (pool.pool != 0) Check(weir_pool_retain(pool.pool));
    ++pool.users;
    return;
  }
  Pool made;
  weir_pool_options_t options{};
  if (source != nullptr) {
    made.source = std::make_unique<Source>(Source{std::move(source), device, id});
    options.allocate = &AllocateFrom;
    options.deallocate = &DeallocateTo;
    options.user = made.source.get();
    may_have_segments_.store(true);
  }
  const int status = weir_pool_create_with(device, &options, &made.pool);
  // mode:passthrough knows no pools: every request goes to the driver, as PyTorch does without its
  // cache.
  const bool is_passthrough = status == WEIR_ERROR_CONFIGURATION && options.allocate == nullptr;
  if (status != WEIR_OK && !is_passthrough) {
    if (pool.pool == 0) pools_.erase({device, id});
    Check(status);
  }
  made.users = 1;
  // Of a pool of that id that was released: requests may still ask its filters, and blocks of it
  // may outlive it with their source.
  if (pool.pool != 0) retired_.push_back(std::move(pool));
  if (made.pool != 0) ids_[made.pool] = id;
  pool = std::move(made);
}

void MemoryPools::Release(DeviceIndex device, MempoolId_t id) {
  const std::lock_guard lock(mu_);
  Pool& pool = Get(device, id);
  TORCH_CHECK(pool.users > 0, "the memory pool was released more often than it was used");
  if (pool.pool != 0) Check(weir_pool_release(pool.pool));
  --pool.users;
}

int MemoryPools::UseCount(DeviceIndex device, MempoolId_t id) {
  const std::lock_guard lock(mu_);
  const auto pool = pools_.find({device, id});
  return pool != pools_.end() ? pool->second.users : 0;
}

// ---- Routes -------------------------------------------------------------------------------------

int MemoryPools::Ask(weir_stream_t stream, void* user) {
  const auto filter = static_cast<Route*>(user)->filter.load();
  try {
    return filter != nullptr && (*filter)(stream) ? 1 : 0;
  } catch (const std::exception&) {
    return 0;  // the driver could not be asked about the stream
  }
}

void MemoryPools::Begin(DeviceIndex device, MempoolId_t id, Filter filter) {
  Retain(device, id, nullptr);
  const std::lock_guard lock(mu_);
  Pool& pool = Get(device, id);
  const auto unused = std::find_if(pool.routes.begin(), pool.routes.end(), [&](const auto& route) {
    return std::find(pool.active.begin(), pool.active.end(), route.get()) == pool.active.end();
  });
  Route* route = unused != pool.routes.end()
                     ? unused->get()
                     : pool.routes.emplace_back(std::make_unique<Route>()).get();
  route->filter.store(std::make_shared<const Filter>(std::move(filter)));
  pool.active.push_back(route);
  if (pool.pool != 0) Check(weir_pool_begin_filter(pool.pool, &Ask, route));
}

void MemoryPools::End(DeviceIndex device, MempoolId_t id) {
  const std::lock_guard lock(mu_);
  Pool& pool = Get(device, id);
  TORCH_CHECK(!pool.active.empty(), "endAllocateToPool without a beginAllocateToPool");
  if (pool.pool != 0) Check(weir_pool_end(pool.pool));
  pool.active.back()->filter.store(nullptr);
  pool.active.pop_back();
}

// ---- Properties ---------------------------------------------------------------------------------

void MemoryPools::SetUseOnOom(DeviceIndex device, MempoolId_t id, bool value) {
  const std::lock_guard lock(mu_);
  const weir_pool_t pool = Get(device, id).pool;
  if (pool != 0) Check(weir_pool_set_use_on_oom(pool, value ? 1 : 0));
}

void MemoryPools::SetNoSplit(DeviceIndex device, MempoolId_t id) {
  const std::lock_guard lock(mu_);
  const weir_pool_t pool = Get(device, id).pool;
  if (pool != 0) Check(weir_pool_set_no_split(pool));
  may_have_segments_.store(true);
}

void MemoryPools::Empty(DeviceIndex device, MempoolId_t id) {
  weir_pool_t pool = 0;
  {
    const std::lock_guard lock(mu_);
    const auto found = pools_.find({device, id});
    if (found == pools_.end()) return;
    // Graphs that use it run on its addresses, and PyTorch leaves pools in use alone too.
    if (found->second.users > 0) return;
    pool = found->second.pool;
  }
  // A pool without memory is not known any more once it was released.
  if (pool != 0) weir_pool_empty(pool);
}

weir_pool_t MemoryPools::Find(DeviceIndex device, MempoolId_t id) {
  const std::lock_guard lock(mu_);
  const auto pool = pools_.find({device, id});
  return pool != pools_.end() ? pool->second.pool : 0;
}

MempoolId_t MemoryPools::IdOf(weir_pool_t pool) {
  if (pool == 0) return {0, 0};
  const std::lock_guard lock(mu_);
  const auto id = ids_.find(pool);
  return id != ids_.end() ? id->second : MempoolId_t{0, 0};
}

MempoolId_t MemoryPools::IdOfBlock(const void* ptr) {
  weir_segment_info_t segment{};
  if (weir_find_block(ptr, nullptr, &segment) != WEIR_OK) return {0, 0};
  return IdOf(segment.pool);
}

std::vector<weir_block_info_t> MemoryPools::LiveBlocks(DeviceIndex device, weir_pool_t pool) {
  struct Search {
    weir_pool_t pool;
    std::vector<weir_block_info_t> blocks;
  } search{pool, {}};
  Check(weir_visit_segments(
      device,
      [](const weir_segment_info_t* segment, const weir_block_info_t* blocks, size_t count,
         void* user) {
        auto& found = *static_cast<Search*>(user);
        if (segment->pool != found.pool) return;
        std::copy_if(blocks, blocks + count, std::back_inserter(found.blocks),
                     [](const auto& b) { return b.state == WEIR_BLOCK_ALLOCATED; });
      },
      &search));
  return std::move(search.blocks);
}

// ---- The allocator's part -----------------------------------------------------------------------

namespace {

// What of a pool was in use, for setCheckpointPoolState.
struct PoolState final : AllocatorState {
  MempoolId_t id;
  std::vector<weir_block_info_t> blocks;
};

}  // namespace

void TorchAllocator::createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                                        std::shared_ptr<CUDAAllocator> source) {
  CheckDevice(device);
  pools_.Retain(device, id, std::move(source));
}

void TorchAllocator::beginAllocateToPool(DeviceIndex device, MempoolId_t id,
                                         std::function<bool(cudaStream_t)> filter) {
  CheckDevice(device);
  pools_.Begin(device, id, std::move(filter));
}

void TorchAllocator::endAllocateToPool(DeviceIndex device, MempoolId_t id) {
  CheckDevice(device);
  pools_.End(device, id);
}

void TorchAllocator::releasePool(DeviceIndex device, MempoolId_t id) {
  CheckDevice(device);
  pools_.Release(device, id);
}

int TorchAllocator::getPoolUseCount(DeviceIndex device, MempoolId_t id) {
  CheckDevice(device);
  return pools_.UseCount(device, id);
}

void TorchAllocator::setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) {
  CheckDevice(device);
  pools_.SetUseOnOom(device, id, use_on_oom);
}

void TorchAllocator::setNoSplit(DeviceIndex device, MempoolId_t id) {
  CheckDevice(device);
  pools_.SetNoSplit(device, id);
}

bool TorchAllocator::checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                              const std::unordered_set<void*>& expected) {
  CheckDevice(device);
  const weir_pool_t pool = pools_.Find(device, id);
  TORCH_CHECK(pool != 0, "could not find pool of id (", id.first, ", ", id.second, ")");
  const auto live = MemoryPools::LiveBlocks(device, pool);
  return live.size() == expected.size() &&
         std::all_of(live.begin(), live.end(), [&](const weir_block_info_t& block) {
           return expected.count(reinterpret_cast<void*>(block.address)) > 0;
         });
}

std::shared_ptr<AllocatorState> TorchAllocator::getCheckpointState(DeviceIndex device,
                                                                   MempoolId_t id) {
  CheckDevice(device);
  const weir_pool_t pool = pools_.Find(device, id);
  TORCH_CHECK(pool != 0, "could not find pool of id (", id.first, ", ", id.second, ")");
  auto state = std::make_shared<PoolState>();
  state->id = id;
  state->blocks = MemoryPools::LiveBlocks(device, pool);
  return state;
}

CheckpointDelta TorchAllocator::setCheckpointPoolState(DeviceIndex device,
                                                       std::shared_ptr<AllocatorState> state) {
  CheckDevice(device);
  const auto wanted = std::dynamic_pointer_cast<PoolState>(state);
  TORCH_CHECK(wanted != nullptr, "this is no state that getCheckpointState has returned");
  const weir_pool_t pool = pools_.Find(device, wanted->id);
  TORCH_CHECK(pool != 0, "the pool of the state exists no more");
  const auto before = MemoryPools::LiveBlocks(device, pool);
  Check(weir_pool_restore(pool, wanted->blocks.data(), wanted->blocks.size()));
  CheckpointDelta delta;
  for (const weir_block_info_t& block : before) {
    delta.ptrs_freed.push_back(reinterpret_cast<void*>(block.address));
  }
  for (const weir_block_info_t& block : wanted->blocks) {
    void* ptr = reinterpret_cast<void*>(block.address);
    delta.dataptrs_allocd.emplace_back(ptr, ptr, &DeleteBlock,
                                       c10::Device(c10::DeviceType::CUDA, device));
  }
  return delta;
}

}  // namespace weir::torch_plugin
