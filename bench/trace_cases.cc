// The traces, replayed: trace/ALLOCATOR/NAME. The first pass, on an allocator that holds nothing,
// measures memory: the counter "reserved_over_requested" is peak reserved ÷ peak requested bytes.
// The timed passes follow; each frees at its end what the trace left live.
#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "bench/cases.h"
#include "tools/trace/trace.h"
#include "tools/trace/trace_io.h"

namespace weir::bench {
namespace {

struct Op {
  trace::EventKind kind = trace::EventKind::kAlloc;
  uint32_t block = 0;
  size_t bytes = 0;         // of the allocation, for frees too
  Stream stream = nullptr;  // of the allocation
  Stream other = nullptr;   // of a use; of a free on another stream
};

// The trace's events as calls of this allocator, closed by frees of what it leaves live. Uses that
// the allocator cannot be told of are left out.
std::vector<Op> MakeOps(const trace::Trace& trace) {
  std::vector<Stream> streams;
  for (size_t i = 0; i < trace.streams.size(); ++i) {
    streams.push_back(trace.streams[i].handle == 0 ? nullptr : StreamAt(i));
  }
  std::vector<Op> allocations(trace.blocks);
  std::vector<bool> live(trace.blocks, false);
  std::vector<Op> ops;
  ops.reserve(trace.events.size());
  for (const trace::TraceEvent& event : trace.events) {
    Op& allocation = allocations[event.block];
    Stream const stream = streams[event.stream];
    if (event.kind == trace::EventKind::kAlloc) {
      allocation = {event.kind, event.block, event.bytes, stream, stream};
      live[event.block] = true;
      ops.push_back(allocation);
      continue;
    }
    Op op = allocation;
    op.kind = event.kind;
    op.other = stream;
    if (event.kind == trace::EventKind::kFree) live[event.block] = false;
    if (event.kind == trace::EventKind::kUse && (!Info().record_use || stream == op.stream)) {
      continue;
    }
    ops.push_back(op);
  }
  for (Op op : allocations) {
    if (!live[op.block]) continue;
    op.kind = trace::EventKind::kFree;
    ops.push_back(op);
  }
  return ops;
}

class TraceFixture : public Fixture {
 public:
  explicit TraceFixture(const std::string& path) {
    const absl::StatusOr<trace::Trace> trace = trace::ReadTrace(path);
    if (!trace.ok()) {
      failure_ = std::string(trace.status().message());
      return;
    }
    ops_ = MakeOps(*trace);
    live_.resize(trace->blocks);
    peak_requested_ = trace::Summarize(*trace).peak_requested_bytes;
    if (peak_requested_ > Info().max_bytes) {
      failure_ = absl::StrCat("skipped: needs ", peak_requested_ >> 30, " GiB");
    } else if (!Pass<true>()) {
      failure_ = "an allocation failed";
    }
  }

  ~TraceFixture() override {
    for (const Op& op : ops_) {
      if (op.kind == trace::EventKind::kAlloc && live_[op.block] != nullptr) {
        Free(live_[op.block], op.bytes, op.stream);
        live_[op.block] = nullptr;
      }
    }
  }

  const std::string& failure() const { return failure_; }
  size_t ops() const { return ops_.size(); }
  double peak_reserved() const { return static_cast<double>(peak_reserved_); }
  double peak_requested() const { return static_cast<double>(peak_requested_); }

  // All calls. False if an allocation failed; what is live then stays so.
  template <bool kMemory>
  bool Pass() {
    for (const Op& op : ops_) {
      void*& block = live_[op.block];
      switch (op.kind) {
        case trace::EventKind::kAlloc:
          block = Allocate(op.bytes, op.stream);
          if (block == nullptr) return false;
          if (kMemory) peak_reserved_ = std::max(peak_reserved_, ReservedBytes());
          break;
        case trace::EventKind::kFree:
          if (op.other != op.stream) {
            FreeAfterUse(block, op.bytes, op.stream, op.other);
          } else {
            Free(block, op.bytes, op.stream);
          }
          block = nullptr;
          break;
        case trace::EventKind::kUse:
          RecordUse(block, op.other);
          break;
      }
    }
    return true;
  }

 private:
  std::vector<Op> ops_;
  std::vector<void*> live_;  // by block
  uint64_t peak_requested_ = 0;
  uint64_t peak_reserved_ = 0;
  std::string failure_;
};

void RunTrace(benchmark::State& state, const std::string& name, const std::string& path) {
  TraceFixture& fixture = FixtureOf(name, [&] { return std::make_unique<TraceFixture>(path); });
  if (!fixture.failure().empty()) {
    state.SkipWithError(fixture.failure().c_str());
    return;
  }
  bool good = true;
  {
    const DriverCallCount calls(state);
    while (good && state.KeepRunningBatch(static_cast<int64_t>(fixture.ops()))) {
      good = fixture.Pass<false>();
    }
  }
  if (!good) state.SkipWithError("an allocation failed");
  state.counters["peak_requested_bytes"] = fixture.peak_requested();
  if (fixture.peak_reserved() == 0) return;  // the allocator cannot say
  state.counters["peak_reserved_bytes"] = fixture.peak_reserved();
  state.counters["reserved_over_requested"] = fixture.peak_reserved() / fixture.peak_requested();
}

}  // namespace

void AddTraceCases(const std::string& folder) {
  std::map<std::string, std::string> paths;  // by name, so that their order is the same everywhere
  std::error_code ignored;                   // a folder that is not there has no traces
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".weirtrace") continue;
    paths[trace::TraceNameOf(entry.path().string())] = entry.path().string();
  }
  for (const auto& [trace_name, path] : paths) {
    const std::string name = CaseName("trace", trace_name);
    AddCase(name, [name, path](benchmark::State& state) { RunTrace(state, name, path); });
  }
}

}  // namespace weir::bench
