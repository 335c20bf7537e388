// Physical memory of the simulated devices. An Arena is one device's memory: a sparse memfd with
// one hidden mapping, handed out in frames. A Store is one physical object in it (a handle, a
// classic allocation), or a piece of host memory, with an id that is never used again.
//
// A store can be published, so that other processes hold it too (shared_object.h). Its frames then
// stay in use when it is gone, until nobody holds them: that is noticed when memory is asked for or
// counted. A store of another process lies in that process's memory and takes nothing here.
//
// Contents: a fresh frame reads as zero, which a program must not rely on. Frames that were touched
// are given back to the system by punching a hole.
//
// Locks: all of it under the simulator's lock, the destruction of a Store included.
#ifndef WEIR_TOOLS_SIMCUDA_PHYSICAL_MEMORY_H_
#define WEIR_TOOLS_SIMCUDA_PHYSICAL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/btree_map.h"
#include "tools/simcuda/operation.h"
#include "tools/simcuda/shared_object.h"

namespace weir::sim {

class Store;
class Timeline;

struct Run {
  std::byte* host;
  uint64_t bytes;
};

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // Throws std::runtime_error where the system refuses the memfd or its mapping.
  Arena(uint64_t bytes, uint64_t frame_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  uint64_t capacity() const { return capacity_; }
  uint64_t used();
  uint64_t available();  // what can be taken now
  int file() const { return fd_; }
  uint64_t frame_bytes() const { return frame_bytes_; }
  void set_other_process_bytes(uint64_t bytes) { other_process_bytes_ = bytes; }

  // bytes: multiple of the frame size. False if so much is not free; a single run where one is at
  // hand, else as many as needed.
  bool Take(uint64_t bytes, std::vector<Run>* runs);
  void Give(const std::vector<Run>& runs, bool touched);

  // Publishes a store of this arena: the record's position, 0 if the system refuses.
  uint64_t Publish(const std::shared_ptr<Store>& store, unsigned int handle_types,
                   bool rdma_capable);
  // The store that was published at the position, if it lives; else made anew from the frames that
  // it left, if somebody holds them. Null if there is none.
  std::shared_ptr<Store> FindPublished(uint64_t position, int device, Timeline* timeline);
  // Of a published store that is gone.
  void GivePublished(std::vector<Run> runs, uint64_t position);

 private:
  void ReclaimLeftFrames();

  const uint64_t capacity_;
  const uint64_t frame_bytes_;
  uint64_t used_ = 0;
  uint64_t other_process_bytes_ = 0;
  int fd_ = -1;
  std::byte* host_ = nullptr;
  absl::btree_map<uint64_t, uint64_t> free_;                   // offset -> bytes, coalesced
  absl::btree_map<uint64_t, std::weak_ptr<Store>> published_;  // by position
  absl::btree_map<uint64_t, std::vector<Run>> left_;  // frames that others hold, by position
};

class Store {
 public:
  // Frames of an arena; null if it has not so much left.
  static std::shared_ptr<Store> Create(std::shared_ptr<Arena> arena, int device, uint64_t bytes,
                                       Timeline* timeline);
  // Part of another store's frames, as an object of its own.
  static std::shared_ptr<Store> Slice(std::shared_ptr<Store> parent, uint64_t offset,
                                      uint64_t bytes);
  // Host memory, which the caller owns.
  static std::shared_ptr<Store> Host(std::byte* host, uint64_t bytes, Timeline* timeline);
  // An object of another process. `file` holds it (OpenHolding), and is the store's from then on,
  // whatever the outcome. Null if the system refuses to map it.
  static std::shared_ptr<Store> Import(int file, uint64_t position, const SharedObject& object,
                                       Timeline* timeline);
  ~Store();  // frames go back, the checker forgets the object
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  uint64_t id() const { return id_; }
  int device() const { return device_; }  // -1: host memory
  uint64_t bytes() const { return bytes_; }

  // The whole object that this store is or lies in, and where in it.
  static std::shared_ptr<Store> Whole(const std::shared_ptr<Store>& store);
  uint64_t offset_in_whole() const { return offset_; }
  // Publishes a whole object, if it is not yet: its file and the record's position. False for host
  // memory and where the system refuses.
  static bool Publish(const std::shared_ptr<Store>& whole, unsigned int handle_types,
                      bool rdma_capable, int* file, uint64_t* position);

  // The spans of [offset, offset + bytes), which must lie inside.
  void AppendSpans(uint64_t offset, uint64_t bytes, std::vector<PhysicalSpan>* spans) const;
  // To be called before anybody reads or writes the bytes: frames that were never touched need not
  // be given back to the system.
  void Touch();

 private:
  friend class Arena;  // makes stores anew

  Store(int device, uint64_t bytes, Timeline* timeline);

  const uint64_t id_;
  const int device_;
  const uint64_t bytes_;
  Timeline* const timeline_;
  std::shared_ptr<Arena> arena_;   // whose frames these are; null for others than Create's
  std::shared_ptr<Store> parent_;  // of a slice
  uint64_t offset_ = 0;            // of a slice, in the parent
  std::vector<Run> runs_;
  bool touched_ = false;
  uint64_t position_ = 0;  // of the record, if it is published or imported
  int import_ = -1;        // the file of an imported object, whose runs are mapped here
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_PHYSICAL_MEMORY_H_
