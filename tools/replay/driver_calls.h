// DriverCalls: the few driver calls a program that uses Weir makes itself: contexts, streams,
// events. Taken from the simulated device in this process, or from the CUDA driver. Counts its own
// calls and their modelled cost, so that a replay can tell them from the allocator's. Not
// thread-safe.
#ifndef WEIR_TOOLS_REPLAY_DRIVER_CALLS_H_
#define WEIR_TOOLS_REPLAY_DRIVER_CALLS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/simcuda/simcuda.h"

namespace weir::replay {

class DriverCalls {
 public:
  // False with error() set if there is no driver, or fewer than `devices` devices from `first` on.
  bool Load(bool simulated, int first_device, int devices);

  // Devices are numbered from 0 here, whatever the first one's ordinal. False with error() set.
  bool MakeCurrent(int device);
  bool CreateStream(int device, CUstream* stream);  // non-blocking
  // Work given to `later` from now on runs after the work that `earlier` has now.
  bool OrderAfter(int device, CUstream earlier, CUstream later);
  bool Synchronize(int device);
  // A function of the host in the stream's order. It must not call the driver.
  bool LaunchHostFunction(int device, CUstream stream, CUhostFn function, void* data);
  // A kernel on the simulated device.
  bool Launch(int device, CUstream stream, const std::string& label,
              std::vector<sim::Access> accesses, std::function<void(sim::KernelMemory&)> body);

  const std::string& error() const { return error_; }
  const std::map<std::string, uint64_t>& counts() const { return counts_; }
  uint64_t modelled_ns() const { return modelled_ns_; }

 private:
  template <typename Function, typename... Args>
  bool Call(const char* name, Function function, Args... args);
  template <typename Function>
  bool Find(const char* name, int version, Function* function);

  bool simulated_ = false;
  int current_ = -1;
  std::vector<CUcontext> contexts_;
  std::vector<CUevent> events_;  // one per device: a wait takes the event's state when it is called
  std::string error_;
  std::map<std::string, uint64_t> counts_;
  uint64_t modelled_ns_ = 0;

  decltype(&simcuda_get_proc_address) get_proc_address_ = nullptr;
  decltype(&cuInit) init_ = nullptr;
  decltype(&cuDeviceGetCount) device_get_count_ = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) primary_ctx_retain_ = nullptr;
  decltype(&cuCtxSetCurrent) ctx_set_current_ = nullptr;
  decltype(&cuCtxSynchronize) ctx_synchronize_ = nullptr;
  decltype(&cuStreamCreate) stream_create_ = nullptr;
  decltype(&cuStreamWaitEvent) stream_wait_event_ = nullptr;
  decltype(&cuLaunchHostFunc) launch_host_func_ = nullptr;
  decltype(&cuEventCreate) event_create_ = nullptr;
  decltype(&cuEventRecord) event_record_ = nullptr;
};

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_DRIVER_CALLS_H_
