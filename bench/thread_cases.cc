// Several threads: threads, threads_shared, cross_thread_free. Times are wall time per pair, of all
// threads together: half the time at two threads is perfect scaling.
#include <array>
#include <atomic>
#include <barrier>
#include <thread>

#include "bench/cases.h"

namespace weir::bench {
namespace {

constexpr int kThreadCounts[] = {1, 2, 4, 8};
constexpr int kMostThreads = 8;
constexpr size_t kBytes = 4 * kKiB;
constexpr size_t kWarmUp = 1024;  // pairs of each thread
constexpr size_t kBatch = 64;     // blocks handed over at once
constexpr int kHandOverThreads[] = {2, 4};
constexpr size_t kBatchesOnTheWay = 4;  // as many as the most threads that hand over

// What one thread does: `pairs` pairs. False if there was no memory.
using Work = bool (*)(int thread, int threads, size_t pairs);

bool PairsOn(Stream stream, size_t pairs) {
  for (size_t i = 0; i < pairs; ++i) {
    void* p = Allocate(kBytes, stream);
    if (p == nullptr) return false;
    benchmark::DoNotOptimize(p);
    Free(p, kBytes, stream);
  }
  return true;
}

bool PairsOnOwnStream(int thread, int, size_t pairs) {
  return PairsOn(StreamAt(static_cast<size_t>(thread)), pairs);
}

bool PairsOnOneStream(int, int, size_t pairs) { return PairsOn(StreamAt(0), pairs); }

// Batches of blocks on their way from one thread to the next one, by round.
struct Mailbox {
  alignas(64) std::atomic<size_t> rounds{0};  // put so far
  alignas(64) std::array<void*, kBatch> batches[kBatchesOnTheWay];
};
Mailbox mailboxes[kMostThreads];
std::atomic<bool> hand_over_failed{false};

// Each round allocates a batch, hands it to the next thread, and frees the batch that the thread
// before has handed over. Each waits for the one before it, so that in a ring of T threads none is
// more than T - 1 rounds ahead of the next one, and a batch is freed before its place is filled
// again. All on one stream, so that the order of the uses is given.
bool HandOver(int thread, int threads, size_t pairs) {
  Stream const stream = StreamAt(0);
  Mailbox& out = mailboxes[(thread + 1) % threads];
  Mailbox& in = mailboxes[thread];
  const size_t first = out.rounds.load(std::memory_order_relaxed);
  for (size_t round = first; round < first + pairs / kBatch; ++round) {
    for (void*& block : out.batches[round % kBatchesOnTheWay]) {
      block = Allocate(kBytes, stream);
      if (block == nullptr) hand_over_failed = true;
    }
    out.rounds.store(round + 1, std::memory_order_release);
    while (in.rounds.load(std::memory_order_acquire) <= round) std::this_thread::yield();
    for (void* block : in.batches[round % kBatchesOnTheWay]) {
      if (block != nullptr) Free(block, kBytes, stream);
    }
  }
  return !hand_over_failed;
}

// The main thread and threads - 1 others do the same work. The time is the wall time from when all
// are let go to when the last is done, which Google Benchmark's own threads would not measure:
// there each begins when it happens to run.
void RunThreads(benchmark::State& state, const std::string& name, int threads, Work work) {
  BeginCase(name);
  for (Mailbox& mailbox : mailboxes) mailbox.rounds = 0;
  const size_t per_thread =
      (static_cast<size_t>(state.max_iterations) / static_cast<size_t>(threads) / kBatch + 1) *
      kBatch;
  std::atomic<bool> good{true};
  std::barrier step(threads);
  const auto run = [&](int thread) {
    if (!work(thread, threads, kWarmUp)) good = false;
    step.arrive_and_wait();  // all are warm
    step.arrive_and_wait();  // go
    if (!work(thread, threads, per_thread)) good = false;
    step.arrive_and_wait();  // done
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) {
    others.emplace_back([&run, thread] {
      StartThread();
      run(thread);
    });
  }
  if (!work(0, threads, kWarmUp)) good = false;
  step.arrive_and_wait();
  {
    const DriverCallCount calls(state);
    while (state.KeepRunningBatch(static_cast<int64_t>(per_thread) * threads)) {
      step.arrive_and_wait();
      if (!work(0, threads, per_thread)) good = false;
      step.arrive_and_wait();
    }
  }
  for (std::thread& other : others) other.join();
  if (!good) state.SkipWithError("an allocation failed");
}

void Add(const std::string& group, int threads, Work work) {
  const std::string name = CaseName(group, std::to_string(threads));
  AddThreadedCase(name, [=](benchmark::State& state) { RunThreads(state, name, threads, work); });
}

}  // namespace

void AddThreadCases() {
  for (int i = 0; i < kMostThreads; ++i) StreamAt(static_cast<size_t>(i));
  for (const int threads : kThreadCounts) Add("threads", threads, PairsOnOwnStream);
  for (const int threads : kThreadCounts) {
    if (Info().device) {
      Add("threads_shared", threads, PairsOnOneStream);
    } else {
      AddSkippedCase(CaseName("threads_shared", std::to_string(threads)),
                     "CPU memory has no streams");
    }
  }
  for (const int threads : kHandOverThreads) Add("cross_thread_free", threads, HandOver);
}

}  // namespace weir::bench
