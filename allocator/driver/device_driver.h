// DeviceDriver: the calls the allocator makes to the driver, for one device.
//
// This is the border: code above it sees no cuda.h. Each method makes one driver call (named beside
// it; its contract is in driver_table.h) on the device's primary context, inside a scope in which
// the thread's capture mode is relaxed, so that no slow path of Weir can invalidate somebody's
// stream capture. Every method may block in the driver and so is called without the heap lock.
// Methods only forward: they keep no state and mend nothing. Thread-safe.
#ifndef WEIR_DRIVER_DEVICE_DRIVER_H_
#define WEIR_DRIVER_DEVICE_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "allocator/driver/driver_status.h"

struct CUstream_st;
struct CUevent_st;
struct CUctx_st;

namespace weir {

using DeviceAddress = uint64_t;   // CUdeviceptr
using MemoryHandle = uint64_t;    // CUmemGenericAllocationHandle
using Stream = CUstream_st*;      // CUstream
using Event = CUevent_st*;        // CUevent

class Driver;  // driver.h: the table of entry points

class DeviceDriver {
 public:
  // Retains the device's primary context, once and for the life of the process, and probes what
  // the device can do.
  static DriverStatus Create(const Driver& driver, int ordinal, std::unique_ptr<DeviceDriver>* out);

  int ordinal() const { return ordinal_; }
  uint64_t total_bytes() const { return total_bytes_; }
  // Whether physical memory can be mapped (cuMemCreate and its kin); if not, why.
  bool has_vmm() const { return granularity_ != 0; }
  const std::string& vmm_absent_reason() const { return vmm_absent_reason_; }
  // The unit in which memory is mapped, 0 without VMM.
  uint64_t granularity() const { return granularity_; }
  // Whether one event can prove completion of the whole context (cuCtxRecordEvent, driver 12.5).
  bool has_context_events() const { return has_context_events_; }

  // Address space. Sizes and alignment are multiples of the granularity.
  DriverStatus ReserveAddress(uint64_t bytes, uint64_t alignment, DeviceAddress* base) const;
  DriverStatus FreeAddress(DeviceAddress base, uint64_t bytes) const;

  // Physical memory: device memory of this device, shareable by file descriptor where supported.
  DriverStatus CreateHandle(uint64_t bytes, MemoryHandle* handle) const;   // cuMemCreate
  DriverStatus ReleaseHandle(MemoryHandle handle) const;                    // cuMemRelease

  // A whole handle at an address. The mapping has no access until SetAccess over the range.
  DriverStatus Map(DeviceAddress at, uint64_t bytes, MemoryHandle handle) const;  // cuMemMap
  DriverStatus SetAccess(DeviceAddress at, uint64_t bytes) const;           // cuMemSetAccess
  // Whole mappings only. Does not wait: the caller has proved that nothing uses them.
  DriverStatus Unmap(DeviceAddress at, uint64_t bytes) const;               // cuMemUnmap

  // Classic memory, for devices without VMM and for passthrough. FreeClassic may synchronize.
  DriverStatus AllocateClassic(uint64_t bytes, DeviceAddress* at) const;    // cuMemAlloc
  DriverStatus FreeClassic(DeviceAddress at) const;                         // cuMemFree

  // Events without timing.
  DriverStatus CreateEvent(Event* event) const;                             // cuEventCreate
  DriverStatus DestroyEvent(Event event) const;                             // cuEventDestroy
  DriverStatus RecordEvent(Event event, Stream stream) const;               // cuEventRecord
  // All work of the context so far. Only if has_context_events().
  DriverStatus RecordContextEvent(Event event) const;                       // cuCtxRecordEvent
  // *complete is false when the driver says CUDA_ERROR_NOT_READY, which is not an error.
  DriverStatus QueryEvent(Event event, bool* complete) const;               // cuEventQuery
  DriverStatus SynchronizeEvent(Event event) const;                         // cuEventSynchronize
  DriverStatus WaitEvent(Stream stream, Event event) const;                 // cuStreamWaitEvent
  DriverStatus SynchronizeStream(Stream stream) const;                      // cuStreamSynchronize
  DriverStatus SynchronizeContext() const;                                  // cuCtxSynchronize

  // The device a stream belongs to: the ordinal of the context it was created in.
  DriverStatus StreamDevice(Stream stream, int* ordinal) const;             // cuStreamGetCtx
  // Whether the stream is being captured into a graph (never invalidates the capture).
  DriverStatus IsCapturing(Stream stream, bool* capturing) const;           // cuStreamIsCapturing

  // Any mix of host and device pointers.
  DriverStatus Copy(DeviceAddress dst, DeviceAddress src, uint64_t bytes, Stream stream) const;
  DriverStatus Fill(DeviceAddress dst, uint8_t value, uint64_t bytes, Stream stream) const;

  DriverStatus MemGetInfo(uint64_t* free_bytes, uint64_t* total_bytes) const;

  // The clock that slow driver calls are charged by: virtual time on the simulated device, the
  // monotonic clock elsewhere. Nanoseconds.
  uint64_t NowNs() const;

 private:
  friend class ScopedDeviceContext;
  DeviceDriver(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}

  const Driver& driver_;
  const int ordinal_;
  CUctx_st* context_ = nullptr;
  uint64_t total_bytes_ = 0;
  uint64_t granularity_ = 0;
  std::string vmm_absent_reason_;
  bool has_context_events_ = false;
  bool shareable_handles_ = false;
  bool rdma_capable_ = false;
};

}  // namespace weir

#endif  // WEIR_DRIVER_DEVICE_DRIVER_H_
