// Entry points: classic memory and events of other processes of this user. A handle names a process
// and a descriptor of it, so it can be opened while that process lives; what was opened stays as it
// is afterwards (shared_object.h, shared_event.h).
//
// Opened memory lies in the memory of the process that made it: it counts there, until it is freed
// there and closed everywhere, and takes nothing of the device that opens it.
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "tools/simcuda/shared_object.h"
#include "tools/simcuda/time_entries.h"

namespace weir::sim {
namespace {

constexpr char kMagic[8] = "weir-mh";

struct MemoryName {
  char magic[8];
  int32_t process;
  int32_t file;
  uint64_t file_id;
  uint64_t position;
  uint64_t offset;  // in the whole object
  uint64_t bytes;
  uint64_t buffer;  // so that memory at the same place later has another handle
};
static_assert(sizeof(MemoryName) <= sizeof(CUipcMemHandle));

bool SameHandle(const CUipcMemHandle& one, const CUipcMemHandle& other) {
  return std::memcmp(&one, &other, sizeof(one)) == 0;
}

// The memory that the handle names; null if it is no more, or the handle was made up.
std::shared_ptr<Store> Open(const MemoryName& name) {
  const int file = OpenOfProcess(name.process, name.file);
  if (file < 0) return nullptr;
  std::shared_ptr<Store> whole;
  const int holding = FileId(file) == name.file_id ? OpenHolding(file, name.position) : -1;
  close(file);
  if (holding < 0) return nullptr;
  // Read when it is held: from here on its owner keeps it.
  const std::optional<SharedObject> object = ReadRecord(holding, name.position);
  const bool inside = object.has_value() && name.bytes > 0 && name.offset <= object->bytes &&
                      name.bytes <= object->bytes - name.offset;
  if (!inside) {
    close(holding);
    return nullptr;
  }
  whole = Store::Import(holding, name.position, *object, &Simulator::Get().timeline());
  return whole == nullptr ? nullptr : Store::Slice(whole, name.offset, name.bytes);
}

Range* FindOpened(CUdeviceptr base) {
  Range* range = Simulator::Get().space().Find(base);
  return range != nullptr && range->kind == RangeKind::kOpened && range->base == base ? range
                                                                                      : nullptr;
}

}  // namespace

CUresult SimIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  const Range* range = Simulator::Get().space().Find(address);
  if (handle == nullptr || range == nullptr || range->kind != RangeKind::kClassic ||
      range->base != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemoryName name{};
  int file = -1;
  if (!Store::Publish(Store::Whole(range->store), 0, false, &file, &name.position)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::memcpy(name.magic, kMagic, sizeof(kMagic));
  name.process = getpid();
  name.file = file;
  name.file_id = FileId(file);
  name.offset = range->store->offset_in_whole();
  name.bytes = range->bytes;
  name.buffer = range->buffer_id;
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle, &name, sizeof(name));
  return CUDA_SUCCESS;
}

CUresult SimIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  Simulator& sim = Simulator::Get();
  MemoryName name;
  std::memcpy(&name, &handle, sizeof(name));
  if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
      std::memcmp(name.magic, kMagic, sizeof(kMagic)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (name.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::vector<CUdeviceptr> before = sim.space().Select([&handle](const Range& range) {
    return range.kind == RangeKind::kOpened && SameHandle(range.opened->handle, handle);
  });
  if (!before.empty()) {
    ++FindOpened(before.front())->opened->opens;
    *address = before.front();
    return CUDA_SUCCESS;
  }
  std::shared_ptr<Store> store = Open(name);
  if (store == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!sim.IsDevice(store->device())) return CUDA_ERROR_INVALID_DEVICE;
  auto range = std::make_unique<Range>();
  range->base = sim.space().TakeAddresses(sim.RoundToFrames(name.bytes));
  if (range->base == 0) return CUDA_ERROR_MAP_FAILED;
  range->bytes = name.bytes;
  range->kind = RangeKind::kOpened;
  range->device = store->device();
  range->store = std::move(store);
  range->opened = std::make_unique<OpenedHandle>(OpenedHandle{handle});
  const int current = sim.current_device();
  if (current != range->device) sim.space().SetPeerAccess(current, range->device, true);
  *address = sim.space().Add(std::move(range))->base;
  return CUDA_SUCCESS;
}

// The last close waits for all work of the context, as cuMemFree does.
CUresult SimIpcCloseMemHandle(CUdeviceptr address) {
  Simulator& sim = Simulator::Get();
  const Range* range = FindOpened(address);
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (range->opened->opens == 1) {
    const CUresult drained = sim.timeline().DrainContext(range->device);
    if (drained != CUDA_SUCCESS) return drained;
  }
  range = FindOpened(address);  // the lock was dropped
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (--range->opened->opens == 0) sim.FreeRange(address);
  return CUDA_SUCCESS;
}

CUresult SimIpcGetEventHandle(CUipcEventHandle* handle, CUevent event_handle) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Event> event = Time().events().Find(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->shared == nullptr) return CUDA_ERROR_INVALID_VALUE;  // not made CU_EVENT_INTERPROCESS
  *handle = event->shared->handle();
  return CUDA_SUCCESS;
}

CUresult SimIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto opened = std::make_shared<Event>();
  const CUresult result = SharedEvent::Open(handle, &opened->shared);
  if (result != CUDA_SUCCESS) return result;
  opened->device = CurrentDevice();
  opened->timed = false;
  *event = Time().events().Add(std::move(opened));
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
