// DeviceDriver: the calls the allocator makes to the driver, for one device.
//
// This is the border: code above it sees no cuda.h. Each method makes one driver call (named beside
// it; its contract is in entry_points.inc) on the device's primary context, inside a scope in which
// the thread's capture mode is relaxed, so that no slow path of Weir can invalidate somebody's
// stream capture. Every method may block in the driver and so is called without the heap lock.
// Methods only forward: they mend nothing, and out parameters are written only on success. The only
// state is which optional mechanisms have been switched off. Thread-safe.
#ifndef WEIR_DRIVER_DEVICE_DRIVER_H_
#define WEIR_DRIVER_DEVICE_DRIVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/driver/driver_status.h"

struct CUstream_st;
struct CUevent_st;
struct CUctx_st;

namespace weir {

using DeviceAddress = uint64_t;  // CUdeviceptr
using MemoryHandle = uint64_t;   // CUmemGenericAllocationHandle
using Stream = CUstream_st*;     // CUstream
using Event = CUevent_st*;       // CUevent

class Driver;  // driver.h: the table of entry points
class DeviceDriver;

// For its lifetime all calls that the thread makes to the device share one change of context and
// one relaxed capture scope, which the first call opens: a slow path has one around its driver
// calls. Not around callbacks.
class CallSeries {
 public:
  explicit CallSeries(const DeviceDriver& device);
  ~CallSeries();
  CallSeries(const CallSeries&) = delete;
  CallSeries& operator=(const CallSeries&) = delete;

 private:
  friend class DeviceDriver;
  struct Scopes;
  std::unique_ptr<Scopes> scopes_;  // null inside another series of the same device
  CallSeries* const outer_;
};

class DeviceDriver {
 public:
  // Retains the device's primary context for the life of the process and probes what the device
  // can do. allow_vmm = false: the device is used as if memory could not be mapped.
  static DriverStatus Create(const Driver& driver, int ordinal, bool allow_vmm,
                             std::unique_ptr<DeviceDriver>* out);

  int ordinal() const { return ordinal_; }
  uint64_t total_bytes() const { return total_bytes_; }
  // Whether new physical memory can be mapped (cuMemCreate and its kin); if it never could, why.
  bool has_vmm() const { return vmm_on_.load(std::memory_order_relaxed); }
  const std::string& vmm_absent_reason() const { return vmm_absent_reason_; }
  // The unit in which memory is mapped, 0 if VMM was absent from the start.
  uint64_t granularity() const { return granularity_; }
  // Whether one event can prove completion of the whole context (cuCtxRecordEvent, driver 12.5).
  bool has_context_events() const { return context_events_on_.load(std::memory_order_relaxed); }

  // An optional mechanism failed where it should not have: it is off for the rest of the process,
  // with one line on stderr. What it made before stays valid, and can still be given back.
  void SwitchOffVmm(const DriverStatus& why) const;
  void SwitchOffContextEvents(const DriverStatus& why) const;
  uint64_t mechanisms_switched_off() const { return switched_off_.load(std::memory_order_relaxed); }

  // Address space. Sizes and alignment are multiples of the granularity.
  DriverStatus ReserveAddress(uint64_t bytes, uint64_t alignment, DeviceAddress* base) const;
  DriverStatus FreeAddress(DeviceAddress base, uint64_t bytes) const;

  // Physical memory: device memory of this device, shareable by file descriptor where supported.
  DriverStatus CreateHandle(uint64_t bytes, MemoryHandle* handle) const;  // cuMemCreate
  DriverStatus ReleaseHandle(MemoryHandle handle) const;                  // cuMemRelease

  // A whole handle at an address. The mapping has no access until SetAccess over the range.
  DriverStatus Map(DeviceAddress at, uint64_t bytes, MemoryHandle handle) const;  // cuMemMap
  // For this device and its peers.
  DriverStatus SetAccess(DeviceAddress at, uint64_t bytes) const;  // cuMemSetAccess
  // Whole mappings only. Does not wait: the caller has proved that nothing uses them.
  DriverStatus Unmap(DeviceAddress at, uint64_t bytes) const;  // cuMemUnmap

  // Other processes. Descriptors are the caller's to close.
  bool can_export() const { return posix_handles_; }
  DriverStatus ExportHandle(MemoryHandle handle, int* fd) const;  // cuMemExportToShareableHandle
  DriverStatus ImportHandle(int fd, MemoryHandle* handle) const;  // cuMemImportFromShareableHandle

  // Other devices that may use this one's memory. Which of them are peers is the caller's to say,
  // and to guard together with SetAccess.
  const std::vector<int>& peers() const { return peers_; }
  void set_peers(std::vector<int> peers) { peers_ = std::move(peers); }
  DriverStatus CanBeReached(int peer, bool* can) const;  // cuDeviceCanAccessPeer
  // One peer's access to what is mapped, given or taken.
  DriverStatus SetPeerAccess(DeviceAddress at, uint64_t bytes, int peer, bool access) const;
  // All classic memory of the device for the peer, whose primary context it retains. Again:
  // success.
  DriverStatus OpenClassicTo(int peer) const;  // cuCtxEnablePeerAccess

  // Classic memory, for devices without VMM and for passthrough. FreeClassic may synchronize.
  DriverStatus AllocateClassic(uint64_t bytes, DeviceAddress* at) const;  // cuMemAlloc
  DriverStatus FreeClassic(DeviceAddress at) const;                       // cuMemFree

  // Events without timing.
  DriverStatus CreateEvent(Event* event) const;                // cuEventCreate
  DriverStatus DestroyEvent(Event event) const;                // cuEventDestroy
  DriverStatus RecordEvent(Event event, Stream stream) const;  // cuEventRecord
  // All work of the context so far. Only if has_context_events().
  DriverStatus RecordContextEvent(Event event) const;  // cuCtxRecordEvent
  // *complete is false when the driver says CUDA_ERROR_NOT_READY, which is not an error.
  DriverStatus QueryEvent(Event event, bool* complete) const;  // cuEventQuery
  DriverStatus SynchronizeEvent(Event event) const;            // cuEventSynchronize
  DriverStatus WaitEvent(Stream stream, Event event) const;    // cuStreamWaitEvent
  DriverStatus SynchronizeStream(Stream stream) const;         // cuStreamSynchronize
  DriverStatus SynchronizeContext() const;                     // cuCtxSynchronize

  // The device a stream belongs to: the ordinal of the context it was created in, -1 if the driver
  // does not list it. The special streams (NULL, 1, 2) belong to the device that uses them.
  DriverStatus StreamDevice(Stream stream, int* ordinal) const;  // cuStreamGetCtx
  // Whether the stream is being captured into a graph, or was until the capture was invalidated
  // (never invalidates a capture). The legacy stream, unusable while a blocking stream is captured,
  // counts as capturing then.
  DriverStatus IsCapturing(Stream stream, bool* capturing) const;  // cuStreamIsCapturing

  // Any mix of host and device pointers.
  DriverStatus Copy(DeviceAddress dst, DeviceAddress src, uint64_t bytes, Stream stream) const;
  DriverStatus Fill(DeviceAddress dst, uint8_t value, uint64_t bytes, Stream stream) const;

  DriverStatus MemGetInfo(uint64_t* free_bytes, uint64_t* total_bytes) const;

  // The clock that slow driver calls are charged by: virtual time on the simulated device, the
  // monotonic clock elsewhere. Nanoseconds.
  uint64_t NowNs() const;

 private:
  friend class CallSeries;
  DeviceDriver(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}

  // Makes one driver call in the context of the device and in relaxed capture mode.
  template <typename Function, typename... Args>
  DriverStatus Call(const char* entry, Function function, Args... args) const;

  const Driver& driver_;
  const int ordinal_;
  int device_ = 0;  // CUdevice
  CUctx_st* context_ = nullptr;
  uint64_t total_bytes_ = 0;
  uint64_t granularity_ = 0;
  std::string vmm_absent_reason_;
  std::vector<int> peers_;  // ordinals
  bool posix_handles_ = false;
  bool rdma_ = false;
  mutable std::atomic<bool> vmm_on_{false};
  mutable std::atomic<uint64_t> switched_off_{0};
  mutable std::atomic<bool> context_events_on_{false};
};

}  // namespace weir

#endif  // WEIR_DRIVER_DEVICE_DRIVER_H_
