// Simulator: the one simulated machine of the process. It holds the lock under which everything in
// tools/simcuda lives, the devices with their primary contexts, the two halves (AddressSpace and
// Timeline), and what is injected from outside (faults, costs, capacity).
//
// Never destroyed: driver calls may come from other libraries' exit handlers. Started with the
// default Config at first use.
//
// Locks: lock() guards every member; entry points hold it (entry.h). Functions here are called with
// it held unless they say otherwise. Order: it is the only lock of the simulator besides those
// inside Timeline's worker threads.
#ifndef WEIR_TOOLS_SIMCUDA_SIMULATOR_H_
#define WEIR_TOOLS_SIMCUDA_SIMULATOR_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tools/simcuda/address_space.h"
#include "tools/simcuda/cost_model.h"
#include "tools/simcuda/faults.h"
#include "tools/simcuda/memory_handles.h"
#include "tools/simcuda/modules.h"
#include "tools/simcuda/physical_memory.h"
#include "tools/simcuda/pools.h"
#include "tools/simcuda/simcuda.h"
#include "tools/simcuda/suballocator.h"
#include "tools/simcuda/time.h"

namespace weir::sim {

inline constexpr int kMaxDevices = 16;

struct Device {
  std::shared_ptr<Arena> arena;           // physical memory
  std::unique_ptr<Suballocator> classic;  // cuMemAlloc
  int retained = 0;                       // of the primary context
  unsigned int context_flags = 0;

  bool active() const { return retained > 0; }
};

// A thread's stack of current contexts, as device ordinals. Without a destructor: threads call CUDA
// while they end, when their variables that have one are gone.
class ContextStack {
 public:
  bool empty() const { return depth_ == 0; }
  int& back() { return devices_[depth_ - 1]; }
  int back() const { return devices_[depth_ - 1]; }
  bool push_back(int device) {  // false if it is full
    if (depth_ == kMaxDepth) return false;
    devices_[depth_++] = device;
    return true;
  }
  void pop_back() { --depth_; }
  void clear() { depth_ = 0; }

 private:
  static constexpr uint32_t kMaxDepth = 255;
  uint32_t depth_ = 0;
  int devices_[kMaxDepth] = {};
};

// Changes what WEIR_CONF says (sim_devices, sim_memory). False if it is wrong.
bool ConfigFromEnvironment(Config* config, std::string* error);

class Simulator {
 public:
  static Simulator& Get();
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  std::mutex& lock() { return lock_; }

  // Takes the lock itself. Throws std::runtime_error where the system has no such memory; the
  // simulator is unchanged then.
  void Reset(const Config& config);

  const Config& config() const { return config_; }
  // Counts Resets. May be read without the lock.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  // False until a driver call needed the simulator: until then simcuda_configure may change it.
  bool used = false;
  std::atomic<bool> initialized{false};  // cuInit; written with the lock held
  bool deinitialized = false;            // Deinitialize
  // A real driver is there: cuInit fails. Static, so that it can be set before the simulator exists
  // (faces); written while libraries are loaded only.
  static inline bool refused = false;
  // Whether WEIR_CONF says what the first devices are like (faces). Read when the simulator starts;
  // written while libraries are loaded only.
  static inline bool configured_by_environment = false;
  // WEIR_CONF was wrong: cuInit fails.
  bool wrong_environment = false;
  // This is a child of a process that had initialized CUDA. As with a real driver it cannot use
  // what it inherited, nor initialize anew: every call fails, without taking a lock.
  static bool InForkedChild() { return forked_.load(std::memory_order_relaxed); }

  int device_count() const { return static_cast<int>(devices_.size()); }
  bool IsDevice(int ordinal) const { return ordinal >= 0 && ordinal < device_count(); }
  Device& device(int ordinal) { return devices_[static_cast<size_t>(ordinal)]; }

  Timeline& timeline() { return timeline_; }
  AddressSpace& space() { return space_; }
  MemoryHandles& handles() { return handles_; }
  Pools& pools() { return pools_; }
  Modules& modules() { return modules_; }
  Faults& faults() { return faults_; }
  CostModel& costs() { return costs_; }

  // Primary contexts. The handle of a device's context is the same for the life of the process.
  CUcontext ContextOf(int device) const;
  // The device of a context, -1 if the handle is none of ours.
  int DeviceOf(CUcontext context) const;
  // The device of the calling thread's current context, -1 if none is current. Needs no lock.
  int current_device() const;
  // The calling thread's.
  ContextStack& context_stack() const;
  // Drops the context's queued work and memory, as its last release does. Mappings of cuMemCreate
  // memory and host memory belong to no context and stay.
  void ResetContext(int device);

  uint64_t RoundToFrames(uint64_t bytes) const;
  // Takes a range out of the page table and gives its memory back, at once and without waiting.
  void FreeRange(CUdeviceptr base);

  // After a successful synchronization of a stream, an event or a context, which is when pools
  // above their release threshold give memory back.
  void OnSynchronized(int device) { pools_.OnSynchronized(device); }

  // Virtual driver time in ns.
  uint64_t virtual_time_ns = 0;

 private:
  Simulator();
  void Build(const Config& config);  // with the lock held

  static void OnForkedChild();

  static inline std::atomic<bool> forked_{false};
  std::mutex lock_;
  Config config_;
  std::atomic<uint64_t> generation_{0};  // so that threads forget their context stacks at a Reset
  std::vector<Device> devices_;
  AddressSpace space_;
  Timeline timeline_;
  MemoryHandles handles_;
  Pools pools_;
  Modules modules_;
  Faults faults_;
  CostModel costs_;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_SIMULATOR_H_
