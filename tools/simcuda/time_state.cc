#include "tools/simcuda/time_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir::sim {
namespace {

std::atomic<uint64_t> last_stream_id{0};  // not reset: ids are unique over the process's life

constexpr uint64_t kOperationsPerEra = 1024;

bool IsLegacyHandle(CUstream handle) { return handle == nullptr || handle == CU_STREAM_LEGACY; }

}  // namespace

TimelineState::TimelineState(std::mutex* lock, AddressTranslator* translator, const Config& config)
    : lock_(lock),
      translator_(translator),
      config_(config),
      random_(config.seed),
      devices_(static_cast<size_t>(config.devices)),
      captures_(&graphs_) {
  auto run = [this](Stream& stream, QueuedOperation& queued) { Run(stream, queued); };
  executor_ = config.executor == Executor::kThreaded
                  ? MakeThreadedExecutor(lock, std::move(run))
                  : MakeDeterministicExecutor(lock, std::move(run), config.seed);
}

TimelineState::~TimelineState() {
  for (Device& device : devices_) {
    for (const std::shared_ptr<Stream>& stream : device.streams) {
      stream->queue.clear();  // both may point back to streams
      if (stream->capture != nullptr) stream->capture->streams.clear();
      stream->capture = nullptr;
    }
  }
}

void TimelineState::Stop() { executor_->Stop(); }

std::shared_ptr<Stream> TimelineState::NewStream(int device, StreamKind kind, CUstream handle) {
  auto stream = std::make_shared<Stream>();
  stream->handle = handle;
  stream->id = ++last_stream_id;
  stream->device = device;
  stream->kind = kind;
  stream->lane = lanes_.Take(*host_clock_);
  stream->submitted = stream->completed = lanes_.Last(stream->lane);
  Device& owner = devices_[static_cast<size_t>(device)];
  owner.streams.push_back(stream);
  if (!owner.context_waits.empty()) {
    Enqueue(stream, EventWaitOperation("cuCtxWaitEvent"), owner.context_waits);
  }
  return stream;
}

std::shared_ptr<Stream> TimelineState::FindStream(int device, CUstream handle) {
  if (IsLegacyHandle(handle)) {
    std::shared_ptr<Stream>& legacy = devices_[static_cast<size_t>(device)].legacy;
    if (legacy == nullptr) legacy = NewStream(device, StreamKind::kLegacy, nullptr);
    return legacy;
  }
  if (handle == CU_STREAM_PER_THREAD) {
    std::shared_ptr<Stream>& own =
        devices_[static_cast<size_t>(device)].per_thread[std::this_thread::get_id()];
    if (own == nullptr) own = NewStream(device, StreamKind::kBlocking, CU_STREAM_PER_THREAD);
    return own;
  }
  return streams_.Find(handle);
}

CUstream TimelineState::CreateStream(int device, StreamKind kind, int priority) {
  ForgetEndedStreams(devices_[static_cast<size_t>(device)]);
  const std::shared_ptr<Stream> stream = NewStream(device, kind, nullptr);
  stream->priority = priority;
  stream->handle = streams_.Add(stream);
  return stream->handle;
}

void TimelineState::DestroyStream(const std::shared_ptr<Stream>& stream) {
  streams_.Remove(stream->handle);
  stream->destroyed = true;
  stream->held = false;  // nobody could release it any more
  executor_->Wake();
  ForgetEndedStreams(devices_[static_cast<size_t>(stream->device)]);
}

void TimelineState::ForgetEndedStreams(Device& device) {
  const auto ended = std::remove_if(
      device.streams.begin(), device.streams.end(), [this](const std::shared_ptr<Stream>& stream) {
        // The host covers complete work only. Until it does,
        // context events and the legacy stream have to order it.
        if (!stream->destroyed || !host_clock_.Covers(stream->lane, stream->submitted)) {
          return false;
        }
        lanes_.GiveBack(stream->lane);
        return true;
      });
  device.streams.erase(ended, device.streams.end());
}

const std::vector<std::shared_ptr<Stream>>& TimelineState::StreamsOf(int device) {
  return devices_[static_cast<size_t>(device)].streams;
}

void TimelineState::OrderAfter(Stream& stream, const Mark& mark, QueuedOperation* operation) {
  for (const Point& point : mark.points) {
    // A covered point needs no wait: the host saw it complete, or an earlier operation of this
    // stream waits for it.
    if (point.stream.get() == &stream || stream.clock.Covers(point.stream->lane, point.position)) {
      continue;
    }
    if (!point.Complete()) operation->waits.push_back(point);
  }
  mark.MergeInto(&stream.clock);
}

Mark TimelineState::TailOf(const std::shared_ptr<Stream>& stream) {
  return {{{stream, stream->submitted}}, stream->clock.Share()};
}

std::shared_ptr<OperationRecord> TimelineState::Enqueue(const std::shared_ptr<Stream>& stream,
                                                        Operation operation,
                                                        absl::Span<const Mark> after,
                                                        bool even_after_errors) {
  QueuedOperation queued;
  if (stream->host_version_seen != host_version_) {
    stream->clock.Merge(*host_clock_);
    stream->host_version_seen = host_version_;
  }
  const Device& device = devices_[static_cast<size_t>(stream->device)];
  if (stream->kind == StreamKind::kLegacy) {
    for (const std::shared_ptr<Stream>& other : device.streams) {
      if (other->kind != StreamKind::kBlocking) continue;
      if (stream->clock.Covers(other->lane, other->submitted)) continue;
      OrderAfter(*stream, TailOf(other), &queued);
    }
  } else if (stream->kind == StreamKind::kBlocking && device.legacy != nullptr &&
             !stream->clock.Covers(device.legacy->lane, device.legacy->submitted)) {
    OrderAfter(*stream, TailOf(device.legacy), &queued);
  }
  for (const Mark& mark : after) OrderAfter(*stream, mark, &queued);

  stream->submitted = lanes_.Advance(stream->lane);
  auto record = std::make_shared<OperationRecord>(OperationRecord{
      operation.label, stream->id, stream->lane, stream->submitted, stream->clock.Share()});
  queued.operation = std::move(operation);
  queued.record = record;
  queued.era = CurrentEra();
  queued.even_after_errors = even_after_errors;
  executor_->Enqueue(stream, std::move(queued));
  queries_in_a_row_ = 0;
  return record;
}

std::shared_ptr<Era> TimelineState::CurrentEra() {
  if (eras_.empty() || ++era_operations_ > kOperationsPerEra) {
    eras_.push_back(std::make_shared<Era>(Era{host_clock_.Share()}));
    era_operations_ = 1;
    while (eras_.front().use_count() == 1 && eras_.size() > 1) eras_.pop_front();
    // Whatever did not run yet was submitted after the first era's beginning.
    checker_.ForgetCovered(eras_.front()->host);
  }
  return eras_.back();
}

CUresult TimelineState::CheckLegacy(const Stream& stream) {
  const bool unusable =
      stream.kind == StreamKind::kLegacy && captures_.InvalidateBlockingLegacy(stream.device);
  return unusable ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult TimelineState::Submit(const std::shared_ptr<Stream>& stream, Operation operation) {
  if (stream->capture != nullptr) return CaptureSet::AddNode(*stream, std::move(operation));
  if (const CUresult result = CheckLegacy(*stream); result != CUDA_SUCCESS) return result;
  Enqueue(stream, std::move(operation));
  RunAhead();
  return CUDA_SUCCESS;
}

Mark TimelineState::MarkOf(const std::vector<std::shared_ptr<Stream>>& streams,
                           bool blocking_only) const {
  Mark mark;
  SharedClock clock;
  for (const std::shared_ptr<Stream>& stream : streams) {
    if (blocking_only && stream->kind == StreamKind::kNonBlocking) continue;
    if (host_clock_.Covers(stream->lane, stream->submitted)) continue;
    mark.points.push_back({stream, stream->submitted});
    clock.Merge(*stream->clock);
  }
  mark.clock = clock.Share();
  return mark;
}

Mark TimelineState::StreamMark(const std::shared_ptr<Stream>& stream) {
  if (stream->kind != StreamKind::kLegacy) return TailOf(stream);
  return MarkOf(StreamsOf(stream->device), /*blocking_only=*/true);
}

Mark TimelineState::DeviceMark(int device) {
  return MarkOf(StreamsOf(device), /*blocking_only=*/false);
}

void TimelineState::HostLearns(const Mark& mark) {
  if (mark.MergeInto(&host_clock_)) ++host_version_;
}

bool TimelineState::ReleasedWhileStalled() {
  if (!on_stalled_wait_) return false;
  const std::function<bool()> hook = on_stalled_wait_;
  lock_->unlock();
  const bool released = hook();
  lock_->lock();
  return released;
}

CUresult TimelineState::Wait(const Mark& mark, int device) {
  while (!executor_->WaitUntil([&mark] { return mark.Complete(); })) {
    if (ReleasedWhileStalled()) continue;
    checker_.AddReport({DeadlockText(mark), "", ""});
    return CUDA_ERROR_TIMEOUT;
  }
  HostLearns(mark);
  return sticky(device);
}

CUresult TimelineState::Query(const Mark& mark, int device) {
  if (!mark.Complete() && ++queries_in_a_row_ >= config_.queries_per_step) executor_->Step();
  if (const CUresult error = sticky(device); error != CUDA_SUCCESS) return error;
  if (!mark.Complete()) return CUDA_ERROR_NOT_READY;
  if (spurious_not_ready_ > 0 && random_.Fraction() < spurious_not_ready_) {
    return CUDA_ERROR_NOT_READY;
  }
  HostLearns(mark);
  return CUDA_SUCCESS;
}

void TimelineState::AddContextWait(int device, const Mark& mark) {
  SharedClock covered;
  covered.Merge(*host_clock_);
  mark.MergeInto(&covered);
  std::vector<Mark>& waits = devices_[static_cast<size_t>(device)].context_waits;
  const auto implied = [&covered](const Mark& old) {
    return std::all_of(old.points.begin(), old.points.end(), [&covered](const Point& point) {
      return covered.Covers(point.stream->lane, point.position);
    });
  };
  waits.erase(std::remove_if(waits.begin(), waits.end(), implied), waits.end());
  waits.push_back(mark);
}

std::string TimelineState::DeadlockText(const Mark& mark) const {
  std::string text = "deadlock: the host waits, and nothing can run. Waited for:";
  for (const Point& point : mark.points) {
    if (!point.Complete()) absl::StrAppend(&text, " ", point.stream->Name(), ";");
  }
  for (const Device& device : devices_) {
    for (const std::shared_ptr<Stream>& stream : device.streams) {
      if (stream->queue.empty()) continue;
      absl::StrAppend(&text, " ", stream->Name(), stream->held ? " is held" : " waits", " before '",
                      stream->queue.front().operation.label, "';");
    }
  }
  text.back() = '.';
  return text;
}

Operation TimelineState::EventWaitOperation(std::string_view entry) {
  Operation operation;
  operation.kind = OperationKind::kEventWait;
  operation.label = Label(entry);
  return operation;
}

std::string TimelineState::Label(std::string_view entry) {
  return absl::StrCat(std::string(entry), " #", ++last_label_);
}

}  // namespace weir::sim
