// The traces, replayed: trace/ALLOCATOR/NAME. The first pass, on an allocator that holds nothing,
// measures memory: the counter "reserved_over_requested" is peak reserved ÷ peak requested bytes.
// The timed passes follow; each frees at its end what the trace left live.
#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "bench/cases.h"
#include "bench/trace_ops.h"
#include "tools/trace/trace.h"
#include "tools/trace/trace_io.h"

namespace weir::bench {
namespace {

class TraceFixture : public Fixture {
 public:
  explicit TraceFixture(const std::string& path) {
    const absl::StatusOr<trace::Trace> trace = trace::ReadTrace(path);
    if (!trace.ok()) {
      failure_ = std::string(trace.status().message());
      return;
    }
    ops_ = MakeTraceOps(*trace);
    live_.resize(trace->blocks);
    peak_requested_ = trace::Summarize(*trace).peak_requested_bytes;
    if (peak_requested_ > Info().max_bytes) {
      failure_ = absl::StrCat("skipped: needs ", peak_requested_ >> 30, " GiB");
    } else if (!Pass<true>()) {
      failure_ = "an allocation failed";
    }
  }

  ~TraceFixture() override {
    for (const TraceOp& op : ops_) {
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
    for (const TraceOp& op : ops_) {
      if (!RunTraceOp(op, &live_)) return false;
      if (kMemory && op.kind == trace::EventKind::kAlloc) {
        peak_reserved_ = std::max(peak_reserved_, ReservedBytes());
      }
    }
    return true;
  }

 private:
  std::vector<TraceOp> ops_;
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
