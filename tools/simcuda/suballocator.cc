#include "tools/simcuda/suballocator.h"

#include <iterator>
#include <utility>

namespace weir::sim {
namespace {

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Suballocator::~Suballocator() {
  for (auto chunk = chunks_.begin(); chunk != chunks_.end();) chunk = Release(chunk);
}

bool Suballocator::Allocate(uint64_t bytes, uint64_t limit, CUdeviceptr* base,
                            std::shared_ptr<Store>* store) {
  const uint64_t frame = arena_->frame_bytes();
  if (bytes > arena_->capacity()) return false;  // and the rounding below cannot overflow
  bytes = RoundUp(bytes, kUnit);
  const bool shared = keep_ == Keep::kKeep || bytes < frame;
  if (shared) {
    for (auto& [chunk_base, chunk] : chunks_) {
      if (chunk->shared && chunk->free_bytes >= bytes &&
          TakeFrom(chunk_base, *chunk, bytes, base, store)) {
        return true;
      }
    }
  }
  const uint64_t chunk_bytes = RoundUp(bytes, frame);
  if (limit != 0 && reserved_bytes_ + chunk_bytes > limit) return false;
  auto chunk = std::make_unique<Chunk>();
  chunk->frames = Store::Create(arena_, device_, chunk_bytes, timeline_);
  if (chunk->frames == nullptr) return false;
  const CUdeviceptr chunk_base = space_->TakeAddresses(chunk_bytes);
  if (chunk_base == 0) return false;
  chunk->bytes = chunk->free_bytes = chunk_bytes;
  chunk->shared = shared;
  chunk->free[0] = chunk_bytes;
  reserved_bytes_ += chunk_bytes;
  Chunk& added = *(chunks_[chunk_base] = std::move(chunk));
  return TakeFrom(chunk_base, added, bytes, base, store);
}

bool Suballocator::TakeFrom(CUdeviceptr chunk_base, Chunk& chunk, uint64_t bytes, CUdeviceptr* base,
                            std::shared_ptr<Store>* store) {
  for (auto extent = chunk.free.begin(); extent != chunk.free.end(); ++extent) {
    const uint64_t offset = extent->first;
    const uint64_t extent_bytes = extent->second;
    if (extent_bytes < bytes) continue;
    chunk.free.erase(extent);
    if (extent_bytes > bytes) chunk.free[offset + bytes] = extent_bytes - bytes;
    chunk.free_bytes -= bytes;
    used_bytes_ += bytes;
    *base = chunk_base + offset;
    *store = Store::Slice(chunk.frames, offset, bytes);
    return true;
  }
  return false;
}

void Suballocator::Free(CUdeviceptr base, uint64_t bytes) {
  bytes = RoundUp(bytes, kUnit);
  const auto found = std::prev(chunks_.upper_bound(base));
  Chunk& chunk = *found->second;
  uint64_t offset = base - found->first;
  chunk.free_bytes += bytes;
  used_bytes_ -= bytes;
  auto next = chunk.free.lower_bound(offset);
  if (next != chunk.free.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = chunk.free.erase(next);
  }
  if (next != chunk.free.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
    std::prev(next)->second += bytes;
  } else {
    chunk.free[offset] = bytes;
  }
  if (keep_ == Keep::kReleaseAtOnce && chunk.free_bytes == chunk.bytes) Release(found);
}

Suballocator::Chunks::iterator Suballocator::Release(Chunks::iterator chunk) {
  reserved_bytes_ -= chunk->second->bytes;
  space_->GiveAddresses(chunk->first, chunk->second->bytes);
  return chunks_.erase(chunk);
}

void Suballocator::Trim(uint64_t keep_bytes) {
  for (auto chunk = chunks_.begin(); chunk != chunks_.end() && reserved_bytes_ > keep_bytes;) {
    const bool free = chunk->second->free_bytes == chunk->second->bytes;
    chunk = free ? Release(chunk) : std::next(chunk);
  }
}

}  // namespace weir::sim
