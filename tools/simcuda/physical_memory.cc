#include "tools/simcuda/physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include "tools/simcuda/time.h"

namespace weir::sim {
namespace {

// Never reset, so that a store of before a Reset is never mistaken for one of after it.
uint64_t NextStoreId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Arena::Arena(uint64_t bytes, uint64_t frame_bytes)
    : capacity_(bytes / frame_bytes * frame_bytes), frame_bytes_(frame_bytes) {
  fd_ = memfd_create("weir-simulated-gpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(capacity_)) != 0 || !SealFile(fd_)) {
    const std::string reason = std::strerror(errno);
    if (fd_ >= 0) close(fd_);
    throw std::runtime_error("simcuda: cannot create device memory: " + reason);
  }
  void* host = mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (host == MAP_FAILED) {
    const std::string reason = std::strerror(errno);
    close(fd_);
    throw std::runtime_error("simcuda: cannot map device memory: " + reason);
  }
  // A dump of a crashed test should not carry the device's memory.
  madvise(host, capacity_, MADV_DONTDUMP);
  host_ = static_cast<std::byte*>(host);
  free_[0] = capacity_;
}

Arena::~Arena() {
  munmap(host_, capacity_);
  close(fd_);
}

uint64_t Arena::used() {
  ReclaimLeftFrames();
  return used_;
}

uint64_t Arena::available() {
  ReclaimLeftFrames();
  const uint64_t taken = used_ + other_process_bytes_;
  return taken >= capacity_ ? 0 : capacity_ - taken;
}

bool Arena::Take(uint64_t bytes, std::vector<Run>* runs) {
  if (bytes > available()) return false;
  // A look at a few extents finds one that fits in nearly all cases; a physical object may also
  // lie in pieces, so there is no need to search on.
  constexpr int kLook = 16;
  auto fit = free_.begin();
  for (int i = 0; i < kLook && fit != free_.end() && fit->second < bytes; ++i) ++fit;
  if (fit == free_.end() || fit->second < bytes) fit = free_.begin();
  used_ += bytes;
  while (bytes > 0) {
    const uint64_t offset = fit->first;
    const uint64_t available_here = fit->second;
    const uint64_t taken = std::min(bytes, available_here);
    runs->push_back({host_ + offset, taken});
    bytes -= taken;
    fit = free_.erase(fit);
    if (taken < available_here) free_[offset + taken] = available_here - taken;
  }
  return true;
}

void Arena::Give(const std::vector<Run>& runs, bool touched) {
  for (const Run& run : runs) {
    uint64_t offset = static_cast<uint64_t>(run.host - host_);
    uint64_t bytes = run.bytes;
    used_ -= bytes;
    if (touched) {
      fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(bytes));
    }
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        previous->second += bytes;
        continue;
      }
    }
    free_[offset] = bytes;
  }
}

uint64_t Arena::Publish(const std::shared_ptr<Store>& store, unsigned int handle_types,
                        bool rdma_capable) {
  SharedObject object;
  object.bytes = store->bytes();
  object.device = store->device();
  object.handle_types = handle_types;
  object.rdma_capable = rdma_capable;
  for (const Run& run : store->runs_) {
    object.extents.push_back({static_cast<uint64_t>(run.host - host_), run.bytes});
  }
  const uint64_t position = WriteRecord(fd_, object);
  if (position != 0) published_[position] = store;
  return position;
}

std::shared_ptr<Store> Arena::FindPublished(uint64_t position, int device, Timeline* timeline) {
  const auto found = published_.find(position);
  if (found == published_.end()) return nullptr;
  if (std::shared_ptr<Store> store = found->second.lock()) return store;
  const auto left = left_.find(position);
  if (left == left_.end()) return nullptr;
  uint64_t bytes = 0;
  for (const Run& run : left->second) bytes += run.bytes;
  std::shared_ptr<Store> store(new Store(device, bytes, timeline));
  store->runs_ = std::move(left->second);
  store->arena_ = shared_from_this();
  store->touched_ = true;
  store->position_ = position;
  left_.erase(left);
  found->second = store;
  return store;
}

void Arena::GivePublished(std::vector<Run> runs, uint64_t position) {
  left_[position] = std::move(runs);
  ReclaimLeftFrames();
}

void Arena::ReclaimLeftFrames() {
  for (auto left = left_.begin(); left != left_.end();) {
    if (HeldElsewhere(fd_, left->first)) {
      ++left;
      continue;
    }
    EraseRecord(fd_, left->first);
    published_.erase(left->first);
    Give(left->second, true);
    left = left_.erase(left);
  }
}

Store::Store(int device, uint64_t bytes, Timeline* timeline)
    : id_(NextStoreId()), device_(device), bytes_(bytes), timeline_(timeline) {}

std::shared_ptr<Store> Store::Create(std::shared_ptr<Arena> arena, int device, uint64_t bytes,
                                     Timeline* timeline) {
  std::vector<Run> runs;
  if (!arena->Take(bytes, &runs)) return nullptr;
  std::shared_ptr<Store> store(new Store(device, bytes, timeline));
  store->arena_ = std::move(arena);
  store->runs_ = std::move(runs);
  return store;
}

std::shared_ptr<Store> Store::Slice(std::shared_ptr<Store> parent, uint64_t offset,
                                    uint64_t bytes) {
  std::shared_ptr<Store> store(new Store(parent->device_, bytes, parent->timeline_));
  store->offset_ = offset;
  for (const Run& run : parent->runs_) {
    if (offset >= run.bytes) {
      offset -= run.bytes;
      continue;
    }
    const uint64_t taken = std::min(bytes, run.bytes - offset);
    store->runs_.push_back({run.host + offset, taken});
    bytes -= taken;
    offset = 0;
    if (bytes == 0) break;
  }
  store->parent_ = std::move(parent);
  return store;
}

std::shared_ptr<Store> Store::Host(std::byte* host, uint64_t bytes, Timeline* timeline) {
  std::shared_ptr<Store> store(new Store(-1, bytes, timeline));
  store->runs_.push_back({host, bytes});
  return store;
}

std::shared_ptr<Store> Store::Import(int file, uint64_t position, const SharedObject& object,
                                     Timeline* timeline) {
  std::shared_ptr<Store> store(new Store(object.device, object.bytes, timeline));
  store->import_ = file;
  store->position_ = position;
  for (const SharedObject::Extent& extent : object.extents) {
    void* mapped = mmap(nullptr, extent.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                        file, static_cast<off_t>(extent.offset));
    if (mapped == MAP_FAILED) return nullptr;
    madvise(mapped, extent.bytes, MADV_DONTDUMP);
    store->runs_.push_back({static_cast<std::byte*>(mapped), extent.bytes});
  }
  return store;
}

std::shared_ptr<Store> Store::Whole(const std::shared_ptr<Store>& store) {
  return store->parent_ != nullptr ? store->parent_ : store;
}

bool Store::Publish(const std::shared_ptr<Store>& whole, unsigned int handle_types,
                    bool rdma_capable, int* file, uint64_t* position) {
  if (whole->import_ < 0 && whole->arena_ == nullptr) return false;
  if (whole->position_ == 0) {
    whole->position_ = whole->arena_->Publish(whole, handle_types, rdma_capable);
    whole->touched_ = true;  // by others, unseen
  }
  *file = whole->import_ >= 0 ? whole->import_ : whole->arena_->file();
  *position = whole->position_;
  return whole->position_ != 0;
}

Store::~Store() {
  if (import_ >= 0) {
    for (const Run& run : runs_) munmap(run.host, run.bytes);
    close(import_);
  } else if (arena_ != nullptr && position_ != 0) {
    arena_->GivePublished(std::move(runs_), position_);
  } else if (arena_ != nullptr) {
    arena_->Give(runs_, touched_);
  }
  timeline_->OnStoreReleased(id_);
}

void Store::Touch() {
  touched_ = true;
  if (parent_ != nullptr) parent_->touched_ = true;
}

void Store::AppendSpans(uint64_t offset, uint64_t bytes, std::vector<PhysicalSpan>* spans) const {
  uint64_t at = 0;  // where the run begins in the store
  for (const Run& run : runs_) {
    if (bytes == 0) return;
    if (offset < at + run.bytes) {
      const uint64_t taken = std::min(bytes, at + run.bytes - offset);
      spans->push_back({id_, offset, taken, run.host + (offset - at)});
      offset += taken;
      bytes -= taken;
    }
    at += run.bytes;
  }
}

}  // namespace weir::sim
