#include "tools/simcuda/simulator.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "allocator/base/options.h"
#include "tools/simcuda/host_memory.h"

namespace weir::sim {
namespace {

constexpr uint64_t kPage = 4096;  // the least granularity

// What CUcontext values point at: never dereferenced by anybody.
char g_context_tags[kMaxDevices];

struct ThreadContexts {
  uint64_t generation = 0;
  ContextStack stack;
};
thread_local ThreadContexts t_contexts;

}  // namespace

bool ConfigFromEnvironment(Config* config, std::string* error) {
  ProcessOptions options;
  if (!ReadOptionsFromEnvironment(&options, error)) return false;
  if (options.sim_devices > 0) config->devices = options.sim_devices;
  if (options.sim_memory > 0) config->memory_bytes = options.sim_memory;
  if (options.sim_lag >= 0) config->SetLag(static_cast<uint64_t>(options.sim_lag));
  return true;
}

Simulator& Simulator::Get() {
  static Simulator* const simulator = new Simulator;
  return *simulator;
}

Simulator::Simulator() : timeline_(&lock_, &space_), pools_(&space_, &timeline_) {
  pthread_atfork(nullptr, nullptr, &OnForkedChild);
  const std::lock_guard<std::mutex> hold(lock_);
  Config config;
  std::string error;
  if (configured_by_environment && !ConfigFromEnvironment(&config, &error)) {
    std::fprintf(stderr, "weir: the simulated GPU does not start: %s\n", error.c_str());
    wrong_environment = true;
  }
  Build(config);
}

// A child of a process that had not initialized CUDA yet starts afresh: what it has is its
// parent's memory. The parent's lock is of no use here, whoever held it.
void Simulator::OnForkedChild() {
  Simulator& sim = Get();
  if (sim.initialized) {
    forked_ = true;
    return;
  }
  new (&sim.lock_) std::mutex;
  const std::lock_guard<std::mutex> hold(sim.lock_);
  try {
    sim.Build(Config(sim.config_));
  } catch (const std::exception&) {  // the system refuses so much memory
    forked_ = true;
  }
}

void Simulator::Reset(const Config& config) {
  const std::lock_guard<std::mutex> hold(lock_);
  Build(config);
}

void Simulator::Build(const Config& config) {
  // What the system may refuse comes first, so that the machine stays as it was.
  std::vector<std::shared_ptr<Arena>> arenas;
  for (int i = 0; i < std::clamp(config.devices, 1, kMaxDevices); ++i) {
    arenas.push_back(std::make_shared<Arena>(config.memory_bytes,
                                             std::max<uint64_t>(config.granularity, kPage)));
  }
  config_ = config;
  config_.devices = std::clamp(config.devices, 1, kMaxDevices);
  config_.granularity = std::max<uint64_t>(config.granularity, kPage);
  ++generation_;
  used = initialized = deinitialized = false;
  virtual_time_ns = 0;

  timeline_.Reset(config_);
  // Ranges point into pools, and what pools and classic memory release refers to addresses.
  handles_.Clear();
  for (const CUdeviceptr base : space_.Select([](const Range&) { return true; })) {
    FreeHostBytes(*space_.Find(base));
    space_.Remove(base);
  }
  pools_.Clear();
  for (int ordinal = 0; ordinal < device_count(); ++ordinal) modules_.ForgetDevice(ordinal);
  devices_.clear();
  space_.Clear();
  faults_.Clear();
  costs_.SetDefaults();
  ResetCallCounts();

  devices_.resize(static_cast<size_t>(config_.devices));
  for (int ordinal = 0; ordinal < config_.devices; ++ordinal) {
    Device& added = device(ordinal);
    added.arena = std::move(arenas[static_cast<size_t>(ordinal)]);
    added.classic = std::make_unique<Suballocator>(added.arena, ordinal, &space_, &timeline_,
                                                   Suballocator::Keep::kReleaseAtOnce);
    pools_.AddDevice(added.arena);
  }
}

CUcontext Simulator::ContextOf(int ordinal) const {
  return reinterpret_cast<CUcontext>(&g_context_tags[ordinal]);
}

int Simulator::DeviceOf(CUcontext context) const {
  for (int ordinal = 0; ordinal < device_count(); ++ordinal) {
    if (ContextOf(ordinal) == context) return ordinal;
  }
  return -1;
}

ContextStack& Simulator::context_stack() const {
  if (t_contexts.generation != generation()) {
    t_contexts.generation = generation();
    t_contexts.stack.clear();
  }
  return t_contexts.stack;
}

int Simulator::current_device() const {
  const ContextStack& stack = context_stack();
  return stack.empty() ? -1 : stack.back();
}

void Simulator::ResetContext(int ordinal) {
  timeline_.ResetDevice(ordinal);
  const auto belongs = [ordinal](const Range& range) {
    return range.device == ordinal &&
           (range.kind == RangeKind::kClassic || range.kind == RangeKind::kOpened ||
            range.kind == RangeKind::kManaged || range.kind == RangeKind::kPool);
  };
  for (const CUdeviceptr base : space_.Select(belongs)) FreeRange(base);
  pools_.TrimAll(ordinal);
  modules_.ForgetDevice(ordinal);
}

uint64_t Simulator::RoundToFrames(uint64_t bytes) const {
  return (bytes + config_.granularity - 1) / config_.granularity * config_.granularity;
}

void Simulator::FreeRange(CUdeviceptr base) {
  Range& range = *space_.Find(base);
  switch (range.kind) {
    case RangeKind::kPool:
      pools_.Free(base);
      return;
    case RangeKind::kClassic: {
      const int ordinal = range.device;
      const uint64_t bytes = range.bytes;
      space_.Remove(base);
      device(ordinal).classic->Free(base, bytes);
      return;
    }
    case RangeKind::kOpened: {
      const uint64_t bytes = range.bytes;
      space_.Remove(base);
      space_.GiveAddresses(base, RoundToFrames(bytes));
      return;
    }
    case RangeKind::kMapping: {
      const CUmemGenericAllocationHandle handle = range.handle;
      space_.Remove(base);
      handles_.RemoveMapping(handle);
      return;
    }
    case RangeKind::kManaged:
    case RangeKind::kPinned:
    case RangeKind::kRegistered:
      FreeHostBytes(range);
      space_.Remove(base);
      return;
  }
}

}  // namespace weir::sim
