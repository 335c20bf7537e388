#include "allocator/driver/driver.h"

#include <chrono>

#include "allocator/driver/driver_status.h"
#include "allocator/driver/loader.h"

namespace weir {
namespace {

// What a failing start means to the person who reads it.
std::string ExplainInit(const DriverStatus& status, const std::string& library) {
  const char* advice = "";
  switch (status.result()) {
    case CUDA_ERROR_NO_DEVICE:
      advice =
          "The driver sees no GPU: look at nvidia-smi, CUDA_VISIBLE_DEVICES and the "
          "container's GPU access. ";
      break;
    case CUDA_ERROR_STUB_LIBRARY:
      advice = "This is the toolkit's stub for linking; take its folder off LD_LIBRARY_PATH. ";
      break;
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      advice = "Library and kernel module differ in version: restart after a driver update. ";
      break;
    case CUDA_ERROR_NOT_INITIALIZED:
      advice =
          "A process forked from one that used CUDA cannot use it: start the process anew "
          "(Python: multiprocessing start method 'spawn'). ";
      break;
    default:
      break;
  }
  return "the CUDA driver (" + library + ") does not start: " + status.ToString() + ". " + advice +
         "To run on the simulated device instead, set WEIR_CONF=device:sim.";
}

}  // namespace

Driver::Driver() = default;
Driver::~Driver() = default;

std::unique_ptr<const Driver> Driver::Open(const DriverOptions& options, std::string* error) {
  DriverLibrary library;
  if (!options.simulated) {
    if (!OpenCudaLibrary(&library, error)) return nullptr;
    return Open(library, error);
  }
  if (!OpenSimulatedLibrary(&library, error)) return nullptr;
  const bool changes =
      options.sim_devices != 0 || options.sim_memory_bytes != 0 || options.sim_lag >= 0;
  const int refused =
      changes ? library.configure(options.sim_devices, options.sim_memory_bytes, options.sim_lag)
              : 0;
  if (refused != 0) {
    *error = refused == 1
                 ? "the simulated device is already in use with another number of devices "
                   "or another memory size; configure Weir before the first CUDA call"
                 : "a simulated device cannot have " + std::to_string(options.sim_memory_bytes) +
                       " bytes (option sim_memory): it needs at least 2 MiB, and address "
                       "space of the process for all its memory";
    return nullptr;
  }
  return Open(library, error);
}

std::unique_ptr<const Driver> Driver::Open(const DriverLibrary& library, std::string* error) {
  std::unique_ptr<Driver> driver(new Driver());
  driver->library_ = std::make_unique<DriverLibrary>(library);
  driver->table_ = std::make_unique<LoadedTable>();
  driver->virtual_time_ns_ = library.virtual_time_ns;
  if (!FillDriverTable(library, driver->table_.get(), error)) return nullptr;

  const DriverTable& entries = driver->entries();
  const DriverStatus init(entries.Init(0), "cuInit");
  if (!init.ok()) {
    *error = ExplainInit(init, library.name);
    return nullptr;
  }
  int count = 0;
  DriverStatus status(entries.DeviceGetCount(&count), "cuDeviceGetCount");
  if (status.ok() && count == 0) status = DriverStatus(CUDA_ERROR_NO_DEVICE, "cuDeviceGetCount");
  for (int ordinal = 0; status.ok() && ordinal < count; ++ordinal) {
    CUdevice device = 0;
    status = DriverStatus(entries.DeviceGet(&device, ordinal), "cuDeviceGet");
    driver->devices_.push_back(device);
  }
  if (!status.ok()) {
    *error = ExplainInit(status, library.name);
    return nullptr;
  }
  return driver;
}

const DriverTable& Driver::entries() const { return table_->entries; }
int Driver::version() const { return table_->driver_version; }
const std::map<std::string, std::string>& Driver::missing() const { return table_->missing; }

void* Driver::Find(const char* entry, int version) const {
  void* pointer = nullptr;
  const CUresult result = library_->resolve(entry, &pointer, version, CU_GET_PROC_ADDRESS_DEFAULT,
                                            /*symbolStatus=*/nullptr);
  return result == CUDA_SUCCESS ? pointer : nullptr;
}

int Driver::OrdinalOf(int device) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i] == device) return static_cast<int>(i);
  }
  return -1;
}

int Driver::CurrentDevice() const {
  CUcontext context = nullptr;
  CUdevice device = 0;
  if (entries().CtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr ||
      entries().CtxGetDevice(&device) != CUDA_SUCCESS) {
    return -1;
  }
  return OrdinalOf(device);
}

DriverStatus Driver::MemGetInfo(int ordinal, uint64_t* free_bytes, uint64_t* total_bytes) const {
  size_t free = 0, total = 0;
  DriverStatus status;
  if (CurrentDevice() == ordinal) {
    status = DriverStatus(entries().MemGetInfo(&free, &total), "cuMemGetInfo");
  } else {
    status = DriverStatus(entries().DeviceTotalMem(&total, device(ordinal)), "cuDeviceTotalMem");
    free = total;
  }
  if (!status.ok()) return status;
  *free_bytes = free;
  *total_bytes = total;
  return {};
}

uint64_t Driver::NowNs() const {
  if (virtual_time_ns_ != nullptr) return virtual_time_ns_();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace weir
