// SPDX-License-Identifier: MIT
//
// weir::unique_device_ptr: device memory that is freed when its owner goes.
//
//   auto x = weir::make_unique_device<float[]>(1 << 20);
//   weir_memset(x.get(), 0, sizeof(float) << 20);
//   Kernel<<<blocks, threads, 0, stream>>>(x.get());
//
// A std::unique_ptr whose pointee lives on the device: get(), release(), reset() and moves are what
// they are for; *p and p[i] on the host are not legal. No constructor or destructor of T runs.
#ifndef WEIR_UNIQUE_DEVICE_PTR_H_
#define WEIR_UNIQUE_DEVICE_PTR_H_

#include <cstddef>
#include <memory>
#include <type_traits>

#include "weir/error.h"
#include "weir/weir.h"

namespace weir {

// Errors of the free stay in weir_last_error(): deleters cannot throw.
struct DeviceDelete {
  void operator()(const void* ptr) const noexcept { weir_free(const_cast<void*>(ptr)); }
};

// Frees in the order of a stream, which must outlive the pointer.
struct AsyncDeviceDelete {
  weir_stream_t stream = nullptr;
  void operator()(const void* ptr) const noexcept {
    weir_free_async(const_cast<void*>(ptr), stream);
  }
};

template <typename T>
using unique_device_ptr = std::unique_ptr<T, DeviceDelete>;
template <typename T>
using unique_async_device_ptr = std::unique_ptr<T, AsyncDeviceDelete>;

namespace internal {

// The bytes of `count` elements; more than there can be if the product does not fit, so that the
// allocation fails as out of memory.
template <typename T>
constexpr std::size_t ArrayBytes(std::size_t count) {
  static_assert(std::is_trivially_copyable<T>::value && std::is_trivially_destructible<T>::value,
                "device memory holds only types that need no constructor and no destructor");
  static_assert(alignof(T) <= 512, "allocate with weir_aligned_alloc instead");
  return count > static_cast<std::size_t>(-1) / sizeof(T) ? static_cast<std::size_t>(-1)
                                                          : count * sizeof(T);
}

inline void* ThrowIfNull(void* ptr) {
  if (ptr == nullptr) ThrowLastError();
  return ptr;
}

}  // namespace internal

// One T on the calling thread's device, contents undefined.
template <typename T, std::enable_if_t<!std::is_array<T>::value, int> = 0>
[[nodiscard]] unique_device_ptr<T> make_unique_device() {
  return unique_device_ptr<T>(
      static_cast<T*>(internal::ThrowIfNull(weir_malloc(internal::ArrayBytes<T>(1)))));
}

// `count` elements: make_unique_device<float[]>(count).
template <typename T,
          std::enable_if_t<std::is_array<T>::value && std::extent<T>::value == 0, int> = 0>
[[nodiscard]] unique_device_ptr<T> make_unique_device(std::size_t count) {
  using Element = std::remove_extent_t<T>;
  return unique_device_ptr<T>(static_cast<Element*>(
      internal::ThrowIfNull(weir_malloc(internal::ArrayBytes<Element>(count)))));
}

// The same, owned by a stream.
template <typename T, std::enable_if_t<!std::is_array<T>::value, int> = 0>
[[nodiscard]] unique_async_device_ptr<T> make_unique_device_async(weir_stream_t stream) {
  return unique_async_device_ptr<T>(
      static_cast<T*>(internal::ThrowIfNull(weir_malloc_async(internal::ArrayBytes<T>(1), stream))),
      AsyncDeviceDelete{stream});
}

template <typename T,
          std::enable_if_t<std::is_array<T>::value && std::extent<T>::value == 0, int> = 0>
[[nodiscard]] unique_async_device_ptr<T> make_unique_device_async(std::size_t count,
                                                                  weir_stream_t stream) {
  using Element = std::remove_extent_t<T>;
  return unique_async_device_ptr<T>(static_cast<Element*>(internal::ThrowIfNull(weir_malloc_async(
                                        internal::ArrayBytes<Element>(count), stream))),
                                    AsyncDeviceDelete{stream});
}

}  // namespace weir

#endif  // WEIR_UNIQUE_DEVICE_PTR_H_
