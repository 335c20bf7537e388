// The device under the benchmark: the simulated one in this process, or a real driver. What
// programs whose allocator has no CUDA runtime of its own need of it: streams, and plain driver
// allocation. Thread-safe after StartDevice.
#ifndef WEIR_BENCH_DEVICE_H_
#define WEIR_BENCH_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace weir::bench {

// Gives the simulated device so much memory. The default is more than the cases need: random_large
// keeps 2.7 TiB of blocks. It is sparse, so that it costs nothing. Before the first CUDA call.
void ConfigureSimulatedDevice(uint64_t bytes = uint64_t{8} << 40);

// Loads the driver table and makes the device's primary context current on this thread. False with
// *error set if there is no driver or no such device.
bool StartDevice(bool simulated, int device, std::string* error);
void MakeDeviceCurrent();  // for every further thread

// A CUstream, non-blocking; null if that failed.
void* CreateDriverStream();

// cuMemAlloc, cuMemFree, cuMemAllocAsync, cuMemFreeAsync; null if the driver refused.
void* DriverAllocate(size_t bytes);
void DriverFree(void* pointer);
void* DriverAllocateAsync(size_t bytes, void* stream);
void DriverFreeAsync(void* pointer, void* stream);
// Keeps freed memory of the default pool with the driver (no release threshold), as programs that
// want speed set it; or releases what is unused. Reserved bytes of that pool.
bool KeepPoolMemory(std::string* error);
void TrimPool();
uint64_t PoolReservedBytes();

std::string DeviceName();     // "NVIDIA H200", "simulated device"
std::string DriverVersion();  // "13.0"

// Memory of a real device; more than anybody needs on the simulated one, and without a device.
uint64_t DeviceBytes();

// Calls that this process made of the simulated device so far; 0 on a real one.
uint64_t SimulatedCalls();
std::map<std::string, uint64_t> SimulatedCallsByEntry();
uint64_t SimulatedTimeNs();  // the modelled cost of them
// Physical bytes in use on the simulated device.
uint64_t SimulatedUsedBytes();

}  // namespace weir::bench

#endif  // WEIR_BENCH_DEVICE_H_
