#include "tools/simcuda/user_object.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "tools/simcuda/time_entries.h"

namespace weir::sim {
namespace {

struct Destructor {
  CUhostFn function;
  void* data;
};
std::mutex g_waiting_mu;
std::vector<Destructor> g_waiting;  // guarded by g_waiting_mu
std::atomic<bool> g_some_waiting{false};

// Takes `count` references from their owner. False if he has fewer.
bool Take(uint64_t* references, unsigned int count) {
  if (count == 0 || count > *references) return false;
  *references -= count;
  return true;
}

}  // namespace

UserObject::~UserObject() {
  const std::lock_guard<std::mutex> hold(g_waiting_mu);
  g_waiting.push_back({destroy_, data_});
  g_some_waiting.store(true, std::memory_order_release);
}

void UserObject::RunDestructors() {
  if (!g_some_waiting.load(std::memory_order_acquire)) return;
  std::vector<Destructor> waiting;
  {
    const std::lock_guard<std::mutex> hold(g_waiting_mu);
    waiting.swap(g_waiting);
    g_some_waiting.store(false, std::memory_order_release);
  }
  for (const Destructor& destructor : waiting) {
    Timeline::CallHostFunction([&destructor] { destructor.function(destructor.data); });
  }
}

CUresult SimUserObjectCreate(CUuserObject* handle, void* data, CUhostFn destroy,
                             unsigned int references, unsigned int flags) {
  if (handle == nullptr || destroy == nullptr || references == 0 || references > INT32_MAX ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = Time().user_objects().Add(std::make_shared<UserObject>(destroy, data, references));
  return CUDA_SUCCESS;
}

CUresult SimUserObjectRetain(CUuserObject handle, unsigned int count) {
  const std::shared_ptr<UserObject> object = Time().user_objects().Find(handle);
  if (object == nullptr || count == 0 || count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  object->references += count;
  return CUDA_SUCCESS;
}

CUresult SimUserObjectRelease(CUuserObject handle, unsigned int count) {
  const std::shared_ptr<UserObject> object = Time().user_objects().Find(handle);
  if (object == nullptr || !Take(&object->references, count)) return CUDA_ERROR_INVALID_VALUE;
  if (object->references == 0) Time().user_objects().Remove(handle);
  return CUDA_SUCCESS;
}

CUresult SimGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned int count,
                                  unsigned int flags) {
  const std::shared_ptr<Graph> graph = Time().graphs().Find(graph_handle);
  const std::shared_ptr<UserObject> object = Time().user_objects().Find(handle);
  if (graph == nullptr || object == nullptr || count == 0 || count > INT32_MAX ||
      (flags & ~static_cast<unsigned int>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags == CU_GRAPH_USER_OBJECT_MOVE) {
    if (!Take(&object->references, count)) return CUDA_ERROR_INVALID_VALUE;
    if (object->references == 0) Time().user_objects().Remove(handle);
  }
  for (UserReferences& references : graph->user_objects) {
    if (references.object != object) continue;
    references.count += count;
    return CUDA_SUCCESS;
  }
  graph->user_objects.push_back({object, count});
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
