#include "bench/device.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "tools/simcuda/simcuda.h"

namespace weir::bench {
namespace {

// What is used of the driver, filled once by StartDevice.
struct Driver {
  decltype(&simcuda_get_proc_address) get_proc_address = nullptr;
  decltype(&cuInit) init = nullptr;
  decltype(&cuDriverGetVersion) driver_get_version = nullptr;
  decltype(&cuDeviceGetName) device_get_name = nullptr;
  decltype(&cuDeviceTotalMem) device_total_mem = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) primary_ctx_retain = nullptr;
  decltype(&cuCtxSetCurrent) ctx_set_current = nullptr;
  decltype(&cuStreamCreate) stream_create = nullptr;
  decltype(&cuMemAlloc) mem_alloc = nullptr;
  decltype(&cuMemFree) mem_free = nullptr;
  decltype(&cuMemAllocAsync) mem_alloc_async = nullptr;
  decltype(&cuMemFreeAsync) mem_free_async = nullptr;
  decltype(&cuDeviceGetDefaultMemPool) device_get_default_mem_pool = nullptr;
  decltype(&cuMemPoolSetAttribute) mem_pool_set_attribute = nullptr;
  decltype(&cuMemPoolGetAttribute) mem_pool_get_attribute = nullptr;
  decltype(&cuMemPoolTrimTo) mem_pool_trim_to = nullptr;
  decltype(&cuCtxSynchronize) ctx_synchronize = nullptr;

  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  bool simulated = true;
};
Driver driver;

template <typename Function>
bool Find(const char* name, int version, Function* function, std::string* error) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  if (driver.get_proc_address(name, &address, version, 0, &status) != CUDA_SUCCESS ||
      address == nullptr) {
    *error = absl::StrCat("the driver has no ", name);
    return false;
  }
  *function = reinterpret_cast<Function>(address);
  return true;
}

bool Succeeded(CUresult result, const char* name, std::string* error) {
  if (result == CUDA_SUCCESS) return true;
  *error = absl::StrCat(name, " failed with CUDA error ", static_cast<int>(result));
  return false;
}

bool FindAll(std::string* error) {
  return Find("cuInit", 2000, &driver.init, error) &&
         Find("cuDriverGetVersion", 2020, &driver.driver_get_version, error) &&
         Find("cuDeviceGetName", 2000, &driver.device_get_name, error) &&
         Find("cuDeviceTotalMem", 3020, &driver.device_total_mem, error) &&
         Find("cuDevicePrimaryCtxRetain", 7000, &driver.primary_ctx_retain, error) &&
         Find("cuCtxSetCurrent", 4000, &driver.ctx_set_current, error) &&
         Find("cuCtxSynchronize", 2000, &driver.ctx_synchronize, error) &&
         Find("cuStreamCreate", 2000, &driver.stream_create, error) &&
         Find("cuMemAlloc", 3020, &driver.mem_alloc, error) &&
         Find("cuMemFree", 3020, &driver.mem_free, error) &&
         Find("cuMemAllocAsync", 11020, &driver.mem_alloc_async, error) &&
         Find("cuMemFreeAsync", 11020, &driver.mem_free_async, error) &&
         Find("cuDeviceGetDefaultMemPool", 11020, &driver.device_get_default_mem_pool, error) &&
         Find("cuMemPoolSetAttribute", 11020, &driver.mem_pool_set_attribute, error) &&
         Find("cuMemPoolGetAttribute", 11020, &driver.mem_pool_get_attribute, error) &&
         Find("cuMemPoolTrimTo", 11020, &driver.mem_pool_trim_to, error);
}

}  // namespace

void ConfigureSimulatedDevice(uint64_t bytes) {
  sim::Config config;
  config.memory_bytes = bytes;
  config.checker = false;  // no case looks at contents
  sim::Reset(config);
}

bool StartDevice(bool simulated, int device, std::string* error) {
  driver.simulated = simulated;
  if (simulated) {
    driver.get_proc_address = &simcuda_get_proc_address;
  } else {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      *error = absl::StrCat("no CUDA driver: ", dlerror());
      return false;
    }
    driver.get_proc_address =
        reinterpret_cast<decltype(driver.get_proc_address)>(dlsym(library, "cuGetProcAddress_v2"));
    if (driver.get_proc_address == nullptr) {
      *error = "the CUDA driver is older than 12.0";
      return false;
    }
  }
  driver.device = simulated ? 0 : device;
  if (!FindAll(error) || !Succeeded(driver.init(0), "cuInit", error) ||
      !Succeeded(driver.primary_ctx_retain(&driver.context, driver.device),
                 "cuDevicePrimaryCtxRetain", error)) {
    return false;
  }
  return Succeeded(driver.ctx_set_current(driver.context), "cuCtxSetCurrent", error);
}

void MakeDeviceCurrent() { driver.ctx_set_current(driver.context); }

void* CreateDriverStream() {
  CUstream stream = nullptr;
  const CUresult result = driver.stream_create(&stream, CU_STREAM_NON_BLOCKING);
  return result == CUDA_SUCCESS ? stream : nullptr;
}

void* DriverAllocate(size_t bytes) {
  CUdeviceptr address = 0;
  const CUresult result = driver.mem_alloc(&address, bytes);
  return result == CUDA_SUCCESS ? reinterpret_cast<void*>(address) : nullptr;
}

void DriverFree(void* pointer) { driver.mem_free(reinterpret_cast<CUdeviceptr>(pointer)); }

void* DriverAllocateAsync(size_t bytes, void* stream) {
  CUdeviceptr address = 0;
  const CUresult result = driver.mem_alloc_async(&address, bytes, static_cast<CUstream>(stream));
  return result == CUDA_SUCCESS ? reinterpret_cast<void*>(address) : nullptr;
}

void DriverFreeAsync(void* pointer, void* stream) {
  driver.mem_free_async(reinterpret_cast<CUdeviceptr>(pointer), static_cast<CUstream>(stream));
}

bool KeepPoolMemory(std::string* error) {
  cuuint64_t all = UINT64_MAX;
  return Succeeded(driver.device_get_default_mem_pool(&driver.pool, driver.device),
                   "cuDeviceGetDefaultMemPool", error) &&
         Succeeded(
             driver.mem_pool_set_attribute(driver.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all),
             "cuMemPoolSetAttribute", error);
}

void TrimPool() {
  driver.ctx_synchronize();
  driver.mem_pool_trim_to(driver.pool, 0);
}

uint64_t PoolReservedBytes() {
  cuuint64_t bytes = 0;
  driver.mem_pool_get_attribute(driver.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
  return bytes;
}

std::string DeviceName() {
  if (driver.simulated) return "simulated device: no GPU time";
  char name[256] = "";
  if (driver.device_get_name != nullptr) {
    driver.device_get_name(name, sizeof(name) - 1, driver.device);
  }
  return name;
}

std::string DriverVersion() {
  int version = 0;
  if (driver.driver_get_version != nullptr) driver.driver_get_version(&version);
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

uint64_t DeviceBytes() {
  size_t bytes = 0;
  if (driver.simulated || driver.device_total_mem(&bytes, driver.device) != CUDA_SUCCESS) {
    return UINT64_MAX;
  }
  return bytes;
}

uint64_t SimulatedCalls() {
  uint64_t calls = 0;
  for (const auto& [entry, count] : sim::CallCounts()) calls += count;
  return calls;
}

std::map<std::string, uint64_t> SimulatedCallsByEntry() { return sim::CallCounts(); }

uint64_t SimulatedTimeNs() { return sim::VirtualTimeNs(); }

uint64_t SimulatedUsedBytes() { return sim::UsedBytes(0); }

}  // namespace weir::bench
