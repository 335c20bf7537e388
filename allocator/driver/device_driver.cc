#include "allocator/driver/device_driver.h"

#include <optional>

#include "absl/container/inlined_vector.h"

#include <cstdio>

#include "allocator/driver/device_caps.h"
#include "allocator/driver/driver.h"
#include "allocator/driver/driver_table.h"
#include "allocator/driver/relaxed_capture_scope.h"
#include "allocator/driver/scoped_device_context.h"

namespace weir {

// Name without "cu"; the arguments follow.
#define WEIR_CALL(Name, ...) Call("cu" #Name, driver_.entries().Name __VA_OPT__(, ) __VA_ARGS__)

static thread_local CallSeries* current_series = nullptr;

// Opened by the first call.
struct CallSeries::Scopes {
  explicit Scopes(const DeviceDriver& driver) : device(driver) {}
  const DeviceDriver& device;
  std::optional<ScopedDeviceContext> context;
  std::optional<RelaxedCaptureScope> relaxed;
};

CallSeries::CallSeries(const DeviceDriver& device) : outer_(current_series) {
  if (outer_ != nullptr && &outer_->scopes_->device == &device) return;
  scopes_ = std::make_unique<Scopes>(device);
  current_series = this;
}

CallSeries::~CallSeries() { current_series = outer_; }

template <typename Function, typename... Args>
DriverStatus DeviceDriver::Call(const char* entry, Function function, Args... args) const {
  if (function == nullptr) return DriverStatus(CUDA_ERROR_NOT_SUPPORTED, entry);
  if (current_series != nullptr && &current_series->scopes_->device == this) {
    CallSeries::Scopes& scopes = *current_series->scopes_;
    if (!scopes.context.has_value()) {
      scopes.context.emplace(driver_.entries(), context_);
      if (!scopes.context->status().ok()) {
        DriverStatus status = scopes.context->status();
        scopes.context.reset();
        return status;
      }
      scopes.relaxed.emplace(driver_.entries());
    }
    return DriverStatus(function(args...), entry);
  }
  const ScopedDeviceContext current(driver_.entries(), context_);
  if (!current.status().ok()) return current.status();
  const RelaxedCaptureScope relaxed(driver_.entries());
  return DriverStatus(function(args...), entry);
}

DriverStatus DeviceDriver::Create(const Driver& driver, int ordinal, bool allow_vmm,
                                  std::unique_ptr<DeviceDriver>* out) {
  if (ordinal < 0 || ordinal >= driver.device_count()) {
    return DriverStatus(CUDA_ERROR_INVALID_DEVICE, "cuDeviceGet");
  }
  std::unique_ptr<DeviceDriver> self(new DeviceDriver(driver, ordinal));
  self->device_ = driver.device(ordinal);
  {
    const RelaxedCaptureScope relaxed(driver.entries());
    const DriverStatus retained(
        driver.entries().DevicePrimaryCtxRetain(&self->context_, self->device_),
        "cuDevicePrimaryCtxRetain");
    if (!retained.ok()) return retained;
  }
  const ScopedDeviceContext current(driver.entries(), self->context_);
  if (!current.status().ok()) return current.status();

  const DeviceCaps caps = ProbeDevice(driver, ordinal, allow_vmm);
  self->total_bytes_ = caps.total_bytes;
  self->granularity_ = static_cast<uint64_t>(caps.vmm.value);
  self->posix_handles_ = caps.posix_handles.value != 0;
  self->rdma_ = caps.rdma.value != 0;
  self->vmm_on_ = self->granularity_ != 0;
  if (self->granularity_ == 0) self->vmm_absent_reason_ = caps.vmm.reason;
  self->context_events_on_ = caps.context_events.value != 0;
  *out = std::move(self);
  return {};
}

void DeviceDriver::SwitchOffVmm(const DriverStatus& why) const {
  if (!vmm_on_.exchange(false)) return;
  ++switched_off_;
  std::fprintf(stderr,
               "weir: device %d: %s; mapping memory is off for this process, cuMemAlloc is used\n",
               ordinal_, why.ToString().c_str());
}

void DeviceDriver::SwitchOffContextEvents(const DriverStatus& why) const {
  if (!context_events_on_.exchange(false)) return;
  ++switched_off_;
  std::fprintf(stderr,
               "weir: device %d: %s; context events are off for this process, the context is "
               "synchronized instead\n",
               ordinal_, why.ToString().c_str());
}

// ---- Address space and physical memory ----

DriverStatus DeviceDriver::ReserveAddress(uint64_t bytes, uint64_t alignment,
                                          DeviceAddress* base) const {
  CUdeviceptr address = 0;
  const DriverStatus status = WEIR_CALL(MemAddressReserve, &address, bytes, alignment,
                                        /*addr=*/CUdeviceptr{0}, /*flags=*/0ULL);
  if (status.ok()) *base = address;
  return status;
}

DriverStatus DeviceDriver::FreeAddress(DeviceAddress base, uint64_t bytes) const {
  return WEIR_CALL(MemAddressFree, base, bytes);
}

DriverStatus DeviceDriver::CreateHandle(uint64_t bytes, MemoryHandle* handle) const {
  const CUmemAllocationProp properties = HandleProperties(device_, posix_handles_, rdma_);
  CUmemGenericAllocationHandle created = 0;
  const DriverStatus status = WEIR_CALL(MemCreate, &created, bytes, &properties, /*flags=*/0ULL);
  if (status.ok()) *handle = created;
  return status;
}

DriverStatus DeviceDriver::ReleaseHandle(MemoryHandle handle) const {
  return WEIR_CALL(MemRelease, handle);
}

DriverStatus DeviceDriver::Map(DeviceAddress at, uint64_t bytes, MemoryHandle handle) const {
  return WEIR_CALL(MemMap, at, bytes, /*offset=*/size_t{0}, handle, /*flags=*/0ULL);
}

static CUmemAccessDesc AccessOf(CUdevice device, CUmemAccess_flags flags) {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = flags;
  return access;
}

DriverStatus DeviceDriver::SetAccess(DeviceAddress at, uint64_t bytes) const {
  absl::InlinedVector<CUmemAccessDesc, 9> access{
      AccessOf(device_, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
  for (const int peer : peers_) {
    access.push_back(AccessOf(driver_.device(peer), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  }
  return WEIR_CALL(MemSetAccess, at, bytes, access.data(), access.size());
}

DriverStatus DeviceDriver::Unmap(DeviceAddress at, uint64_t bytes) const {
  return WEIR_CALL(MemUnmap, at, bytes);
}

// ---- Other processes and devices ----

DriverStatus DeviceDriver::ExportHandle(MemoryHandle handle, int* fd) const {
  int exported = -1;
  const DriverStatus status =
      WEIR_CALL(MemExportToShareableHandle, static_cast<void*>(&exported), handle,
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, /*flags=*/0ULL);
  if (status.ok()) *fd = exported;
  return status;
}

DriverStatus DeviceDriver::ImportHandle(int fd, MemoryHandle* handle) const {
  CUmemGenericAllocationHandle imported = 0;
  const DriverStatus status = WEIR_CALL(MemImportFromShareableHandle, &imported,
                                        reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (status.ok()) *handle = imported;
  return status;
}

DriverStatus DeviceDriver::CanBeReached(int peer, bool* can) const {
  int answer = 0;
  const DriverStatus status =
      WEIR_CALL(DeviceCanAccessPeer, &answer, driver_.device(peer), device_);
  if (status.ok()) *can = answer != 0;
  return status;
}

DriverStatus DeviceDriver::SetPeerAccess(DeviceAddress at, uint64_t bytes, int peer,
                                         bool access) const {
  const CUmemAccessDesc description =
      AccessOf(driver_.device(peer),
               access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE);
  return WEIR_CALL(MemSetAccess, at, bytes, &description, size_t{1});
}

DriverStatus DeviceDriver::OpenClassicTo(int peer) const {
  const DriverTable& entries = driver_.entries();
  constexpr const char* kEntry = "cuCtxEnablePeerAccess";
  if (entries.CtxEnablePeerAccess == nullptr) return DriverStatus(CUDA_ERROR_NOT_SUPPORTED, kEntry);
  const RelaxedCaptureScope relaxed(entries);
  CUcontext context = nullptr;
  const DriverStatus retained(entries.DevicePrimaryCtxRetain(&context, driver_.device(peer)),
                              "cuDevicePrimaryCtxRetain");
  if (!retained.ok()) return retained;
  const ScopedDeviceContext current(entries, context);
  if (!current.status().ok()) return current.status();
  const CUresult result = entries.CtxEnablePeerAccess(context_, 0);
  return DriverStatus(result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : result,
                      kEntry);
}

// ---- Classic memory ----

DriverStatus DeviceDriver::AllocateClassic(uint64_t bytes, DeviceAddress* at) const {
  CUdeviceptr address = 0;
  const DriverStatus status = WEIR_CALL(MemAlloc, &address, bytes);
  if (status.ok()) *at = address;
  return status;
}

DriverStatus DeviceDriver::FreeClassic(DeviceAddress at) const { return WEIR_CALL(MemFree, at); }

// ---- Events and streams ----

DriverStatus DeviceDriver::CreateEvent(Event* event) const {
  CUevent created = nullptr;
  const DriverStatus status =
      WEIR_CALL(EventCreate, &created, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
  if (status.ok()) *event = created;
  return status;
}

DriverStatus DeviceDriver::DestroyEvent(Event event) const {
  return WEIR_CALL(EventDestroy, event);
}

DriverStatus DeviceDriver::RecordEvent(Event event, Stream stream) const {
  return WEIR_CALL(EventRecord, event, stream);
}

DriverStatus DeviceDriver::RecordContextEvent(Event event) const {
  return WEIR_CALL(CtxRecordEvent, context_, event);
}

DriverStatus DeviceDriver::QueryEvent(Event event, bool* complete) const {
  const DriverStatus status = WEIR_CALL(EventQuery, event);
  const bool not_ready = status.error_class() == DriverErrorClass::kNotReady;
  if (!status.ok() && !not_ready) return status;
  *complete = !not_ready;
  return {};
}

DriverStatus DeviceDriver::SynchronizeEvent(Event event) const {
  return WEIR_CALL(EventSynchronize, event);
}

DriverStatus DeviceDriver::WaitEvent(Stream stream, Event event) const {
  return WEIR_CALL(StreamWaitEvent, stream, event, /*flags=*/0U);
}

DriverStatus DeviceDriver::SynchronizeStream(Stream stream) const {
  return WEIR_CALL(StreamSynchronize, stream);
}

DriverStatus DeviceDriver::SynchronizeContext() const { return WEIR_CALL(CtxSynchronize); }

DriverStatus DeviceDriver::StreamDevice(Stream stream, int* ordinal) const {
  CUcontext context = nullptr;
  const DriverStatus status = WEIR_CALL(StreamGetCtx, stream, &context);
  if (!status.ok()) return status;
  const ScopedDeviceContext current(driver_.entries(), context);
  if (!current.status().ok()) return current.status();
  CUdevice device = 0;
  const DriverStatus found(driver_.entries().CtxGetDevice(&device), "cuCtxGetDevice");
  if (found.ok()) *ordinal = driver_.OrdinalOf(device);
  return found;
}

DriverStatus DeviceDriver::IsCapturing(Stream stream, bool* capturing) const {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const DriverStatus status = WEIR_CALL(StreamIsCapturing, stream, &capture);
  const bool implicit = status.result() == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (!status.ok() && !implicit) return status;
  *capturing = implicit || capture != CU_STREAM_CAPTURE_STATUS_NONE;
  return {};
}

// ---- Copies and figures ----

DriverStatus DeviceDriver::Copy(DeviceAddress dst, DeviceAddress src, uint64_t bytes,
                                Stream stream) const {
  return WEIR_CALL(MemcpyAsync, dst, src, bytes, stream);
}

DriverStatus DeviceDriver::Fill(DeviceAddress dst, uint8_t value, uint64_t bytes,
                                Stream stream) const {
  return WEIR_CALL(MemsetD8Async, dst, value, bytes, stream);
}

DriverStatus DeviceDriver::MemGetInfo(uint64_t* free_bytes, uint64_t* total_bytes) const {
  size_t free = 0;
  size_t total = 0;
  const DriverStatus status = WEIR_CALL(MemGetInfo, &free, &total);
  if (status.ok()) {
    *free_bytes = free;
    *total_bytes = total;
  }
  return status;
}

uint64_t DeviceDriver::NowNs() const { return driver_.NowNs(); }

#undef WEIR_CALL

}  // namespace weir
