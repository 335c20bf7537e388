// What checks make on the device, given back when it goes out of scope. Constructors throw
// DriverFailure; destructors ignore errors, because then there is nothing left to report them to.
#ifndef WEIR_TOOLS_GPU_CHECK_RESOURCES_H_
#define WEIR_TOOLS_GPU_CHECK_RESOURCES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tools/gpu_check/gpu.h"

namespace weir::gpu_check {

class ScopedStream {
 public:
  explicit ScopedStream(const Gpu& gpu, unsigned flags = CU_STREAM_NON_BLOCKING) : gpu_(gpu) {
    Must(Need(gpu.api().StreamCreate, "cuStreamCreate")(&stream_, flags), "cuStreamCreate");
  }
  ~ScopedStream() { (void)gpu_.api().StreamDestroy(stream_); }
  ScopedStream(const ScopedStream&) = delete;
  ScopedStream& operator=(const ScopedStream&) = delete;
  CUstream get() const { return stream_; }
  void Wait() const { Must(gpu_.api().StreamSynchronize(stream_), "cuStreamSynchronize"); }

 private:
  const Gpu& gpu_;
  CUstream stream_ = nullptr;
};

class ScopedEvent {
 public:
  explicit ScopedEvent(const Gpu& gpu) : gpu_(gpu) {
    Must(gpu.api().EventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  }
  ~ScopedEvent() { (void)gpu_.api().EventDestroy(event_); }
  ScopedEvent(const ScopedEvent&) = delete;
  ScopedEvent& operator=(const ScopedEvent&) = delete;
  CUevent get() const { return event_; }
  bool IsComplete() const {
    const CUresult result = gpu_.api().EventQuery(event_);
    if (result != CUDA_ERROR_NOT_READY) Must(result, "cuEventQuery");
    return result == CUDA_SUCCESS;
  }
  void Wait() const { Must(gpu_.api().EventSynchronize(event_), "cuEventSynchronize"); }

 private:
  const Gpu& gpu_;
  CUevent event_ = nullptr;
};

// Pinned memory that kernels reach under the same address.
class ScopedPinned {
 public:
  ScopedPinned(const Gpu& gpu, uint64_t bytes) : gpu_(gpu) {
    Must(Need(gpu.api().MemHostAlloc, "cuMemHostAlloc")(
             &memory_, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
         "cuMemHostAlloc");
    std::memset(memory_, 0, bytes);
  }
  ~ScopedPinned() { (void)gpu_.api().MemFreeHost(memory_); }
  ScopedPinned(const ScopedPinned&) = delete;
  ScopedPinned& operator=(const ScopedPinned&) = delete;
  void* get() const { return memory_; }
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(memory_); }

 private:
  const Gpu& gpu_;
  void* memory_ = nullptr;
};

class ScopedDeviceMemory {
 public:
  ScopedDeviceMemory(const Gpu& gpu, uint64_t bytes) : gpu_(gpu) {
    Must(gpu.api().MemAlloc(&address_, bytes), "cuMemAlloc");
  }
  ~ScopedDeviceMemory() {
    if (address_ != 0) (void)gpu_.api().MemFree(address_);
  }
  ScopedDeviceMemory(const ScopedDeviceMemory&) = delete;
  ScopedDeviceMemory& operator=(const ScopedDeviceMemory&) = delete;
  CUdeviceptr get() const { return address_; }
  // The caller has freed it.
  void Forget() { address_ = 0; }

 private:
  const Gpu& gpu_;
  CUdeviceptr address_ = 0;
};

// Streams spin on it until it is opened. Opened at the end at the latest, after which nothing of
// the context spins any more: declare it after the streams and before what needs them idle.
class Gate {
 public:
  explicit Gate(const Gpu& gpu) : gpu_(gpu), flag_(gpu, sizeof(uint32_t)) {}
  ~Gate() {
    Open();
    (void)gpu_.api().CtxSynchronize();
  }
  void Hold(CUstream stream) { gpu_.kernels().Spin(stream, flag()); }
  void Open() {
    if (!open_) gpu_.kernels().Open(flag());
    open_ = true;
  }

 private:
  uint32_t* flag() const { return static_cast<uint32_t*>(flag_.get()); }
  const Gpu& gpu_;
  ScopedPinned flag_;
  bool open_ = false;
};

class ScopedHandle {
 public:
  ScopedHandle(const Gpu& gpu, uint64_t bytes) : gpu_(gpu) {
    const CUmemAllocationProp properties = gpu.Properties();
    Must(gpu.api().MemCreate(&handle_, bytes, &properties, 0), "cuMemCreate");
  }
  ~ScopedHandle() {
    if (handle_ != 0) (void)gpu_.api().MemRelease(handle_);
  }
  ScopedHandle(const ScopedHandle&) = delete;
  ScopedHandle& operator=(const ScopedHandle&) = delete;
  CUmemGenericAllocationHandle get() const { return handle_; }
  void Forget() { handle_ = 0; }

 private:
  const Gpu& gpu_;
  CUmemGenericAllocationHandle handle_ = 0;
};

// Address space with what is mapped in it through Map. Mappings that a check changes itself, it
// removes itself.
class ScopedRange {
 public:
  ScopedRange(const Gpu& gpu, uint64_t bytes, CUdeviceptr hint = 0) : gpu_(gpu), bytes_(bytes) {
    const uint64_t alignment = gpu.Granularity();
    Must(gpu.api().MemAddressReserve(&base_, bytes, alignment, hint, 0), "cuMemAddressReserve");
  }
  ~ScopedRange() {
    for (const Mapping& mapping : mappings_) (void)gpu_.api().MemUnmap(mapping.at, mapping.bytes);
    if (base_ != 0) (void)gpu_.api().MemAddressFree(base_, bytes_);
  }
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;
  CUdeviceptr base() const { return base_; }
  uint64_t bytes() const { return bytes_; }

  // Maps with access for the device.
  void Map(uint64_t offset, uint64_t bytes, CUmemGenericAllocationHandle handle) {
    MapOnly(offset, bytes, handle);
    Must(SetAccess(gpu_, base_ + offset, bytes), "cuMemSetAccess");
  }
  // Without access.
  void MapOnly(uint64_t offset, uint64_t bytes, CUmemGenericAllocationHandle handle) {
    Must(TryMap(offset, bytes, handle), "cuMemMap");
  }
  CUresult TryMap(uint64_t offset, uint64_t bytes, CUmemGenericAllocationHandle handle) {
    const CUresult result = gpu_.api().MemMap(base_ + offset, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) mappings_.push_back({base_ + offset, bytes});
    return result;
  }
  // The caller has unmapped all of it.
  void ForgetMappings() { mappings_.clear(); }

  static CUresult SetAccess(const Gpu& gpu, CUdeviceptr at, uint64_t bytes) {
    CUmemAccessDesc access = {};
    access.location = gpu.Properties().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return gpu.api().MemSetAccess(at, bytes, &access, 1);
  }

 private:
  struct Mapping {
    CUdeviceptr at;
    uint64_t bytes;
  };
  const Gpu& gpu_;
  const uint64_t bytes_;
  CUdeviceptr base_ = 0;
  std::vector<Mapping> mappings_;
};

inline bool AllAre(const std::vector<uint8_t>& data, uint8_t value) {
  return std::all_of(data.begin(), data.end(), [=](uint8_t byte) { return byte == value; });
}

}  // namespace weir::gpu_check

#endif  // WEIR_TOOLS_GPU_CHECK_RESOURCES_H_
