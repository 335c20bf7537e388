// Copies and fills. Copies between host addresses and cudaMemcpyDefault go by what the addresses
// are; the other directions insist on theirs.
#include "tools/simcuda/runtime/copy.h"

namespace weir::sim::runtime {

cudaError_t CopyNow(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const DriverTable& driver = Driver();
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return Translate(driver.cuMemcpyHtoD(Address(to), from, bytes));
    case cudaMemcpyDeviceToHost:
      return Translate(driver.cuMemcpyDtoH(to, Address(from), bytes));
    case cudaMemcpyDeviceToDevice:
      return Translate(driver.cuMemcpyDtoD(Address(to), Address(from), bytes));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return Translate(driver.cuMemcpy(Address(to), Address(from), bytes));
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t CopyOnStream(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                         cudaStream_t stream) {
  const DriverTable& driver = Driver();
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return Translate(driver.cuMemcpyHtoDAsync(Address(to), from, bytes, stream));
    case cudaMemcpyDeviceToHost:
      return Translate(driver.cuMemcpyDtoHAsync(to, Address(from), bytes, stream));
    case cudaMemcpyDeviceToDevice:
      return Translate(driver.cuMemcpyDtoDAsync(Address(to), Address(from), bytes, stream));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return Translate(driver.cuMemcpyAsync(Address(to), Address(from), bytes, stream));
  }
  return cudaErrorInvalidMemcpyDirection;
}

namespace {

// A pitched copy, row by row.
template <typename CopyRow>
cudaError_t CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                     size_t height, CopyRow copy_row) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
  if (width == to_pitch && width == from_pitch) return copy_row(to, from, width * height);
  for (size_t row = 0; row < height; ++row) {
    const cudaError_t error = copy_row(static_cast<char*>(to) + row * to_pitch,
                                       static_cast<const char*>(from) + row * from_pitch, width);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

CUresult CopyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes,
                  cudaStream_t stream) {
  CUcontext to_context = nullptr;
  CUcontext from_context = nullptr;
  CUresult result = PrimaryContext(to_device, &to_context);
  if (result == CUDA_SUCCESS) result = PrimaryContext(from_device, &from_context);
  if (result != CUDA_SUCCESS) return result;
  return Driver().cuMemcpyPeerAsync(Address(to), to_context, Address(from), from_context, bytes,
                                    stream);
}

}  // namespace
}  // namespace weir::sim::runtime

using namespace weir::sim::runtime;

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return InContext([=](const DriverTable&) { return CopyNow(to, from, bytes, kind); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return InContext([=](const DriverTable&) { return CopyOnStream(to, from, bytes, kind, stream); });
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  return InContext([=](const DriverTable&) {
    return CopyRows(to, to_pitch, from, from_pitch, width, height,
                    [=](void* row_to, const void* row_from, size_t bytes) {
                      return CopyNow(row_to, row_from, bytes, kind);
                    });
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return InContext([=](const DriverTable&) {
    return CopyRows(to, to_pitch, from, from_pitch, width, height,
                    [=](void* row_to, const void* row_from, size_t bytes) {
                      return CopyOnStream(row_to, row_from, bytes, kind, stream);
                    });
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
  return InContext([=](const DriverTable&) {
    return CopyPeer(to, to_device, from, from_device, bytes, stream);
  });
}

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           size_t bytes) {
  return InContext([=](const DriverTable&) {
    return CopyPeer(to, to_device, from, from_device, bytes, cudaStreamLegacy);
  });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuMemsetD8(Address(to), static_cast<unsigned char>(value), bytes);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuMemsetD8Async(Address(to), static_cast<unsigned char>(value), bytes, stream);
  });
}

}  // extern "C"
