#include "tools/replay/replayer.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "weir/weir.h"

namespace weir::replay {

using Clock = std::chrono::steady_clock;
using trace::EventKind;
using trace::TraceEvent;

namespace {

constexpr uint64_t kBatchEvents = 256;     // between two looks at the clock
constexpr uint64_t kTimelinePoints = 300;  // half of the most there are

double NsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::nano>(to - from).count();
}

// What one look at the clock costs: the least of many, so that an interruption does not count.
double ClockCostNs() {
  double least = 1e9;
  for (int i = 0; i < 1000; ++i) {
    const Clock::time_point before = Clock::now();
    least = std::min(least, NsBetween(before, Clock::now()));
  }
  return least;
}

// The event in the label of an operation of the verifier; kNoEvent for others.
uint64_t EventOfLabel(const std::string& label) {
  constexpr std::string_view kMark = "(event ";
  const size_t at = label.find(kMark);
  if (at == std::string::npos) return kNoEvent;
  return std::strtoull(label.c_str() + at + kMark.size(), nullptr, 10);
}

}  // namespace

Replayer::Replayer(const ReplayOptions& options, const trace::Trace& trace, Progress* progress)
    : options_(options),
      trace_(trace),
      progress_(progress),
      verifier_(driver_),
      lag_(driver_, options.lag) {
  device_map_.assign(trace::kMaxDevices, -1);
  for (const TraceEvent& event : trace.events) device_map_[event.device] = 0;
  for (int& device : device_map_) {
    if (device == 0) device = devices_++;
  }
  if (progress_ != nullptr) {
    progress_->events = trace_.events.size();
    progress_->passes = options_.passes;
  }
}

bool Replayer::Prepare() {
  // Weir first: if its options are wrong, it says so.
  int count = 0;
  if (weir_device_count(&count) != WEIR_OK) return FailFromWeir(kNoEvent, "weir_device_count");
  if (!driver_.Load(options_.simulated, options_.simulated ? 0 : options_.device, devices_)) {
    return FailFromDriver(kNoEvent);
  }
  if (!options_.simulated && options_.memory_bytes != 0) {
    for (int device = 0; device < devices_; ++device) {
      if (weir_set_memory_limit(OrdinalOf(device), options_.memory_bytes) != WEIR_OK) {
        return FailFromWeir(kNoEvent, "weir_set_memory_limit");
      }
    }
  }
  live_.resize(trace_.blocks);
  return CreateStreams();
}

bool Replayer::CreateStreams() {
  std::vector<int> first_of_device(static_cast<size_t>(devices_), -1);
  for (size_t i = 0; i < trace_.streams.size(); ++i) {
    const int device = device_map_[trace_.streams[i].device];
    CUstream stream = nullptr;
    uint16_t mapped = static_cast<uint16_t>(i);
    if (device >= 0) {
      int& first = first_of_device[static_cast<size_t>(device)];
      if (first < 0) first = static_cast<int>(i);
      if (options_.one_stream) mapped = static_cast<uint16_t>(first);
      // The legacy default stream stays what it is.
      const bool create = trace_.streams[i].handle != 0 && mapped == i;
      if (create && !driver_.CreateStream(device, &stream)) {
        return FailFromDriver(kNoEvent);
      }
    }
    streams_.push_back(stream);
    stream_map_.push_back(mapped);
  }
  return true;
}

nlohmann::json Replayer::Run() {
  nlohmann::json runs = nlohmann::json::array();
  if (!Prepare()) {
    runs.push_back(ToJson(result_, options_, trace_));
    return runs;
  }
  for (uint64_t pass = 1; pass <= options_.passes && !result_.failed; ++pass) {
    BeginPass(pass);
    if (RunEvents() && options_.verify) CheckPass();
    EndPass();
    if (!result_.failed && pass < options_.passes) FreeRest();
    runs.push_back(ToJson(result_, options_, trace_));
  }
  return runs;
}

void Replayer::BeginPass(uint64_t pass) {
  result_ = PassResult();
  result_.pass = pass;
  for (int device = 0; device < devices_; ++device) weir_reset_peak_stats(OrdinalOf(device));
  requested_bytes_ = 0;
  verifier_.BeginPass(pass);
  if (options_.simulated) {
    sim::ClearCheckerReports();
    sim::ResetCallCounts();
  }
  own_calls_before_ = driver_.counts();
  start_time_ns_ = half_time_ns_ = DriverTimeNs();
  start_waits_ = Waits();
  if (progress_ != nullptr) progress_->pass = pass;
}

void Replayer::EndPass() {
  const uint64_t end_ns = DriverTimeNs();
  result_.driver_time_ns = end_ns - start_time_ns_;
  result_.steady_driver_time_ns = end_ns - half_time_ns_;
  result_.memory_bytes = options_.memory_bytes;
  result_.waits = Waits() - start_waits_;
  for (int device = 0; device < devices_; ++device) {
    weir_stats_t stats = {};
    weir_get_stats(OrdinalOf(device), &stats);
    result_.stats.push_back(stats);
  }
  if (!options_.simulated) return;
  for (const auto& [entry, calls] : sim::CallCounts()) {
    const auto now = driver_.counts().find(entry);
    const auto before = own_calls_before_.find(entry);
    const uint64_t own = (now == driver_.counts().end() ? 0 : now->second) -
                         (before == own_calls_before_.end() ? 0 : before->second);
    if (calls > own) result_.driver_calls[entry] = calls - own;
  }
}

bool Replayer::RunEvents() {
  const uint64_t count = trace_.events.size();
  uint64_t step = kBatchEvents;
  if (options_.timeline) step = std::clamp<uint64_t>(count / kTimelinePoints, 1, kBatchEvents);
  const double clock_cost_ns = ClockCostNs();
  bool half_seen = false;
  for (uint64_t first = 0; first < count; first += step) {
    if (!half_seen && first >= count / 2) {
      half_time_ns_ = DriverTimeNs();
      half_seen = true;
    }
    const uint64_t end = std::min(first + step, count);
    timed_ns_ = 0;
    const Clock::time_point start = Clock::now();
    for (uint64_t i = first; i < end; ++i) {
      if (progress_ != nullptr) progress_->event.store(i, std::memory_order_relaxed);
      if (options_.lag > 0) lag_.NextEvent();
      if (options_.lag > 0 && !LagBehind(trace_.events[i])) return false;
      if (!(options_.verify ? Verified(i) : Plain(i))) return false;
    }
    const double all_ns = NsBetween(start, Clock::now());
    const double looks = options_.verify ? static_cast<double>(end - first) : 1.0;
    const double ns = (options_.verify ? timed_ns_ : all_ns) - looks * clock_cost_ns;
    result_.batches.push_back({end - first, std::max(ns, 0.0)});
    if (options_.timeline) SampleTimeline(first, end);
  }
  return true;
}

bool Replayer::Plain(uint64_t index) {
  const TraceEvent& event = trace_.events[index];
  Live& live = live_[event.block];
  const uint16_t stream = stream_map_[event.stream];
  switch (event.kind) {
    case EventKind::kAlloc:
      live = {weir_malloc_async_device(event.bytes, OrdinalOf(DeviceOf(event)), streams_[stream]),
              event.bytes, stream};
      return live.pointer != nullptr || FailFromWeir(index, "weir_malloc_async_device");
    case EventKind::kFree: {
      void* pointer = std::exchange(live.pointer, nullptr);
      return weir_free_async(pointer, streams_[stream]) == WEIR_OK ||
             FailFromWeir(index, "weir_free_async");
    }
    case EventKind::kUse:
      return stream == live.stream || weir_record_use(live.pointer, streams_[stream]) == WEIR_OK ||
             FailFromWeir(index, "weir_record_use");
  }
  return true;
}

template <typename Call>
auto Replayer::Timed(Call call) {
  const Clock::time_point before = Clock::now();
  const auto result = call();
  timed_ns_ += NsBetween(before, Clock::now());
  return result;
}

bool Replayer::Verified(uint64_t index) {
  const TraceEvent& event = trace_.events[index];
  switch (event.kind) {
    case EventKind::kAlloc:
      return VerifiedAlloc(index, event);
    case EventKind::kFree:
      return VerifiedFree(index, event);
    case EventKind::kUse:
      return VerifiedUse(index, event);
  }
  return true;
}

bool Replayer::VerifiedAlloc(uint64_t index, const TraceEvent& event) {
  const uint16_t stream = stream_map_[event.stream];
  void* pointer = Timed([&] {
    return weir_malloc_async_device(event.bytes, OrdinalOf(DeviceOf(event)), streams_[stream]);
  });
  if (pointer == nullptr) return FailFromWeir(index, "weir_malloc_async_device");
  live_[event.block] = {pointer, event.bytes, stream};
  if (weir_usable_size(pointer) < event.bytes) {
    return Fail(index, "the block's usable size is less than was asked for");
  }
  return verifier_.Write(BlockOf(event), streams_[stream], index) || FailFromDriver(index);
}

bool Replayer::VerifiedUse(uint64_t index, const TraceEvent& event) {
  const Live& live = live_[event.block];
  const uint16_t stream = stream_map_[event.stream];
  if (stream == live.stream) return true;
  // As a correct program does: the other stream waits for what the block's stream wrote.
  if (!driver_.OrderAfter(DeviceOf(event), streams_[live.stream], streams_[stream]) ||
      !verifier_.Check(BlockOf(event), streams_[stream], index, "use")) {
    return FailFromDriver(index);
  }
  return Timed([&] { return weir_record_use(live.pointer, streams_[stream]); }) == WEIR_OK ||
         FailFromWeir(index, "weir_record_use");
}

bool Replayer::VerifiedFree(uint64_t index, const TraceEvent& event) {
  Live& live = live_[event.block];
  const uint16_t stream = stream_map_[event.stream];
  if (stream != live.stream &&
      !driver_.OrderAfter(DeviceOf(event), streams_[live.stream], streams_[stream])) {
    return FailFromDriver(index);
  }
  if (!verifier_.Check(BlockOf(event), streams_[stream], index, "check")) {
    return FailFromDriver(index);
  }
  void* pointer = std::exchange(live.pointer, nullptr);
  return Timed([&] { return weir_free_async(pointer, streams_[stream]); }) == WEIR_OK ||
         FailFromWeir(index, "weir_free_async");
}

bool Replayer::FreeRest() {
  const uint64_t end = trace_.events.size();
  for (const TraceEvent& event : trace_.events) {
    if (event.kind != EventKind::kAlloc || live_[event.block].pointer == nullptr) continue;
    const Live live = std::exchange(live_[event.block], {});
    if (weir_free_async(live.pointer, streams_[live.stream]) != WEIR_OK) {
      return FailFromWeir(end, "weir_free_async");
    }
  }
  return true;
}

bool Replayer::LagBehind(const TraceEvent& event) {
  if (event.kind == EventKind::kAlloc) return true;
  const CUstream stream = streams_[stream_map_[event.stream]];
  return lag_.Gate(DeviceOf(event), stream) || FailFromDriver(kNoEvent);
}

uint64_t Replayer::Waits() const {
  uint64_t sum = 0;
  for (int device = 0; device < devices_; ++device) {
    weir_stats_t stats;
    if (weir_get_stats(OrdinalOf(device), &stats) == WEIR_OK) sum += stats.waits;
  }
  return sum;
}

bool Replayer::CheckPass() {
  const uint64_t end = trace_.events.size();
  for (const TraceEvent& event : trace_.events) {
    if (event.kind != EventKind::kAlloc || live_[event.block].pointer == nullptr) continue;
    const CUstream stream = streams_[live_[event.block].stream];
    if (!verifier_.Check(BlockOf(event), stream, end, "last check")) return FailFromDriver(end);
  }
  for (int device = 0; device < devices_; ++device) {
    if (!driver_.Synchronize(device)) return FailFromDriver(end);
  }
  const std::vector<sim::Report> reports = sim::CheckerReports();
  result_.checker_reports = reports.size();
  if (verifier_.differences() > 0) return Fail(verifier_.first_event(), verifier_.first());
  if (!reports.empty()) {
    const sim::Report& report = reports.front();
    uint64_t event = EventOfLabel(report.second);
    if (event == kNoEvent) event = EventOfLabel(report.first);
    return Fail(event, absl::StrCat("not ordered: ", report.text));
  }
  return weir_verify() == WEIR_OK || FailFromWeir(end, "weir_verify");
}

bool Replayer::Fail(uint64_t index, const std::string& what) {
  result_.failed = true;
  result_.failed_event = index;
  result_.error = what;
  return false;
}

bool Replayer::FailFromWeir(uint64_t index, const char* call) {
  return Fail(index, absl::StrCat(call, ": ", weir_last_error()));
}

void Replayer::SampleTimeline(uint64_t first, uint64_t end) {
  PassResult::TimelinePoint point = {end - 1, 0, 0};
  for (uint64_t i = first; i < end; ++i) {
    const TraceEvent& event = trace_.events[i];
    if (event.kind == EventKind::kAlloc) requested_bytes_ += event.bytes;
    if (event.kind == EventKind::kFree) requested_bytes_ -= live_[event.block].bytes;
    point.requested_bytes = std::max(point.requested_bytes, requested_bytes_);
  }
  for (int device = 0; device < devices_; ++device) {
    weir_stats_t stats;
    if (weir_get_stats(OrdinalOf(device), &stats) == WEIR_OK) {
      point.reserved_bytes += stats.reserved_bytes;
    }
  }
  result_.AddTimelinePoint(point, kTimelinePoints);
}

Verifier::Block Replayer::BlockOf(const TraceEvent& event) const {
  const Live& live = live_[event.block];
  return {DeviceOf(event), event.block, reinterpret_cast<uint64_t>(live.pointer), live.bytes};
}

uint64_t Replayer::DriverTimeNs() const {
  if (options_.simulated) return sim::VirtualTimeNs() - driver_.modelled_ns();
  uint64_t sum = 0;
  for (int device = 0; device < devices_; ++device) {
    weir_stats_t stats;
    if (weir_get_stats(OrdinalOf(device), &stats) == WEIR_OK) sum += stats.driver_time_ns;
  }
  return sum;
}

}  // namespace weir::replay
