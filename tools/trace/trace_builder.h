// TraceBuilder: turns the events of a source, whose blocks are known by ids or addresses, into a
// Trace, and refuses what cannot be a trace. Errors say what is wrong; the reader adds where.
#ifndef WEIR_TOOLS_TRACE_TRACE_BUILDER_H_
#define WEIR_TOOLS_TRACE_TRACE_BUILDER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tools/trace/trace.h"

namespace weir::trace {

class TraceBuilder {
 public:
  // What the source calls one block. Addresses are per device; sources whose ids are unique in the
  // whole file use device 0 here.
  struct Key {
    uint64_t device;
    uint64_t id;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.device, key.id);
    }
    bool operator==(const Key&) const = default;
  };

  absl::Status Alloc(Key key, uint64_t bytes, uint64_t device, uint64_t stream_handle,
                     int64_t time_us);
  absl::Status Free(Key key, uint64_t stream_handle, int64_t time_us);
  absl::Status Use(Key key, uint64_t stream_handle, int64_t time_us);

  // A block that the source frees (or still holds at its end) without having allocated it: it was
  // live before the recording began. Its allocation is put in front of all events, in the order of
  // these calls. Call Free afterwards for a block that is freed.
  absl::Status AllocBeforeStart(Key key, uint64_t bytes, uint64_t device, uint64_t stream_handle);

  bool IsLive(Key key) const { return live_.contains(key); }
  uint64_t event_count() const { return events_.size() + before_.size(); }
  void AddNote(std::string note) { trace_.notes.push_back(std::move(note)); }

  // The builder is empty afterwards.
  Trace Finish(std::string source);

 private:
  struct Live {
    uint32_t block;  // provisional: final numbers follow the allocation order
    uint8_t device;
  };
  absl::Status CheckRoom() const;
  absl::Status StreamIndex(uint64_t device, uint64_t handle, uint16_t* index);
  absl::Status Append(EventKind kind, Key key, uint64_t stream_handle, int64_t time_us);
  absl::Status Begin(Key key, uint64_t bytes, uint64_t device, uint64_t stream_handle,
                     int64_t time_us, std::vector<TraceEvent>* to);

  Trace trace_;
  std::vector<TraceEvent> before_;
  std::vector<TraceEvent> events_;
  uint32_t next_block_ = 0;
  absl::flat_hash_map<Key, Live> live_;
  absl::flat_hash_map<Key, uint16_t> stream_index_;  // id is the stream's handle here
};

}  // namespace weir::trace

#endif  // WEIR_TOOLS_TRACE_TRACE_BUILDER_H_
