#include "trace_writer.h"

#include <pthread.h>
#include <stdio_ext.h>

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstring>

#include "torch_allocator.h"

namespace weir::torch_plugin {
namespace {

int64_t NowUs() {
  using std::chrono::duration_cast;
  using std::chrono::microseconds;
  return duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

TraceWriter& TraceWriter::Get() {
  static auto* const writer = new TraceWriter();  // tensors may be freed at exit
  return *writer;
}

void TraceWriter::Start(const char* path) {
  {
    const std::lock_guard lock(mu_);
    TORCH_CHECK(file_ == nullptr, "a trace is being written already");
    file_ = std::fopen(path, "w");
    TORCH_CHECK(file_ != nullptr, "the trace cannot be written to ", path, ": ",
                std::strerror(errno));
    failed_ = std::fputs("t_us,op,id,size,stream,device\n", file_) < 0;
  }
  // What lies in the file's buffer is the parent's to write.
  pthread_atfork(nullptr, nullptr, [] {
    TraceWriter& writer = Get();
    if (writer.file_ != nullptr) __fpurge(writer.file_);
    writer.file_ = nullptr;
  });
  const auto listen = [this](const TraceEntry& entry) { OnEntry(entry); };
  TorchAllocator& weir = TorchAllocator::Get();
  if (c10::cuda::CUDACachingAllocator::get() == &weir) {
    weir.history().AddTracker(listen, /*only_listens=*/true);
  } else {
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(listen);
  }
}

void TraceWriter::Stop() {
  const std::lock_guard lock(mu_);
  if (file_ == nullptr) return;
  WriteFreed(/*was_deferred=*/false);
  failed_ |= std::fclose(file_) != 0;
  file_ = nullptr;
  TORCH_CHECK(!failed_, "the trace could not be written whole: ", std::strerror(errno));
}

void TraceWriter::WriteLine(int64_t time_us, char op, uint64_t id, uint64_t bytes, uint64_t stream,
                            DeviceIndex device) {
  failed_ |= std::fprintf(file_, "%" PRId64 ",%c,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%d\n", time_us,
                          op, id, bytes, stream, static_cast<int>(device)) < 0;
}

void TraceWriter::WriteFreed(bool was_deferred) {
  if (!freed_.has_value()) return;
  const Freed freed = *std::exchange(freed_, std::nullopt);
  const DeviceIndex device = freed.key.first;
  if (was_deferred) {
    const auto& [newest, before] = streams_[device];
    const uint64_t other = newest != freed.stream ? newest : before;
    if (other != freed.stream) WriteLine(freed.time_us, 'u', freed.id, 0, other, device);
  }
  WriteLine(freed.time_us, 'f', freed.id, 0, freed.stream, device);
}

void TraceWriter::OnEntry(const TraceEntry& entry) {
  const auto stream = reinterpret_cast<uintptr_t>(entry.stream_);
  const Key key{entry.device_, entry.addr_};
  const std::lock_guard lock(mu_);
  if (file_ == nullptr) return;
  switch (entry.action_) {
    case TraceEntry::ALLOC: {
      WriteFreed(/*was_deferred=*/true);
      const uint64_t id = next_id_++;
      ids_[key] = id;
      auto& [newest, before] = streams_.try_emplace(entry.device_, stream, stream).first->second;
      if (newest != stream) before = std::exchange(newest, stream);
      WriteLine(NowUs(), 'a', id, entry.size_, stream, entry.device_);
      return;
    }
    case TraceEntry::FREE_REQUESTED: {
      WriteFreed(/*was_deferred=*/true);
      const auto id = ids_.find(key);
      if (id == ids_.end()) return;  // allocated before the recording
      freed_ = Freed{key, id->second, stream, NowUs()};
      ids_.erase(id);
      return;
    }
    case TraceEntry::FREE_COMPLETED:
      if (freed_.has_value() && freed_->key == key) WriteFreed(/*was_deferred=*/false);
      return;
    default:
      return;
  }
}

}  // namespace weir::torch_plugin
