#include "allocator/pool/registry.h"

#include <pthread.h>

#include "absl/strings/str_cat.h"
#include "allocator/base/forked.h"
#include "allocator/pool/thread_caches.h"

namespace weir {
namespace {

// What comes before the registry.
struct Start {
  Mutex mu;
  std::vector<std::string> configured ABSL_GUARDED_BY(mu);
  HeapError failure ABSL_GUARDED_BY(mu);
};

Start& TheStart() {
  static Start* const start = new Start();
  return *start;
}

// In the child of a fork. What another thread may have locked is not waited for. A process that has
// not started to use Weir leaves a child that may. Without the thread's last cache no hit finds
// one.
void OnFork() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Start& start = TheStart();
  if (Registry::Existing() == nullptr && start.mu.TryLock()) {
    start.mu.Unlock();
    return;
  }
  is_forked.store(true, std::memory_order_relaxed);
  ThreadCaches::ForgetLast();
}

// When the library is loaded, so that no thread is inside TheStart for the first time later.
[[maybe_unused]] const int fork_handler = (TheStart(), pthread_atfork(nullptr, nullptr, &OnFork));

HeapError ReadOptions(const std::vector<std::string>& configured, ProcessOptions* options) {
  std::string text;
  if (!ReadOptionsFromEnvironment(options, &text)) return {WEIR_ERROR_CONFIGURATION, text};
  for (const std::string& item : configured) {
    if (!ParseOptions(item, options, &text)) {
      return {WEIR_ERROR_CONFIGURATION, "weir_configure: " + text};
    }
  }
  return {};
}

}  // namespace

std::atomic<Registry*> Registry::instance_{nullptr};

Registry::Registry(std::unique_ptr<const Driver> driver, const ProcessOptions& options)
    : driver_(std::move(driver)),
      options_(options),
      slots_(static_cast<size_t>(driver_->device_count())) {}

Registry* Registry::Get(HeapError* error) {
  if (Registry* existing = Existing()) return existing;
  Start& start = TheStart();
  MutexLock lock(start.mu);
  if (Registry* existing = Existing()) return existing;
  if (!start.failure.ok()) {
    *error = start.failure;
    return nullptr;
  }
  ProcessOptions options;
  *error = start.failure = ReadOptions(start.configured, &options);
  if (!error->ok()) return nullptr;

  DriverOptions driver_options;
  driver_options.simulated = options.device == ProcessOptions::DeviceKind::kSimulated;
  driver_options.sim_devices = options.sim_devices;
  driver_options.sim_lag = options.sim_lag;
  driver_options.sim_memory_bytes = options.sim_memory;
  std::string text;
  std::unique_ptr<const Driver> driver = Driver::Open(driver_options, &text);
  if (driver == nullptr) {
    *error = start.failure = HeapError(WEIR_ERROR_NO_DEVICE, text);
    return nullptr;
  }
  auto* registry = new Registry(std::move(driver), options);
  instance_.store(registry, std::memory_order_release);
  return registry;
}

HeapError Registry::Configure(std::string_view text) {
  Start& start = TheStart();
  MutexLock lock(start.mu);
  if (Existing() != nullptr) {
    return {WEIR_ERROR_CONFIGURATION,
            "Weir is in use already: call weir_configure before anything else"};
  }
  std::vector<std::string> configured = start.configured;
  configured.emplace_back(text);
  ProcessOptions options;
  if (HeapError error = ReadOptions(configured, &options); !error.ok()) return error;
  start.configured = std::move(configured);
  start.failure = {};
  return {};
}

HeapError Registry::CheckOrdinal(int ordinal) const {
  if (ordinal >= 0 && ordinal < device_count()) return {};
  return {WEIR_ERROR_NO_DEVICE, absl::StrCat("there is no device ", ordinal, "; the driver lists ",
                                             device_count(), ", counted from 0")};
}

DeviceSlot* Registry::Device(int ordinal, HeapError* error) {
  if (DeviceSlot* existing = ExistingDevice(ordinal)) return existing;
  if (*error = CheckOrdinal(ordinal); !error->ok()) return nullptr;
  MutexLock lock(mu_);
  if (DeviceSlot* existing = ExistingDevice(ordinal)) return existing;
  std::unique_ptr<DeviceSlot> slot = MakeDevice(ordinal, error);
  if (slot != nullptr) {
    slots_[static_cast<size_t>(ordinal)].store(slot.get(), std::memory_order_release);
  }
  return slot.release();
}

std::unique_ptr<DeviceSlot> Registry::MakeDevice(int ordinal, HeapError* error) const {
  std::unique_ptr<DeviceDriver> device;
  const DriverStatus status =
      DeviceDriver::Create(*driver_, ordinal, options_.heap.vmm && !options_.passthrough, &device);
  if (!status.ok()) {
    *error = HeapError(WEIR_ERROR_DRIVER,
                       absl::StrCat("device ", ordinal, " cannot be used: ", status.ToString()));
    return nullptr;
  }
  const HeapOptions heap_options = options_.ForDevice(device->total_bytes());
  auto slot = std::make_unique<DeviceSlot>();
  if (options_.passthrough) {
    slot->passthrough = std::make_unique<PassthroughHeap>(std::move(device), heap_options);
    return slot;
  }
  slot->heap = DeviceHeap::Create(std::move(device), heap_options, error);
  if (slot->heap == nullptr) return nullptr;
  return slot;
}

DeviceSlot* Registry::OwnerOf(uint64_t address) const {
  for (const std::atomic<DeviceSlot*>& each : slots_) {
    DeviceSlot* slot = each.load(std::memory_order_acquire);
    if (slot != nullptr && slot->With([&](auto& heap) { return heap.MayOwn(address); })) {
      return slot;
    }
  }
  return nullptr;
}

}  // namespace weir
