// The cases: what is measured of every allocator. Names are CASE/ALLOCATOR/PARAMETER; times are for
// one allocation and its free, of trace/ for one operation of the trace.
//
//   single_cases.cc   pair, lifo, fifo, ping_pong, record_use
//   memory_cases.cc   random, random_large, free_blocks
//   thread_cases.cc   threads, threads_shared, cross_thread_free
//   trace_cases.cc    trace
//
// Google Benchmark calls a case several times, with more and more iterations. What a case sets up
// is kept between these calls as its Fixture; when another case begins, the last one's is destroyed
// and the allocator is reset. Cases run one after another on the main thread.
#ifndef WEIR_BENCH_CASES_H_
#define WEIR_BENCH_CASES_H_

#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/allocator.h"

namespace weir::bench {

inline constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

struct Block {
  void* pointer = nullptr;
  size_t bytes = 0;
};

// What a case sets up: destroyed, and with it every block freed, before the next case begins.
class Fixture {
 public:
  virtual ~Fixture() = default;
};

using CaseBody = std::function<void(benchmark::State&)>;

// "pair" and "512" give pair/weir/512; without a parameter record_use/weir.
std::string CaseName(const std::string& group, const std::string& parameter = "");

// Registers a case. What counts is cpu_time, which other programs disturb least.
void AddCase(const std::string& name, CaseBody body);
// A case of several threads: what counts is real_time.
void AddThreadedCase(const std::string& name, CaseBody body);

// A case that this allocator does not run, with the reason: it is listed all the same.
void AddSkippedCase(const std::string& name, const std::string& reason);

// Adds the case unless the allocator keeps fewer blocks, or fewer bytes, than it needs.
void AddCaseWithin(const std::string& name, uint64_t blocks, uint64_t bytes, CaseBody body);

// Ends the fixture of the last case and resets the allocator, if `name` is another case.
void BeginCase(const std::string& name);
std::unique_ptr<Fixture>& CurrentFixture();

// The fixture of the case `name`, made by `make` at its first call.
template <typename Make>
auto& FixtureOf(const std::string& name, Make make) {
  using Type = typename decltype(make())::element_type;
  BeginCase(name);
  std::unique_ptr<Fixture>& fixture = CurrentFixture();
  if (fixture == nullptr) fixture = make();
  return static_cast<Type&>(*fixture);
}

// Streams of the program, created when first asked for; from the main thread only.
Stream StreamAt(size_t index);

// Frees a block of `stream` that work on `other` used, by the means that the allocator has.
void FreeAfterUse(void* pointer, size_t bytes, Stream stream, Stream other);

// Adds the counter driver_calls_per_op over its lifetime: calls of the simulated device. Absent on
// a real one and for CPU memory.
class DriverCallCount {
 public:
  explicit DriverCallCount(benchmark::State& state);
  ~DriverCallCount();
  DriverCallCount(const DriverCallCount&) = delete;
  DriverCallCount& operator=(const DriverCallCount&) = delete;

 private:
  benchmark::State& state_;
  uint64_t before_;
};
void CountDriverCalls(bool counted);  // from main: whether the device is simulated

// xorshift64*: a few instructions, so that it adds little to what is measured.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1DULL;
  }
  uint64_t Below(uint64_t limit) { return ((Next() >> 32) * limit) >> 32; }  // limit < 2^32

 private:
  uint64_t state_;
};

void AddSingleCases();
void AddMemoryCases();
void AddThreadCases();
void AddTraceCases(const std::string& folder);

}  // namespace weir::bench

#endif  // WEIR_BENCH_CASES_H_
