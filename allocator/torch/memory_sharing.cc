#include "memory_sharing.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "torch_allocator.h"
#include "weir/inspect.h"
#include "weir/share.h"
#include "weir/weir.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace weir::torch_plugin {
namespace {

constexpr char kVersion = 2, kClassic = 'c', kMapped = 'e', kMixed = 'w';
constexpr size_t kMostHandles = size_t{1} << 20;

struct Header {
  pid_t process;
  size_t handle_bytes;
  size_t count;
};

template <typename T>
void Put(std::ostream& out, const T& value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Throws if the text ends.
template <typename T>
T Take(std::istream& in) {
  T value{};
  in.read(reinterpret_cast<char*>(&value), sizeof(value));
  TORCH_CHECK(in.good(), "the description of shared memory ends too early");
  return value;
}

// Descriptors that are closed.
struct Descriptors {
  std::vector<int> list;
  ~Descriptors() {
    for (const int fd : list) close(fd);
  }
};

// Copies descriptors of another process into this one.
void Fetch(pid_t process, const std::vector<int>& theirs, Descriptors* ours) {
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  TORCH_CHECK(pidfd != -1, "process ", process,
              ", which shares the memory, cannot be opened: ", std::strerror(errno),
              ". pidfd_open needs Linux 5.3.");
  const Descriptors closer{{pidfd}};
  for (const int fd : theirs) {
    const auto copy = static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, fd, 0));
    TORCH_CHECK(copy != -1, "descriptor ", fd, " of process ", process,
                ", which shares the memory, cannot be fetched: ", std::strerror(errno),
                ". pidfd_getfd needs Linux 5.6 and the right to trace that process.");
    ours->list.push_back(copy);
  }
}

}  // namespace

ShareableHandle MemorySharing::Share(void* ptr) {
  weir_block_info_t block{};
  weir_segment_info_t segment{};
  const bool found =
      weir_find_block(ptr, &block, &segment) == WEIR_OK && block.state == WEIR_BLOCK_ALLOCATED;
  TORCH_CHECK(found, "invalid device pointer: ", ptr);
  const std::lock_guard lock(mu_);
  if (const auto known = exports_.find(block.address); known != exports_.end()) {
    return known->second.handle;
  }
  std::ostringstream text;
  text.put(kVersion);
  if (!segment.is_mapped) {
    text.put(kClassic);
    cudaIpcMemHandle_t handle;
    C10_CUDA_CHECK(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(segment.address)));
    Put(text, handle);
    return {static_cast<ptrdiff_t>(block.address - segment.address), text.str()};
  }
  weir_export_t exported{};
  weir_export(ptr, nullptr, nullptr, 0, &exported);
  std::vector<uint64_t> bytes(exported.count);
  Export record;
  record.descriptors.resize(exported.count);
  TORCH_CHECK(weir_export(ptr, bytes.data(), record.descriptors.data(), exported.count,
                          &exported) == WEIR_OK,
              weir_last_error());
  const bool uniform =
      std::all_of(bytes.begin(), bytes.end(), [&](uint64_t each) { return each == bytes.front(); });
  text.put(uniform ? kMapped : kMixed);
  Header header;
  std::memset(&header, 0, sizeof(header));  // its gaps are sent too
  header.process = getpid();
  header.handle_bytes = uniform ? bytes.front() : 0;
  header.count = exported.count;
  Put(text, header);
  for (const int fd : record.descriptors) Put(text, fd);
  if (!uniform) {
    for (const uint64_t each : bytes) Put(text, each);
  }
  record.handle = {static_cast<ptrdiff_t>(exported.offset), text.str()};
  has_exports_.store(true);
  return exports_.emplace(block.address, std::move(record)).first->second.handle;
}

void MemorySharing::OnFree(void* ptr) {
  Descriptors closing;
  const std::lock_guard lock(mu_);
  const auto known = exports_.find(reinterpret_cast<uintptr_t>(ptr));
  if (known == exports_.end()) return;
  closing.list = std::move(known->second.descriptors);
  exports_.erase(known);
  has_exports_.store(!exports_.empty());
  TORCH_CHECK(weir_unexport(ptr) == WEIR_OK, weir_last_error());
}

void* MemorySharing::Map(const std::string& handle, DeviceIndex device, bool* is_classic) {
  std::istringstream text(handle);
  const auto version = Take<char>(text), kind = Take<char>(text);
  TORCH_CHECK(version == kVersion, "shared memory is described in version ",
              static_cast<int>(version), ", this PyTorch's is ", static_cast<int>(kVersion));
  void* ptr = nullptr;
  *is_classic = kind == kClassic;
  if (*is_classic) {
    const auto memory = Take<cudaIpcMemHandle_t>(text);
    C10_CUDA_CHECK(cudaIpcOpenMemHandle(&ptr, memory, cudaIpcMemLazyEnablePeerAccess));
    return ptr;
  }
  TORCH_CHECK(kind == kMapped || kind == kMixed, "unknown kind of shared memory '", kind, "'");
  const auto header = Take<Header>(text);
  TORCH_CHECK(header.count > 0 && header.count <= kMostHandles, "shared memory is described with ",
              header.count, " handles");
  std::vector<int> theirs(header.count);
  std::vector<uint64_t> bytes(header.count, header.handle_bytes);
  for (int& fd : theirs) fd = Take<int>(text);
  if (kind == kMixed) {
    for (uint64_t& each : bytes) each = Take<uint64_t>(text);
  }
  Descriptors ours;
  Fetch(header.process, theirs, &ours);
  TORCH_CHECK(weir_import(device, ours.list.data(), bytes.data(), header.count, &ptr) == WEIR_OK,
              weir_last_error());
  return ptr;
}

std::shared_ptr<void> MemorySharing::Open(const std::string& handle, DeviceIndex device) {
  std::unique_lock lock(mu_);
  for (;;) {
    const auto known = imports_.find(handle);
    if (known == imports_.end()) break;
    if (std::shared_ptr<void> ptr = known->second.lock()) return ptr;
    closed_.wait(lock);  // its last user is closing it on another thread
  }
  bool is_classic = false;
  void* mapped = Map(handle, device, &is_classic);
  std::shared_ptr<void> ptr(mapped, [this, handle, device, is_classic](void* p) {
    Close(handle, p, device, is_classic);
  });
  imports_[handle] = ptr;
  return ptr;
}

void MemorySharing::Close(const std::string& handle, void* ptr, DeviceIndex device,
                          bool is_classic) {
  {
    const std::lock_guard lock(mu_);
    if (is_classic) {
      const c10::cuda::CUDAGuard guard(device);
      C10_CUDA_CHECK_WARN(cudaIpcCloseMemHandle(ptr));
    } else if (weir_close_import(ptr) != WEIR_OK) {
      TORCH_WARN("memory of another process stays mapped: ", weir_last_error());
    }
    imports_.erase(handle);
  }
  closed_.notify_all();
}

// ---- The allocator's part -----------------------------------------------------------------------

ShareableHandle TorchAllocator::shareIpcHandle(void* ptr) { return sharing_.Share(ptr); }

std::shared_ptr<void> TorchAllocator::getIpcDevPtr(std::string handle) {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return sharing_.Open(handle, device);
}

}  // namespace weir::torch_plugin
