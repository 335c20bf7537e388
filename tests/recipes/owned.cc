// owned.cc: device memory that is freed when its owner goes, and what the pool says of it.
#include <cstdio>
#include <weir/device_pool.h>
#include <weir/unique_device_ptr.h>

int main() try {
  weir::DevicePool pool;  // device 0
  auto weights = weir::make_unique_device<float[]>(1 << 20);
  weir::ThrowIfFailed(weir_memset(weights.get(), 0, sizeof(float) << 20));
  std::printf("%zu MiB requested, %zu MiB reserved\n",
              static_cast<std::size_t>(pool.Stats().requested_bytes >> 20),
              static_cast<std::size_t>(pool.Stats().reserved_bytes >> 20));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
