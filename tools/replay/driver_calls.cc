#include "tools/replay/driver_calls.h"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace weir::replay {

template <typename Function, typename... Args>
bool DriverCalls::Call(const char* name, Function function, Args... args) {
  const uint64_t before = simulated_ ? sim::VirtualTimeNs() : 0;
  const CUresult result = function(args...);
  if (simulated_) modelled_ns_ += sim::VirtualTimeNs() - before;
  ++counts_[name];
  if (result == CUDA_SUCCESS) return true;
  error_ = absl::StrCat(name, " failed with CUDA error ", static_cast<int>(result));
  return false;
}

template <typename Function>
bool DriverCalls::Find(const char* name, int version, Function* function) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = get_proc_address_(name, &address, version, 0, &status);
  if (result != CUDA_SUCCESS || address == nullptr) {
    error_ = absl::StrCat("the driver has no ", name);
    return false;
  }
  *function = reinterpret_cast<Function>(address);
  return true;
}

bool DriverCalls::Load(bool simulated, int first_device, int devices) {
  simulated_ = simulated;
  if (simulated) {
    get_proc_address_ = &simcuda_get_proc_address;
  } else {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      error_ = absl::StrCat("no CUDA driver: ", dlerror());
      return false;
    }
    get_proc_address_ =
        reinterpret_cast<decltype(get_proc_address_)>(dlsym(library, "cuGetProcAddress_v2"));
    if (get_proc_address_ == nullptr) {
      error_ = "the CUDA driver is older than 12.0";
      return false;
    }
  }
  if (!Find("cuInit", 2000, &init_) || !Find("cuDeviceGetCount", 2000, &device_get_count_) ||
      !Find("cuDevicePrimaryCtxRetain", 7000, &primary_ctx_retain_) ||
      !Find("cuCtxSetCurrent", 4000, &ctx_set_current_) ||
      !Find("cuCtxSynchronize", 2000, &ctx_synchronize_) ||
      !Find("cuStreamCreate", 2000, &stream_create_) ||
      !Find("cuStreamWaitEvent", 3020, &stream_wait_event_) ||
      !Find("cuLaunchHostFunc", 10000, &launch_host_func_) ||
      !Find("cuEventCreate", 2000, &event_create_) ||
      !Find("cuEventRecord", 2000, &event_record_)) {
    return false;
  }
  int present = 0;
  if (!Call("cuInit", init_, 0u) || !Call("cuDeviceGetCount", device_get_count_, &present)) {
    return false;
  }
  if (first_device + devices > present) {
    error_ = absl::StrCat("the trace needs device ", first_device + devices - 1, ", but there are ",
                          present);
    return false;
  }
  for (int device = 0; device < devices; ++device) {
    CUcontext context = nullptr;
    if (!Call("cuDevicePrimaryCtxRetain", primary_ctx_retain_, &context, first_device + device)) {
      return false;
    }
    contexts_.push_back(context);
  }
  events_.resize(contexts_.size());
  for (int device = 0; device < devices; ++device) {
    constexpr unsigned kNoTiming = CU_EVENT_DISABLE_TIMING;
    if (!MakeCurrent(device) ||
        !Call("cuEventCreate", event_create_, &events_[static_cast<size_t>(device)], kNoTiming)) {
      return false;
    }
  }
  return MakeCurrent(0);
}

bool DriverCalls::MakeCurrent(int device) {
  if (device == current_) return true;
  if (!Call("cuCtxSetCurrent", ctx_set_current_, contexts_[static_cast<size_t>(device)])) {
    return false;
  }
  current_ = device;
  return true;
}

bool DriverCalls::CreateStream(int device, CUstream* stream) {
  constexpr unsigned kNonBlocking = CU_STREAM_NON_BLOCKING;
  return MakeCurrent(device) && Call("cuStreamCreate", stream_create_, stream, kNonBlocking);
}

bool DriverCalls::OrderAfter(int device, CUstream earlier, CUstream later) {
  const CUevent event = events_[static_cast<size_t>(device)];
  return MakeCurrent(device) && Call("cuEventRecord", event_record_, event, earlier) &&
         Call("cuStreamWaitEvent", stream_wait_event_, later, event, 0u);
}

bool DriverCalls::Synchronize(int device) {
  return MakeCurrent(device) && Call("cuCtxSynchronize", ctx_synchronize_);
}

bool DriverCalls::LaunchHostFunction(int device, CUstream stream, CUhostFn function, void* data) {
  return MakeCurrent(device) && Call("cuLaunchHostFunc", launch_host_func_, stream, function, data);
}

bool DriverCalls::Launch(int device, CUstream stream, const std::string& label,
                         std::vector<sim::Access> accesses,
                         std::function<void(sim::KernelMemory&)> body) {
  if (!MakeCurrent(device)) return false;
  const uint64_t before = sim::VirtualTimeNs();
  const CUresult result = sim::Launch(stream, label, std::move(accesses), std::move(body));
  modelled_ns_ += sim::VirtualTimeNs() - before;
  if (result == CUDA_SUCCESS) return true;
  error_ =
      absl::StrCat("the launch of '", label, "' failed with CUDA error ", static_cast<int>(result));
  return false;
}

}  // namespace weir::replay
