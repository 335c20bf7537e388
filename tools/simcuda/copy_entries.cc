// Entry points that move bytes: copies and fills, which really move them.
//
// Pageable host memory is what the simulator does not own; it is copied at the call when it is the
// source, and makes the copy synchronous when it is the target (both are legal by the driver's
// synchronization rules, driver.md section 8). In a capture it is used at replay, as by the driver.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tools/simcuda/time_entries.h"

namespace weir::sim {
namespace {

enum class Waiting { kAsync, kSync };  // the entry's form

struct CopyRequest {
  const char* entry;
  CUdeviceptr to;
  CUdeviceptr from;
  uint64_t bytes;
  CUstream stream;
  Waiting waiting;
  bool peer = false;  // each side is seen by its own device, given here
  int to_device = -1;
  int from_device = -1;
};

bool Owned(CUdeviceptr address) { return Time().translator()->Owns(address); }
bool OwnedHost(CUdeviceptr address) {
  const Range* const range = Simulator::Get().space().Find(address);
  return range != nullptr && range->is_host();
}

// Sequential access to memory that may be split over physical spans.
class Cursor {
 public:
  explicit Cursor(absl::Span<const PhysicalSpan> spans) : spans_(spans) {}
  explicit Cursor(std::byte* flat) : flat_(flat) {}
  // The next bytes, at most `wanted` of them; sets how many.
  std::byte* Next(uint64_t wanted, uint64_t* got) const {
    *got = flat_ != nullptr ? wanted : std::min(wanted, spans_.front().bytes - offset_);
    return flat_ != nullptr ? flat_ + offset_ : spans_.front().host + offset_;
  }
  void Advance(uint64_t bytes) {
    offset_ += bytes;
    if (flat_ != nullptr || offset_ < spans_.front().bytes) return;
    spans_.remove_prefix(1);
    offset_ = 0;
  }

 private:
  absl::Span<const PhysicalSpan> spans_;
  std::byte* flat_ = nullptr;
  uint64_t offset_ = 0;  // in the flat memory or the first span
};

void MoveBytes(Cursor to, Cursor from, uint64_t bytes) {
  while (bytes > 0) {
    uint64_t n = 0;
    uint64_t m = 0;
    std::byte* const target = to.Next(bytes, &n);
    const std::byte* const source = from.Next(n, &m);
    std::memmove(target, source, m);
    to.Advance(m);
    from.Advance(m);
    bytes -= m;
  }
}

// What synchronous forms and captures have to say about each other.
CUresult CheckSynchronous(const Stream& stream) {
  if (const CUresult result = RefuseWhileCapturing(stream); result != CUDA_SUCCESS) return result;
  if (const CUresult result = Time().CheckLegacy(stream); result != CUDA_SUCCESS) return result;
  return Time().captures().Check(CaptureClass::kUnsafe);
}

Operation MakeCopy(const CopyRequest& request, const Stream& stream, bool to_owned,
                   bool from_owned) {
  TimelineState& time = Time();
  Operation copy;
  copy.kind = OperationKind::kCopy;
  copy.label = time.Label(request.entry);
  const auto add = [&](CUdeviceptr address, bool write, int view) {
    copy.accesses.push_back({address, request.bytes, write});
    if (request.peer) copy.access_devices.push_back(view);
  };
  if (from_owned) add(request.from, false, request.from_device);
  if (to_owned) add(request.to, true, request.to_device);
  auto* const to = reinterpret_cast<std::byte*>(request.to);
  auto* const from = reinterpret_cast<std::byte*>(request.from);
  std::shared_ptr<std::vector<std::byte>> staged;
  if (!from_owned && to_owned && stream.capture == nullptr) {
    staged = std::make_shared<std::vector<std::byte>>(from, from + request.bytes);
  }
  copy.body = [&time, to, from, staged, to_owned, from_owned, bytes = request.bytes] {
    const Cursor target = to_owned ? Cursor(time.RunningSpans(from_owned ? 1 : 0)) : Cursor(to);
    const Cursor source = from_owned          ? Cursor(time.RunningSpans(0))
                          : staged != nullptr ? Cursor(staged->data())
                                              : Cursor(from);
    MoveBytes(target, source, bytes);
    return CUDA_SUCCESS;
  };
  return copy;
}

CUresult Copy(const CopyRequest& request) {
  TimelineState& time = Time();
  const std::shared_ptr<Stream> stream = FindStream(request.stream);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool sync = request.waiting == Waiting::kSync;
  if (sync) {
    if (const CUresult result = CheckSynchronous(*stream); result != CUDA_SUCCESS) return result;
  }
  if (request.bytes == 0) return CUDA_SUCCESS;
  if (request.to == 0 || request.from == 0) return CUDA_ERROR_INVALID_VALUE;
  ChargeBytes(request.bytes);
  const bool to_owned = Owned(request.to);
  const bool from_owned = Owned(request.from);
  const bool from_device = from_owned && !OwnedHost(request.from);
  const bool to_device = to_owned && !OwnedHost(request.to);
  const bool captured = stream->capture != nullptr;
  if (sync && !from_owned && to_owned) {
    // The source is staged once the stream is empty; the last transfer is not awaited.
    const CUresult result = time.Wait(time.StreamMark(stream), stream->device);
    if (result != CUDA_SUCCESS) return result;
  }
  const CUresult result = time.Submit(stream, MakeCopy(request, *stream, to_owned, from_owned));
  if (result != CUDA_SUCCESS || captured) return result;
  const bool host_only = !from_device && !to_device;
  const bool wait =
      sync ? !(from_device && to_device) && !(to_owned && !from_owned) : !to_owned || host_only;
  return wait ? time.Wait(time.StreamMark(stream), stream->device) : CUDA_SUCCESS;
}

// For the forms whose names say on which side device memory is.
CUresult CopyToDevice(const CopyRequest& request) {
  if (request.bytes > 0 && !Owned(request.to)) return CUDA_ERROR_INVALID_VALUE;
  return Copy(request);
}
CUresult CopyFromDevice(const CopyRequest& request) {
  if (request.bytes > 0 && !Owned(request.from)) return CUDA_ERROR_INVALID_VALUE;
  return Copy(request);
}
CUresult CopyOnDevice(const CopyRequest& request) {
  if (request.bytes > 0 && !Owned(request.to)) return CUDA_ERROR_INVALID_VALUE;
  return CopyFromDevice(request);
}

CUresult CopyPeer(CopyRequest request, CUcontext to, CUcontext from) {
  request.peer = true;
  request.to_device = Simulator::Get().DeviceOf(to);
  request.from_device = Simulator::Get().DeviceOf(from);
  if (request.to_device < 0 || request.from_device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  return CopyOnDevice(request);
}

template <typename Value>
CUresult Fill(const char* entry, CUdeviceptr to, Value value, size_t count, CUstream handle,
              Waiting waiting) {
  TimelineState& time = Time();
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool sync = waiting == Waiting::kSync;
  if (sync) {
    if (const CUresult result = CheckSynchronous(*stream); result != CUDA_SUCCESS) return result;
  }
  if (count == 0) return CUDA_SUCCESS;
  if (to % sizeof(Value) != 0 || count > UINT64_MAX / sizeof(Value) || !Owned(to)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t bytes = count * sizeof(Value);
  ChargeBytes(bytes);
  Operation fill;
  fill.kind = OperationKind::kFill;
  fill.label = time.Label(entry);
  fill.accesses.push_back({to, bytes, true});
  fill.body = [&time, value] {
    for (const PhysicalSpan& span : time.RunningSpans(0)) {
      // Spans begin and end at page borders or at those of the fill, so no value is cut.
      auto* const first = reinterpret_cast<Value*>(span.host);
      std::fill(first, first + span.bytes / sizeof(Value), value);
    }
    return CUDA_SUCCESS;
  };
  const CUresult result = time.Submit(stream, std::move(fill));
  if (result != CUDA_SUCCESS || !sync || !OwnedHost(to)) return result;
  return time.Wait(time.StreamMark(stream), stream->device);
}

CUdeviceptr Address(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

const CUstream kLegacy = CU_STREAM_LEGACY;
const CUstream kPerThread = CU_STREAM_PER_THREAD;

}  // namespace

// ---- Asynchronous copies ------------------------------------------------------------------------

CUresult SimMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Copy({"cuMemcpyAsync", to, from, bytes, stream, Waiting::kAsync});
}
CUresult SimMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return CopyToDevice({"cuMemcpyHtoDAsync", to, Address(from), bytes, stream, Waiting::kAsync});
}
CUresult SimMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return CopyFromDevice({"cuMemcpyDtoHAsync", Address(to), from, bytes, stream, Waiting::kAsync});
}
CUresult SimMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return CopyOnDevice({"cuMemcpyDtoDAsync", to, from, bytes, stream, Waiting::kAsync});
}
CUresult SimMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                            CUcontext from_context, size_t bytes, CUstream stream) {
  return CopyPeer({"cuMemcpyPeerAsync", to, from, bytes, stream, Waiting::kAsync}, to_context,
                  from_context);
}

// ---- Synchronous copies, and their per-thread default stream variants ---------------------------

CUresult SimMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return Copy({"cuMemcpy", to, from, bytes, kLegacy, Waiting::kSync});
}
CUresult SimMemcpyPtds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return Copy({"cuMemcpy", to, from, bytes, kPerThread, Waiting::kSync});
}
CUresult SimMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  return CopyToDevice({"cuMemcpyHtoD", to, Address(from), bytes, kLegacy, Waiting::kSync});
}
CUresult SimMemcpyHtoDPtds(CUdeviceptr to, const void* from, size_t bytes) {
  return CopyToDevice({"cuMemcpyHtoD", to, Address(from), bytes, kPerThread, Waiting::kSync});
}
CUresult SimMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  return CopyFromDevice({"cuMemcpyDtoH", Address(to), from, bytes, kLegacy, Waiting::kSync});
}
CUresult SimMemcpyDtoHPtds(void* to, CUdeviceptr from, size_t bytes) {
  return CopyFromDevice({"cuMemcpyDtoH", Address(to), from, bytes, kPerThread, Waiting::kSync});
}
CUresult SimMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CopyOnDevice({"cuMemcpyDtoD", to, from, bytes, kLegacy, Waiting::kSync});
}
CUresult SimMemcpyDtoDPtds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return CopyOnDevice({"cuMemcpyDtoD", to, from, bytes, kPerThread, Waiting::kSync});
}

// ---- Fills --------------------------------------------------------------------------------------

CUresult SimMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return Fill<uint8_t>("cuMemsetD8Async", to, value, count, stream, Waiting::kAsync);
}
CUresult SimMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return Fill<uint32_t>("cuMemsetD32Async", to, value, count, stream, Waiting::kAsync);
}
CUresult SimMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  return Fill<uint8_t>("cuMemsetD8", to, value, count, kLegacy, Waiting::kSync);
}
CUresult SimMemsetD8Ptds(CUdeviceptr to, unsigned char value, size_t count) {
  return Fill<uint8_t>("cuMemsetD8", to, value, count, kPerThread, Waiting::kSync);
}
CUresult SimMemsetD32(CUdeviceptr to, unsigned int value, size_t count) {
  return Fill<uint32_t>("cuMemsetD32", to, value, count, kLegacy, Waiting::kSync);
}
CUresult SimMemsetD32Ptds(CUdeviceptr to, unsigned int value, size_t count) {
  return Fill<uint32_t>("cuMemsetD32", to, value, count, kPerThread, Waiting::kSync);
}

CUresult SimStreamWriteValue32(CUstream stream, CUdeviceptr to, cuuint32_t value,
                               unsigned int flags) {
  // CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER only relaxes an order that the simulator keeps.
  if ((flags & ~CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) != 0) return CUDA_ERROR_INVALID_VALUE;
  return Fill<uint32_t>("cuStreamWriteValue32", to, value, 1, stream, Waiting::kAsync);
}

}  // namespace weir::sim
