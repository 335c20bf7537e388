#include "tools/trace/trace_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir::trace {

absl::Status TraceBuilder::CheckRoom() const {
  if (event_count() < kMaxEvents) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("more than ", kMaxEvents, " events; record a shorter part of the program"));
}

absl::Status TraceBuilder::StreamIndex(uint64_t device, uint64_t handle, uint16_t* index) {
  auto found = stream_index_.find(Key{device, handle});
  if (found != stream_index_.end()) {
    *index = found->second;
    return absl::OkStatus();
  }
  if (trace_.streams.size() == kMaxStreams) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxStreams, " streams"));
  }
  *index = static_cast<uint16_t>(trace_.streams.size());
  trace_.streams.push_back({handle, static_cast<uint8_t>(device)});
  stream_index_.emplace(Key{device, handle}, *index);
  return absl::OkStatus();
}

absl::Status TraceBuilder::Begin(Key key, uint64_t bytes, uint64_t device, uint64_t stream_handle,
                                 int64_t time_us, std::vector<TraceEvent>* to) {
  if (absl::Status room = CheckRoom(); !room.ok()) return room;
  if (device >= kMaxDevices) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device, " is not below ", kMaxDevices));
  }
  if (bytes > kMaxBlockBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a size of ", bytes, " bytes is more than ", kMaxBlockBytes));
  }
  TraceEvent event;
  if (absl::Status s = StreamIndex(device, stream_handle, &event.stream); !s.ok()) return s;
  auto [at, inserted] = live_.try_emplace(key, Live{next_block_, static_cast<uint8_t>(device)});
  if (!inserted) {
    return absl::InvalidArgumentError(
        absl::StrCat("allocation of block ", key.id, ", which is still live"));
  }
  event.kind = EventKind::kAlloc;
  event.block = next_block_++;
  event.bytes = bytes;
  event.device = static_cast<uint8_t>(device);
  event.time_us = time_us;
  to->push_back(event);
  return absl::OkStatus();
}

absl::Status TraceBuilder::Alloc(Key key, uint64_t bytes, uint64_t device, uint64_t stream_handle,
                                 int64_t time_us) {
  return Begin(key, bytes, device, stream_handle, time_us, &events_);
}

absl::Status TraceBuilder::AllocBeforeStart(Key key, uint64_t bytes, uint64_t device,
                                            uint64_t stream_handle) {
  return Begin(key, bytes, device, stream_handle, 0, &before_);
}

absl::Status TraceBuilder::Append(EventKind kind, Key key, uint64_t stream_handle,
                                  int64_t time_us) {
  if (absl::Status room = CheckRoom(); !room.ok()) return room;
  auto found = live_.find(key);
  if (found == live_.end()) {
    return absl::InvalidArgumentError(absl::StrCat(kind == EventKind::kFree ? "free" : "use",
                                                   " of block ", key.id, ", which is not live"));
  }
  TraceEvent event;
  event.kind = kind;
  event.block = found->second.block;
  event.device = found->second.device;
  event.time_us = time_us;
  if (absl::Status s = StreamIndex(event.device, stream_handle, &event.stream); !s.ok()) return s;
  events_.push_back(event);
  if (kind == EventKind::kFree) live_.erase(found);
  return absl::OkStatus();
}

absl::Status TraceBuilder::Free(Key key, uint64_t stream_handle, int64_t time_us) {
  return Append(EventKind::kFree, key, stream_handle, time_us);
}

absl::Status TraceBuilder::Use(Key key, uint64_t stream_handle, int64_t time_us) {
  return Append(EventKind::kUse, key, stream_handle, time_us);
}

Trace TraceBuilder::Finish(std::string source) {
  if (!before_.empty()) {
    const int64_t start_us = events_.empty() ? 0 : events_.front().time_us;
    for (TraceEvent& event : before_) event.time_us = start_us;
    before_.insert(before_.end(), events_.begin(), events_.end());
    events_ = std::exchange(before_, {});
    std::vector<uint32_t> number(next_block_);
    uint32_t next = 0;
    for (TraceEvent& event : events_) {
      if (event.kind == EventKind::kAlloc) number[event.block] = next++;
      event.block = number[event.block];
    }
  }
  trace_.source = std::move(source);
  trace_.events = std::move(events_);
  trace_.blocks = next_block_;
  Trace result = std::move(trace_);
  *this = TraceBuilder();
  return result;
}

TraceSummary Summarize(const Trace& trace) {
  TraceSummary summary;
  std::vector<uint64_t> live(kMaxDevices), peak(kMaxDevices);
  std::vector<uint64_t> bytes(trace.blocks);
  for (const TraceStream& stream : trace.streams) {
    summary.devices = std::max(summary.devices, stream.device + 1);
  }
  for (const TraceEvent& event : trace.events) {
    switch (event.kind) {
      case EventKind::kAlloc:
        ++summary.allocations;
        bytes[event.block] = event.bytes;
        live[event.device] += event.bytes;
        peak[event.device] = std::max(peak[event.device], live[event.device]);
        break;
      case EventKind::kFree:
        ++summary.frees;
        live[event.device] -= bytes[event.block];
        break;
      case EventKind::kUse:
        ++summary.uses;
        break;
    }
  }
  summary.live_at_end = summary.allocations - summary.frees;
  for (uint64_t bytes_of_device : peak) summary.peak_requested_bytes += bytes_of_device;
  return summary;
}

}  // namespace weir::trace
