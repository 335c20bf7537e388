// Physical memory of the simulated devices. An Arena is one device's memory: a sparse memfd with
// one hidden mapping, handed out in frames. A Store is one physical object in it (a handle, a
// classic allocation), or a piece of host memory, with an id that is never used again.
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

namespace weir::sim {

class Timeline;

struct Run {
  std::byte* host;
  uint64_t bytes;
};

class Arena {
 public:
  // Throws std::runtime_error where the system refuses the memfd or its mapping.
  Arena(uint64_t bytes, uint64_t frame_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  uint64_t capacity() const { return capacity_; }
  uint64_t used() const { return used_; }
  uint64_t available() const;  // what can be taken now
  uint64_t frame_bytes() const { return frame_bytes_; }
  void set_other_process_bytes(uint64_t bytes) { other_process_bytes_ = bytes; }

  // bytes: multiple of the frame size. False if so much is not free; a single run where one is at
  // hand, else as many as needed.
  bool Take(uint64_t bytes, std::vector<Run>* runs);
  void Give(const std::vector<Run>& runs, bool touched);

 private:
  const uint64_t capacity_;
  const uint64_t frame_bytes_;
  uint64_t used_ = 0;
  uint64_t other_process_bytes_ = 0;
  int fd_ = -1;
  std::byte* host_ = nullptr;
  absl::btree_map<uint64_t, uint64_t> free_;  // offset -> bytes, coalesced
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
  ~Store();  // frames go back, the checker forgets the object
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  uint64_t id() const { return id_; }
  int device() const { return device_; }  // -1: host memory
  uint64_t bytes() const { return bytes_; }

  // The spans of [offset, offset + bytes), which must lie inside.
  void AppendSpans(uint64_t offset, uint64_t bytes, std::vector<PhysicalSpan>* spans) const;
  // To be called before anybody reads or writes the bytes: frames that were never touched need not
  // be given back to the system.
  void Touch();

 private:
  Store(int device, uint64_t bytes, Timeline* timeline);

  const uint64_t id_;
  const int device_;
  const uint64_t bytes_;
  Timeline* const timeline_;
  std::shared_ptr<Arena> arena_;   // whose frames these are; null for slices and host memory
  std::shared_ptr<Store> parent_;  // of a slice
  std::vector<Run> runs_;
  bool touched_ = false;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_PHYSICAL_MEMORY_H_
