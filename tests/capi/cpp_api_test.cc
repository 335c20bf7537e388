#include <memory>
#include <type_traits>
#include <utility>

#include "tests/capi/simulated_weir.h"
#include "weir/device_pool.h"
#include "weir/options.h"
#include "weir/unique_device_ptr.h"

namespace weir::test {
namespace {

TEST_CASE("a device pool allocates, frees and reports", "[cpp_api]") {
  const SimulatedWeir weir;
  DevicePool pool(1);
  CHECK(pool.device() == 1);
  void* any = pool.Allocate(3000);
  void* aligned = pool.Allocate(3000, 64 * 1024);
  const weir_stream_t stream = NewStream(1);
  void* owned = pool.AllocateAsync(5 * kMiB, stream, 4096);
  CHECK(reinterpret_cast<uintptr_t>(aligned) % (64 * 1024) == 0);
  CHECK(reinterpret_cast<uintptr_t>(owned) % 4096 == 0);
  CHECK(pool.UsableSize(any) >= 3000);
  CHECK(pool.Stats().requested_bytes == 6000 + 5 * kMiB);
  CHECK(pool.MemGetInfo().total_bytes == kDeviceBytes);
  CHECK(pool.StatsBySize().large.requested_bytes == 5 * kMiB);
  CHECK(pool.StatsBySize().small.requested_bytes == 6000);
  std::size_t allocated = 0;
  for (const DevicePool::Segment& segment : pool.Segments()) {
    for (const weir_block_info_t& block : segment.blocks) {
      if (block.state == WEIR_BLOCK_ALLOCATED) ++allocated;
    }
  }
  CHECK(allocated == 3);
  pool.RecordUse(owned, nullptr);
  pool.DeallocateAsync(owned, stream);
  pool.Deallocate(any);
  pool.Deallocate(aligned);
  pool.Deallocate(nullptr);
  pool.ResetPeakStats();
  pool.Trim(0);
  pool.EmptyCache();
  CHECK(pool.Stats().reserved_bytes == 0);
}

TEST_CASE("pools of one device are equal, of two devices not", "[cpp_api]") {
  const SimulatedWeir weir;
  const DevicePool first(0);
  const DevicePool copy = first;
  CHECK(first == copy);
  CHECK(first == DevicePool(0));
  CHECK(first != DevicePool(1));
}

TEST_CASE("memory that is not there is a std::bad_alloc with a reason", "[cpp_api]") {
  const SimulatedWeir weir;
  DevicePool pool;
  try {
    (void)pool.Allocate(kDeviceBytes * 2);
    FAIL("more than the device has was allocated");
  } catch (const std::bad_alloc& error) {
    CHECK(std::string(error.what()) == weir_last_error());
  }
  CHECK_THROWS_AS(pool.AllocateAsync(SIZE_MAX, nullptr), OutOfMemory);
  pool.SetMemoryLimit(10 * kMiB);
  CHECK_THROWS_AS(pool.Allocate(20 * kMiB), OutOfMemory);
  pool.SetMemoryLimit(SIZE_MAX);
}

TEST_CASE("every other failure is an Error with its status", "[cpp_api]") {
  const SimulatedWeir weir;
  const auto status_of = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      CHECK_FALSE(std::string(error.what()).empty());
      return error.status();
    }
    return WEIR_OK;
  };
  DevicePool pool;
  int local = 0;
  CHECK(status_of([] { DevicePool(2); }) == WEIR_ERROR_NO_DEVICE);
  CHECK(status_of([] { DevicePool(-1); }) == WEIR_ERROR_NO_DEVICE);
  CHECK(status_of([&] { pool.Deallocate(&local); }) == WEIR_ERROR_NOT_OWNED);
  CHECK(status_of([&] { (void)pool.Allocate(8, 3); }) == WEIR_ERROR_INVALID_ARGUMENT);
  void* block = pool.Allocate(1000);
  pool.Deallocate(block);
  CHECK(status_of([&] { pool.Deallocate(block); }) == WEIR_ERROR_DOUBLE_FREE);
}

TEST_CASE("device memory is freed when its owner goes", "[cpp_api]") {
  const SimulatedWeir weir;
  {
    const auto one = make_unique_device<double>();
    auto many = make_unique_device<float[]>(1000);
    const auto owned = make_unique_device_async<int[]>(500, nullptr);
    const auto owned_one = make_unique_device_async<int>(nullptr);
    static_assert(std::is_same<decltype(many), unique_device_ptr<float[]>>::value);
    CHECK(weir_usable_size(one.get()) >= sizeof(double));
    CHECK(weir_usable_size(many.get()) >= 1000 * sizeof(float));
    CHECK(SimulatedWeir::Stats().allocations == 4);
    const unique_device_ptr<float[]> moved = std::move(many);
    CHECK(SimulatedWeir::Stats().allocations == 4);
    CHECK(weir_memset(moved.get(), 0, 1000 * sizeof(float)) == WEIR_OK);
  }
  CHECK(SimulatedWeir::Stats().allocations == 0);
}

TEST_CASE("an array whose bytes overflow is out of memory, not a small block", "[cpp_api]") {
  const SimulatedWeir weir;
  CHECK_THROWS_AS(make_unique_device<double[]>(SIZE_MAX / 4), OutOfMemory);
  CHECK_THROWS_AS(make_unique_device_async<double[]>(SIZE_MAX / 4, nullptr), OutOfMemory);
}

TEST_CASE("options become the text of the C API", "[cpp_api]") {
  Options options;
  CHECK(options.ToString().empty());
  options.device = "sim";
  options.sim_devices = 2;
  options.sim_memory_bytes = uint64_t{24} << 30;
  options.mode = "default";
  options.vmm = false;
  options.memory_limit_bytes = 1000;
  options.more = "marker_bytes:1MiB";
  CHECK(options.ToString() ==
        "device:sim,sim_memory:25769803776,sim_devices:2,mode:default,vmm:off,memory_limit:1000,"
        "marker_bytes:1MiB");
}

TEST_CASE("configuring after the first use is an Error", "[cpp_api]") {
  const SimulatedWeir weir;
  Options options;
  options.device = "sim";
  CHECK_THROWS_AS(Configure(options), Error);
  CHECK(weir_last_status() == WEIR_ERROR_CONFIGURATION);
}

}  // namespace
}  // namespace weir::test
