// Events that other processes can wait for (CU_EVENT_INTERPROCESS). Each has a place in a board of
// shared memory, one board per process, that says how often it was recorded and how many of these
// records have executed. Any process that opened the event may record it.
//
// A device of this simulator runs only while its program is in a call. So a record of such an event
// runs what is ready at once, or else who waits elsewhere would wait until this program calls
// again.
//
// The board is written by every process without a lock; what it holds is never trusted as more than
// numbers. The functions here need no lock but Create and the destructor, which are called under
// the simulator's.
#ifndef WEIR_TOOLS_SIMCUDA_SHARED_EVENT_H_
#define WEIR_TOOLS_SIMCUDA_SHARED_EVENT_H_

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace weir::sim {

class SharedEvent {
 public:
  // An event of this process; null if there are too many or the system refuses memory.
  static std::shared_ptr<SharedEvent> Create();
  // One of another process. 201 if it is one of this process, INVALID_VALUE if there is none.
  static CUresult Open(const CUipcEventHandle& handle, std::shared_ptr<SharedEvent>* event);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  CUipcEventHandle handle() const;

  // A record begins; returns its number. It has executed when Complete was called with that.
  uint64_t Record();
  void Complete(uint64_t record);
  uint64_t last_record() const;
  // Whether the last record has executed, or its event is no more.
  bool IsComplete() const;

  struct Place {
    std::atomic<uint64_t> life{0};  // odd: in use. Changes when the place is given to another event
    std::atomic<uint64_t> recorded{0};
    std::atomic<uint64_t> completed{0};
  };

 private:
  struct Name {
    char magic[8];
    int32_t process;
    int32_t file;
    uint64_t file_id;
    uint64_t index;
    uint64_t life;
  };
  static_assert(sizeof(Name) <= sizeof(CUipcEventHandle));

  SharedEvent(const Name& name, Place* place, void* mapping)
      : name_(name), place_(place), mapping_(mapping) {}

  const Name name_;
  Place* const place_;
  void* const mapping_;  // the page of another process's board; null for events of this process
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_SHARED_EVENT_H_
