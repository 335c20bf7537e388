#include "tools/simcuda/memory_handles.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace weir::sim {
namespace {

// What an exported descriptor holds: enough to find the object again, not the object.
struct Ticket {
  char magic[16];
  int64_t process;
  uint64_t store;
};
constexpr char kMagic[16] = "weir-simcuda-fd";

}  // namespace

CUmemGenericAllocationHandle MemoryHandles::Add(std::shared_ptr<Store> store,
                                                const CUmemAllocationProp& prop) {
  const CUmemGenericAllocationHandle handle = next_++;
  handles_.emplace(handle, MemoryHandle{std::move(store), prop});
  return handle;
}

MemoryHandle* MemoryHandles::Find(CUmemGenericAllocationHandle handle) {
  const auto found = handles_.find(handle);
  return found == handles_.end() || found->second.references == 0 ? nullptr : &found->second;
}

bool MemoryHandles::Release(CUmemGenericAllocationHandle handle) {
  MemoryHandle* found = Find(handle);
  if (found == nullptr) return false;
  --found->references;
  EraseIfDead(handle);
  return true;
}

void MemoryHandles::RemoveMapping(CUmemGenericAllocationHandle handle) {
  --handles_.at(handle).mappings;
  EraseIfDead(handle);
}

void MemoryHandles::EraseIfDead(CUmemGenericAllocationHandle handle) {
  const auto found = handles_.find(handle);
  if (found->second.references == 0 && found->second.mappings == 0) handles_.erase(found);
}

int MemoryHandles::Export(const MemoryHandle& handle) {
  Ticket ticket{};
  std::memcpy(ticket.magic, kMagic, sizeof(kMagic));
  ticket.process = getpid();
  ticket.store = handle.store->id();
  const int fd = memfd_create("weir-simulated-handle", MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (pwrite(fd, &ticket, sizeof(ticket), 0) != static_cast<ssize_t>(sizeof(ticket))) {
    close(fd);
    return -1;
  }
  return fd;
}

CUmemGenericAllocationHandle MemoryHandles::Import(int fd) {
  Ticket ticket{};
  if (pread(fd, &ticket, sizeof(ticket), 0) != static_cast<ssize_t>(sizeof(ticket))) return 0;
  if (std::memcmp(ticket.magic, kMagic, sizeof(kMagic)) != 0 || ticket.process != getpid())
    return 0;
  for (const auto& [value, handle] : handles_) {
    if (handle.store->id() != ticket.store) continue;
    const CUmemAllocationProp properties = handle.properties;
    return Add(handle.store, properties);
  }
  return 0;
}

}  // namespace weir::sim
