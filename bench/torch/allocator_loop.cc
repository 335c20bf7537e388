// How long PyTorch's allocator takes for an allocation and its free, called as PyTorch calls it:
// through the CUDAAllocator that is installed. Prints one JSON object, nanoseconds for each pair.
//
//   allocator_loop [libweir_torch.so]      with the plugin, Weir is made the allocator first
//
// Built and run by bench/torch/run.
#include <c10/cuda/CUDACachingAllocator.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

namespace {

namespace torch_allocator = c10::cuda::CUDACachingAllocator;

double Seconds() {
  using std::chrono::duration;
  using std::chrono::steady_clock;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

// The best of several batches: what else the machine does only adds.
template <typename Fn>
double NanosecondsPer(int pairs, Fn batch) {
  double best = 1e300;
  for (int i = 0; i < 15; ++i) {
    const double start = Seconds();
    batch();
    best = std::min(best, (Seconds() - start) * 1e9 / pairs);
  }
  return best;
}

double Pair(size_t bytes) {
  constexpr int kPairs = 20'000;
  return NanosecondsPer(kPairs, [bytes] {
    for (int i = 0; i < kPairs; ++i) {
      torch_allocator::raw_delete(torch_allocator::raw_alloc_with_stream(bytes, nullptr));
    }
  });
}

// 1,024 blocks live, sizes as in models: most small, some of many MiB.
double Random() {
  constexpr int kPairs = 20'000;
  std::mt19937_64 random(1);
  std::vector<size_t> sizes(4096);
  for (size_t& bytes : sizes) bytes = size_t{512} << (random() % 15);
  std::vector<void*> live(1024);
  for (size_t i = 0; i < live.size(); ++i) {
    live[i] = torch_allocator::raw_alloc_with_stream(sizes[i % sizes.size()], nullptr);
  }
  const double result = NanosecondsPer(kPairs, [&] {
    for (int i = 0; i < kPairs; ++i) {
      void*& slot = live[random() % live.size()];
      torch_allocator::raw_delete(slot);
      slot = torch_allocator::raw_alloc_with_stream(sizes[random() % sizes.size()], nullptr);
    }
  });
  for (void* ptr : live) torch_allocator::raw_delete(ptr);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    void* plugin = dlopen(argv[1], RTLD_NOW);
    if (plugin == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    char error[4096] = "";
    auto* enable = reinterpret_cast<int (*)(char*, size_t)>(dlsym(plugin, "weir_torch_enable"));
    if (enable == nullptr || enable(error, sizeof(error)) != 0) {
      return std::fprintf(stderr, "%s\n", error), 1;
    }
  }
  torch_allocator::init(1);
  std::printf("{\"allocator\": \"%s\", \"512B\": %.1f, \"64KiB\": %.1f, \"8MiB\": %.1f, ",
              torch_allocator::get()->name().c_str(), Pair(512), Pair(64 << 10), Pair(8 << 20));
  std::printf("\"random\": %.1f}\n", Random());
  return 0;
}
