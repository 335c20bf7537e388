#include "tools/simcuda/entry.h"

#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "tools/simcuda/simulator.h"
#include "tools/simcuda/user_object.h"

namespace weir::sim {
namespace {

// Atomic because a call inside a host function is counted too, and must not wait for the lock.
std::atomic<uint64_t> g_calls[kEntryCount];

// The work of the call under way; entries are never nested in a thread.
struct Work {
  uint64_t handles = 0;
  uint64_t bytes = 0;
};
thread_local Work t_work;

// What OnNextCall has set, at most one at a time.
std::atomic<int> g_hooked_entry{-1};
std::mutex g_hook_mu;
std::function<void()> g_hook;  // guarded by g_hook_mu

void RunHook(EntryId id) {
  std::function<void()> hook;
  {
    const std::lock_guard<std::mutex> lock(g_hook_mu);
    if (g_hooked_entry.load() != id) return;
    g_hooked_entry.store(-1);
    hook = std::move(g_hook);
  }
  hook();
}

}  // namespace

void OnNextCall(const std::string& entry, std::function<void()> hook) {
  const int id = FindEntry(entry);
  if (id < 0) throw std::invalid_argument("no such entry point: " + entry);
  const std::lock_guard<std::mutex> lock(g_hook_mu);
  g_hook = std::move(hook);
  g_hooked_entry.store(id);
}

void ForgetHook() {
  const std::lock_guard<std::mutex> lock(g_hook_mu);
  g_hook = nullptr;
  g_hooked_entry.store(-1);
}

void ChargeHandles(uint64_t handles) { t_work.handles += handles; }
void ChargeBytes(uint64_t bytes) { t_work.bytes += bytes; }

EntryScope::EntryScope(EntryId id) : id_(id) {
  g_calls[id].fetch_add(1, std::memory_order_relaxed);
  if (Timeline::InHostFunction()) {
    refusal_ = CUDA_ERROR_NOT_PERMITTED;
    return;
  }
  if (Simulator::InForkedChild()) {
    refusal_ = CUDA_ERROR_NOT_INITIALIZED;
    return;
  }
  if (g_hooked_entry.load(std::memory_order_relaxed) == id) RunHook(id);
  Simulator& sim = Simulator::Get();  // may throw, at first use
  sim.lock().lock();
  locked_ = true;
  t_work = {};
  refusal_ = Check();
}

EntryScope::~EntryScope() {
  if (!locked_) return;
  Simulator& sim = Simulator::Get();
  sim.virtual_time_ns += sim.costs().Price(id_, t_work.handles, t_work.bytes);
  sim.lock().unlock();
  UserObject::RunDestructors();
}

CUresult EntryScope::Check() {
  Simulator& sim = Simulator::Get();
  const EntryInfo& entry = kEntries[id_];
  if (sim.deinitialized) return CUDA_ERROR_DEINITIALIZED;
  bool sticky = false;
  const CUresult fault = sim.faults().Next(entry.name, &sticky);
  if (fault != CUDA_SUCCESS) {
    const int current = sim.current_device();
    if (sticky) {
      sim.timeline().SetStickyError(current < 0 ? 0 : current, fault,
                                    std::string("injected fault at ") + entry.name);
    }
    return fault;
  }
  if (entry.needs == Needs::kNothing) return CUDA_SUCCESS;
  sim.used = true;
  if (!sim.initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (entry.needs != Needs::kInit) {
    const int current = sim.current_device();
    if (current < 0) {
      if (entry.needs == Needs::kContext) return CUDA_ERROR_INVALID_CONTEXT;
    } else {
      if (!sim.device(current).active() && entry.needs == Needs::kContext) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
      }
      const CUresult broken = sim.timeline().StickyError(current);
      if (broken != CUDA_SUCCESS) return broken;
    }
  }
  return entry.capture == CaptureClass::kSafe ? CUDA_SUCCESS
                                              : sim.timeline().CheckCapture(entry.capture);
}

std::map<std::string, uint64_t> CallCounts() {
  std::map<std::string, uint64_t> counts;
  for (int id = 0; id < kEntryCount; ++id) {
    const uint64_t calls = g_calls[id].load(std::memory_order_relaxed);
    if (calls > 0) counts[kEntries[id].name] = calls;
  }
  return counts;
}

uint64_t CallCount(const std::string& entry) {
  const int id = FindEntry(entry);
  return id < 0 ? 0 : g_calls[id].load(std::memory_order_relaxed);
}

void ResetCallCounts() {
  for (std::atomic<uint64_t>& calls : g_calls) calls.store(0, std::memory_order_relaxed);
}

}  // namespace weir::sim
