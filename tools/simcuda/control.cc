// The control functions of simcuda.h that concern space: configuration, faults, costs, capacity.
#include <exception>

#include "tools/simcuda/entry.h"
#include "tools/simcuda/simulator.h"

namespace weir::sim {
namespace {

std::lock_guard<std::mutex> Hold() { return std::lock_guard<std::mutex>(Simulator::Get().lock()); }

}  // namespace

void Reset(const Config& config) {
  ForgetHook();
  Simulator::Get().Reset(config);
}

const Config& CurrentConfig() { return Simulator::Get().config(); }

void InjectFault(const Fault& fault) {
  const auto hold = Hold();
  Simulator::Get().faults().Add(fault);
}

void ClearFaults() {
  const auto hold = Hold();
  Simulator::Get().faults().Clear();
}

void SetOtherProcessBytes(int device, uint64_t bytes) {
  const auto hold = Hold();
  Simulator& sim = Simulator::Get();
  if (sim.IsDevice(device)) sim.device(device).arena->set_other_process_bytes(bytes);
}

void Deinitialize() {
  const auto hold = Hold();
  Simulator::Get().deinitialized = true;
}

void SetCost(const std::string& entry, Cost cost) {
  const auto hold = Hold();
  Simulator::Get().costs().Set(entry, cost);
}

uint64_t VirtualTimeNs() {
  const auto hold = Hold();
  return Simulator::Get().virtual_time_ns;
}

uint64_t UsedBytes(int device) {
  const auto hold = Hold();
  Simulator& sim = Simulator::Get();
  return sim.IsDevice(device) ? sim.device(device).arena->used() : 0;
}

}  // namespace weir::sim

extern "C" int simcuda_configure(int devices, uint64_t memory_bytes, int64_t lag) {
  using weir::sim::Simulator;
  try {
    Simulator& sim = Simulator::Get();
    weir::sim::Config config = weir::sim::CurrentConfig();
    if (devices > 0) config.devices = devices;
    if (memory_bytes > 0) config.memory_bytes = memory_bytes;
    if (lag >= 0) config.SetLag(static_cast<uint64_t>(lag));
    bool used = false;
    bool same = false;
    {
      const std::lock_guard<std::mutex> hold(sim.lock());
      used = sim.used;
      same = config.devices == sim.config().devices &&
             config.memory_bytes == sim.config().memory_bytes &&
             config.run_ahead == sim.config().run_ahead &&
             config.queries_per_step == sim.config().queries_per_step;
    }
    if (same) return 0;
    if (used) return 1;
    sim.Reset(config);
    return 0;
  } catch (const std::exception&) {  // the system refuses so much memory, or it is too little
    return 2;
  }
}

extern "C" uint64_t simcuda_virtual_time_ns(void) {
  try {
    return weir::sim::VirtualTimeNs();
  } catch (const std::exception&) {  // nothing has run
    return 0;
  }
}
