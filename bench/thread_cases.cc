// Several threads: threads, threads_shared, cross_thread_free. Times are wall time per pair, of all
// threads together: half the time at two threads is perfect scaling.
#include <atomic>
#include <thread>

#include "bench/cases.h"

namespace weir::bench {
namespace {

constexpr int kThreadCounts[] = {1, 2, 4, 8};
constexpr int kMostThreads = 8;
constexpr size_t kBytes = 4 * kKiB;
constexpr int kWarmUp = 1000;  // pairs

void SkipNoMemory(benchmark::State& state) { state.SkipWithError("the allocation failed"); }

// Each thread allocates and frees on its stream.
void RunPairs(benchmark::State& state, Stream stream) {
  StartThread();
  for (int i = 0; i < kWarmUp; ++i) {
    if (void* p = Allocate(kBytes, stream)) Free(p, kBytes, stream);
  }
  const DriverCallCount calls(state);
  for (auto _ : state) {
    void* p = Allocate(kBytes, stream);
    if (p == nullptr) {
      SkipNoMemory(state);
      break;
    }
    benchmark::DoNotOptimize(p);
    Free(p, kBytes, stream);
  }
}

// Blocks on their way from one thread to the next one. One writer, one reader.
class Mailbox {
 public:
  bool Put(void* block) {
    const size_t end = end_.load(std::memory_order_relaxed);
    if (end - begin_.load(std::memory_order_acquire) == kRoom) return false;
    blocks_[end % kRoom] = block;
    end_.store(end + 1, std::memory_order_release);
    return true;
  }
  void* Take() {  // null if there is none
    const size_t begin = begin_.load(std::memory_order_relaxed);
    if (begin == end_.load(std::memory_order_acquire)) return nullptr;
    void* block = blocks_[begin % kRoom];
    begin_.store(begin + 1, std::memory_order_release);
    return block;
  }

 private:
  static constexpr size_t kRoom = 256;
  alignas(64) std::atomic<size_t> begin_{0};
  alignas(64) std::atomic<size_t> end_{0};
  alignas(64) void* blocks_[kRoom] = {};
};

Mailbox mailboxes[kMostThreads];

// Each thread allocates, hands the block to the next thread, and frees what it was handed. All on
// one stream, so that the order of the uses is given.
void RunCrossThread(benchmark::State& state) {
  StartThread();
  const int self = state.thread_index();
  Mailbox& in = mailboxes[self];
  Mailbox& out = mailboxes[(self + 1) % state.threads()];
  Stream const stream = StreamAt(0);
  const auto free_one = [&] {
    void* block = in.Take();
    if (block != nullptr) Free(block, kBytes, stream);
    return block != nullptr;
  };
  const DriverCallCount calls(state);
  for (auto _ : state) {
    void* p = Allocate(kBytes, stream);
    if (p == nullptr) {
      SkipNoMemory(state);
      break;
    }
    while (!out.Put(p)) {
      if (!free_one()) std::this_thread::yield();
    }
    free_one();
  }
  // The loop ended for all threads together: nobody puts any more.
  while (free_one()) {
  }
}

void Add(const std::string& group, int threads, CaseBody body) {
  const std::string name = CaseName(group, std::to_string(threads));
  if (!Info().threads && threads > 1) {
    AddSkippedCase(name, "the allocator is for one thread");
    return;
  }
  AddCase(
      name, [name, body](benchmark::State& state) { body(state); }, threads);
}

}  // namespace

void AddThreadCases() {
  for (int i = 0; i < kMostThreads; ++i) StreamAt(static_cast<size_t>(i));
  for (const int threads : kThreadCounts) {
    Add("threads", threads, [](benchmark::State& state) {
      RunPairs(state, StreamAt(static_cast<size_t>(state.thread_index())));
    });
  }
  for (const int threads : kThreadCounts) {
    if (!Info().device) {
      AddSkippedCase(CaseName("threads_shared", std::to_string(threads)),
                     "CPU memory has no streams");
      continue;
    }
    Add("threads_shared", threads, [](benchmark::State& state) { RunPairs(state, StreamAt(0)); });
  }
  for (const int threads : {2, 4}) Add("cross_thread_free", threads, RunCrossThread);
}

}  // namespace weir::bench
