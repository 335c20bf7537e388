// User objects: what a program ties to the life of graphs. The destructor runs when the last
// reference of callers, graphs, executables and launches under way is gone: at the end of the
// driver call that notices it, without the simulator's lock, as a host function (it may not call
// CUDA).
//
// Under the simulator's lock, but for RunDestructors.
#ifndef WEIR_TOOLS_SIMCUDA_USER_OBJECT_H_
#define WEIR_TOOLS_SIMCUDA_USER_OBJECT_H_

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "tools/simcuda/handle_table.h"

namespace weir::sim {

class UserObject {
 public:
  UserObject(CUhostFn destroy, void* data, uint64_t count)
      : references(count), destroy_(destroy), data_(data) {}
  ~UserObject();  // queues the destructor
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

  uint64_t references;  // of callers; the table holds the object while there are any

  // Runs the destructors that wait. Without the lock, and not inside a host function.
  static void RunDestructors();

 private:
  const CUhostFn destroy_;
  void* const data_;
};
using UserObjectTable = HandleTable<UserObject, CUuserObject, 0x56>;

// Of a graph, in its name.
struct UserReferences {
  std::shared_ptr<UserObject> object;
  uint64_t count;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_USER_OBJECT_H_
