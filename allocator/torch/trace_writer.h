// TraceWriter: what PyTorch's allocator is asked for, as a CSV file that `weir replay` reads
// (tools/trace/README.md).
//
// It follows the allocator as a trace tracker, so it works for any allocator. Such a tracker is not
// told on which stream a block was used besides its own: a block whose free was not complete at
// once is written as used on the device's most recent other stream.
#ifndef WEIR_TORCH_TRACE_WRITER_H_
#define WEIR_TORCH_TRACE_WRITER_H_

#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "torch_names.h"

namespace weir::torch_plugin {

class TraceWriter {
 public:
  static TraceWriter& Get();

  // Throws if the file cannot be written. Once in a process.
  void Start(const char* path);
  // Throws if something could not be written.
  void Stop();

 private:
  using Key = std::pair<DeviceIndex, uint64_t>;  // a block's device and address
  struct Freed {
    Key key;
    uint64_t id;
    uint64_t stream;
    int64_t time_us;
  };

  void OnEntry(const TraceEntry& entry);
  // Writes the free that is held back until it is known whether it was complete at once.
  void WriteFreed(bool was_deferred);
  void WriteLine(int64_t time_us, char op, uint64_t id, uint64_t bytes, uint64_t stream,
                 DeviceIndex device);

  std::mutex mu_;
  std::FILE* file_ = nullptr;
  bool failed_ = false;
  uint64_t next_id_ = 1;
  std::map<Key, uint64_t> ids_;
  std::optional<Freed> freed_;
  std::unordered_map<DeviceIndex, std::pair<uint64_t, uint64_t>> streams_;  // newest, one before
};

}  // namespace weir::torch_plugin

#endif  // WEIR_TORCH_TRACE_WRITER_H_
