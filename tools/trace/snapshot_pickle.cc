// Memory snapshots of PyTorch: device_traces[d] is the history of device d, oldest first.
//
// A snapshot tells less than a trace needs; what is inferred:
//  - A block that was used on another stream (record_stream) is not completed directly after its
//    free was requested. The snapshot does not say which stream; the most recent other stream of
//    the device before the free is taken, else the first other one of its history.
//  - The history may begin late. A block that is freed without having been allocated, or that is
//    allocated in `segments` without a trace of it, was live before: its allocation is put first.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "tools/trace/pickle_machine.h"
#include "tools/trace/readers.h"
#include "tools/trace/trace_builder.h"

namespace weir::trace {
namespace {

// The history of one device, and how far it is read.
struct History {
  PickleMachine::Values events = {nullptr, 0};
  uint64_t next = 0;
  int64_t next_time_us = 0;
  std::vector<uint64_t> recent_streams;   // the latest last
  std::vector<uint64_t> streams;          // in the order of their first event
  absl::flat_hash_set<uint64_t> pending;  // addresses whose free was requested, not completed
};

class SnapshotReader {
 public:
  explicit SnapshotReader(Input& input) : input_(input), machine_(input) {}

  absl::StatusOr<Trace> Read() {
    PickleValue root;
    if (absl::Status s = machine_.Run(&root); !s.ok()) return s;
    const PickleValue* traces = machine_.Find(root, Atom::device_traces);
    if (traces == nullptr || traces->type != PickleValue::kList) {
      return input_.ErrorHere("no device_traces in it: not a memory snapshot of PyTorch");
    }
    if (machine_.ValuesOf(*traces).count > kMaxDevices) {
      return input_.ErrorHere(absl::StrCat("more than ", kMaxDevices, " devices"));
    }
    for (const PickleValue& trace : machine_.ValuesOf(*traces)) {
      History history;
      history.events = machine_.ValuesOf(trace);
      total_events_ += history.events.count;
      histories_.push_back(history);
    }
    if (total_events_ > kMaxEvents) {
      return input_.ErrorHere(absl::StrCat("more than ", kMaxEvents, " events"));
    }
    for (uint64_t device = 0; device < histories_.size(); ++device) {
      if (absl::Status s = FindStreams(device); !s.ok()) return s;
      if (absl::Status s = FindTime(device); !s.ok()) return s;
    }
    while (History* history = Earliest()) {
      const uint64_t device = static_cast<uint64_t>(history - histories_.data());
      if (absl::Status s = OneEvent(device, *history); !s.ok()) return s;
      ++history->next;
      if (absl::Status s = FindTime(device); !s.ok()) return s;
    }
    if (const PickleValue* segments = machine_.Find(root, Atom::segments)) {
      if (absl::Status s = AddBlocksOfSegments(*segments); !s.ok()) return s;
    }
    AddNotes();
    return builder_.Finish("pytorch-snapshot");
  }

 private:
  absl::Status Error(uint64_t device, uint64_t event, std::string_view text) const {
    return input_.ErrorAt(absl::StrCat("device ", device, " event"), event, text);
  }

  bool GetInteger(const PickleValue& dict, Atom key, int64_t* value) const {
    const PickleValue* found = machine_.Find(dict, key);
    if (found == nullptr || found->type != PickleValue::kInteger) return false;
    *value = found->integer;
    return true;
  }

  // Histories of several devices are merged by time; each keeps its own order.
  History* Earliest() {
    History* earliest = nullptr;
    for (History& history : histories_) {
      if (history.next == history.events.count) continue;
      if (earliest == nullptr || history.next_time_us < earliest->next_time_us) {
        earliest = &history;
      }
    }
    return earliest;
  }

  absl::Status FindTime(uint64_t device) {
    History& history = histories_[device];
    if (history.next == history.events.count) return absl::OkStatus();
    // Snapshots before PyTorch 2.2 carry no times.
    if (!GetInteger(history.events.first[history.next], Atom::time_us, &history.next_time_us)) {
      history.next_time_us = 0;
    }
    return absl::OkStatus();
  }

  absl::Status FindStreams(uint64_t device) {
    History& history = histories_[device];
    for (const PickleValue& event : history.events) {
      int64_t stream = 0;
      if (!GetInteger(event, Atom::stream, &stream)) continue;
      const auto handle = static_cast<uint64_t>(stream);
      if (!history.streams.empty() && history.streams.back() == handle) continue;
      if (std::find(history.streams.begin(), history.streams.end(), handle) !=
          history.streams.end()) {
        continue;
      }
      if (history.streams.size() == kMaxStreams) {
        return input_.ErrorHere(absl::StrCat("more than ", kMaxStreams, " streams"));
      }
      history.streams.push_back(handle);
    }
    return absl::OkStatus();
  }

  static void Touch(History& history, uint64_t stream) {
    std::vector<uint64_t>& recent = history.recent_streams;
    if (!recent.empty() && recent.back() == stream) return;
    std::erase(recent, stream);
    recent.push_back(stream);
  }

  // False if the device has only one stream.
  static bool OtherStream(const History& history, uint64_t stream, uint64_t* other) {
    const auto differs = [&](uint64_t candidate) { return candidate != stream; };
    const auto& recent = history.recent_streams;
    if (auto at = std::find_if(recent.rbegin(), recent.rend(), differs); at != recent.rend()) {
      *other = *at;
      return true;
    }
    auto first = std::find_if(history.streams.begin(), history.streams.end(), differs);
    if (first == history.streams.end()) return false;
    *other = *first;
    return true;
  }

  bool CompletesNext(const History& history, int64_t address) const {
    if (history.next + 1 == history.events.count) return false;
    const PickleValue& next = history.events.first[history.next + 1];
    const PickleValue* action = machine_.Find(next, Atom::action);
    int64_t next_address = 0;
    return action != nullptr && action->Is(Atom::free_completed) &&
           GetInteger(next, Atom::addr, &next_address) && next_address == address;
  }

  absl::Status OneEvent(uint64_t device, History& history) {
    const PickleValue& event = history.events.first[history.next];
    const PickleValue* action = machine_.Find(event, Atom::action);
    if (event.type != PickleValue::kDict || action == nullptr) {
      return Error(device, history.next, "is no event with an action");
    }
    const bool alloc = action->Is(Atom::alloc);
    const bool requested = action->Is(Atom::free_requested);
    const bool completed = action->Is(Atom::free_completed);
    if (!alloc && !requested && !completed) return absl::OkStatus();  // segment_*, snapshot, oom
    int64_t address = 0, size = 0, stream = 0;
    if (!GetInteger(event, Atom::addr, &address) || !GetInteger(event, Atom::size, &size) ||
        !GetInteger(event, Atom::stream, &stream)) {
      return Error(device, history.next, "addr, size or stream is missing or no integer");
    }
    if (size < 0) {
      return Error(device, history.next, absl::StrCat("the size is negative: ", size));
    }
    const TraceBuilder::Key key{device, static_cast<uint64_t>(address)};
    const auto handle = static_cast<uint64_t>(stream);
    absl::Status status;
    if (completed) {
      if (history.pending.erase(key.id) == 0) {
        if (builder_.IsLive(key)) {
          return Error(device, history.next, "free_completed of a block whose free was not asked");
        }
        ++unknown_completions_;
      }
    } else {
      Touch(history, handle);
      if (alloc) {
        status =
            builder_.Alloc(key, static_cast<uint64_t>(size), device, handle, history.next_time_us);
      } else {
        status = FreeRequested(device, history, key, static_cast<uint64_t>(size), handle);
      }
    }
    return status.ok() ? status : Error(device, history.next, std::string(status.message()));
  }

  absl::Status FreeRequested(uint64_t device, History& history, TraceBuilder::Key key,
                             uint64_t size, uint64_t stream) {
    if (!history.pending.insert(key.id).second) {
      return absl::InvalidArgumentError(absl::StrCat("second free of block ", key.id));
    }
    if (!builder_.IsLive(key)) {
      if (absl::Status s = builder_.AllocBeforeStart(key, size, device, stream); !s.ok()) return s;
      ++live_before_;
    }
    uint64_t other = 0;
    if (!CompletesNext(history, static_cast<int64_t>(key.id))) {
      if (OtherStream(history, stream, &other)) {
        if (absl::Status s = builder_.Use(key, other, history.next_time_us); !s.ok()) return s;
        ++uses_;
      } else {
        ++unknown_uses_;
      }
    }
    return builder_.Free(key, stream, history.next_time_us);
  }

  absl::Status AddBlocksOfSegments(const PickleValue& segments) {
    uint64_t visited = 0;
    for (const PickleValue& segment : machine_.ValuesOf(segments)) {
      const PickleValue* blocks = machine_.Find(segment, Atom::blocks);
      int64_t device = 0, stream = 0;
      if (blocks == nullptr || !GetInteger(segment, Atom::device, &device) ||
          !GetInteger(segment, Atom::stream, &stream)) {
        continue;
      }
      for (const PickleValue& block : machine_.ValuesOf(*blocks)) {
        // The same list may stand in many segments of a hostile file.
        if (++visited > kMaxEvents) return input_.ErrorHere("too many blocks in segments");
        const PickleValue* state = machine_.Find(block, Atom::state);
        int64_t address = 0, size = 0;
        if (state == nullptr || !state->Is(Atom::active_allocated) ||
            !GetInteger(block, Atom::address, &address) ||
            (!GetInteger(block, Atom::requested_size, &size) &&
             !GetInteger(block, Atom::size, &size))) {
          continue;
        }
        const TraceBuilder::Key key{static_cast<uint64_t>(device), static_cast<uint64_t>(address)};
        if (builder_.IsLive(key)) continue;
        absl::Status status =
            size < 0 ? absl::InvalidArgumentError(absl::StrCat("the size is negative: ", size))
                     : builder_.AllocBeforeStart(key, static_cast<uint64_t>(size), key.device,
                                                 static_cast<uint64_t>(stream));
        if (!status.ok()) {
          return input_.ErrorAt("block of segments", visited - 1, std::string(status.message()));
        }
        ++live_before_;
      }
    }
    return absl::OkStatus();
  }

  void AddNotes() {
    if (live_before_ > 0) {
      builder_.AddNote(absl::StrCat(live_before_,
                                    " blocks were live before the recording began; their "
                                    "allocations are put first"));
    }
    if (unknown_completions_ > 0) {
      builder_.AddNote(absl::StrCat(unknown_completions_,
                                    " completions of frees from before the recording are left "
                                    "out"));
    }
    if (uses_ > 0) {
      builder_.AddNote(absl::StrCat(uses_,
                                    " blocks were still in use on another stream when freed; the "
                                    "stream is inferred"));
    }
    if (unknown_uses_ > 0) {
      builder_.AddNote(absl::StrCat(unknown_uses_,
                                    " frees were deferred, but the device has only one stream; "
                                    "taken as plain frees"));
    }
  }

  Input& input_;
  PickleMachine machine_;
  TraceBuilder builder_;
  std::vector<History> histories_;
  uint64_t total_events_ = 0;
  uint64_t live_before_ = 0;
  uint64_t unknown_completions_ = 0;
  uint64_t uses_ = 0;
  uint64_t unknown_uses_ = 0;
};

}  // namespace

absl::StatusOr<Trace> ReadSnapshotPickle(Input& input) { return SnapshotReader(input).Read(); }

}  // namespace weir::trace
