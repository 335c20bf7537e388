// One allocate + free on one stream, again and again: what a hit costs the CPU.
//
// Names: pair/ALLOCATOR/BYTES. Weir runs on the simulated device, which a hit never calls, so its
// time is that of Weir alone; it says nothing about a GPU. Repetitions of all allocators are
// interleaved, so that a machine that slows down slows them all:
//   weir_pair_bench --benchmark_enable_random_interleaving --benchmark_repetitions=9
#include "bench/pair_bench.h"

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "weir/weir.h"

namespace weir::bench {
namespace {

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr size_t kSizes[] = {512, 4 * kKiB, 64 * kKiB, 256 * kKiB, 1 * kMiB, 8 * kMiB, 64 * kMiB};

void RunPairs(benchmark::State& state, const Pair& pair, size_t bytes) {
  if (void* warm = pair.allocate(bytes)) pair.free(warm);
  for (auto _ : state) {
    void* p = pair.allocate(bytes);
    if (p == nullptr) {
      state.SkipWithError("the allocation failed");
      return;
    }
    benchmark::DoNotOptimize(p);
    pair.free(p);
  }
}

void Register(const char* allocator, const Pair& pair) {
  for (size_t bytes : kSizes) {
    const std::string name = std::string("pair/") + allocator + "/" + std::to_string(bytes);
    benchmark::RegisterBenchmark(
        name.c_str(), [pair, bytes](benchmark::State& state) { RunPairs(state, pair, bytes); });
  }
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  using namespace weir::bench;  // NOLINT: main of a program
  if (weir_configure("device:sim") != WEIR_OK) {
    std::fprintf(stderr, "%s\n", weir_last_error());
    return 1;
  }
  Register("weir", {[](size_t bytes) { return weir_malloc_async(bytes, nullptr); },
                    [](void* p) { weir_free_async(p, nullptr); }});
#ifdef WEIR_BENCH_CUB
  Register("cub", CubPair());
#endif
  Register("malloc",
           {[](size_t bytes) { return std::malloc(bytes); }, [](void* p) { std::free(p); }});
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
