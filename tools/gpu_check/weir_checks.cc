// Checks of Weir itself on the device: programs that run close to a small limit, in the presets
// that give memory several addresses. Each block is filled with its own value when it is allocated,
// and read back in stream order before it is freed, or after what may have moved it.
#include <algorithm>
#include <cstring>
#include <random>

#include "allocator/base/options.h"
#include "allocator/pool/device_heap.h"
#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/resources.h"

namespace weir::gpu_check {
namespace {

// A check cannot go on; the text is what it tells.
class Impossible : public DriverFailure {
 public:
  explicit Impossible(const char* call) : DriverFailure(DriverStatus(CUDA_ERROR_UNKNOWN, call)) {}
};

class Program {
 public:
  struct Block {
    uint64_t at = 0;
    uint64_t bytes = 0;
    uint8_t value = 0;
  };

  // `options` as in WEIR_CONF.
  Program(const Gpu& gpu, const char* options)
      : gpu_(gpu), stream_(gpu), read_back_(gpu, kReadBackBytes) {
    ProcessOptions parsed;
    std::string text;
    HeapError error;
    std::unique_ptr<DeviceDriver> device;
    if (!ParseOptions(options, &parsed, &text)) throw Impossible("Weir's options");
    const int ordinal = gpu.driver().OrdinalOf(gpu.device());
    const DriverStatus status =
        DeviceDriver::Create(gpu.driver(), ordinal, /*allow_vmm=*/true, &device);
    if (!status.ok()) throw DriverFailure(status);
    heap_ = DeviceHeap::Create(std::move(device), parsed.ForDevice(gpu.caps().total_bytes), &error);
    if (heap_ == nullptr) throw Impossible("making Weir's heap");
  }
  ~Program() {
    for (const Block& block : live_) (void)heap_->FreeAsync(block.at, stream_.get());
    (void)heap_->EmptyCache();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  DeviceHeap& heap() { return *heap_; }
  size_t live() const { return live_.size(); }
  uint64_t live_bytes() const {
    uint64_t sum = 0;
    for (const Block& block : live_) sum += block.bytes;
    return sum;
  }
  weir_stats_t Stats() {
    weir_stats_t stats;
    heap_->GetStats(&stats);
    return stats;
  }

  // False if the bytes are not there.
  bool Allocate(uint64_t bytes) {
    HeapError error;
    const uint64_t at = heap_->Allocate(bytes, kBlockAlignment, stream_.get(), &error);
    if (at == 0) {
      if (error.code != WEIR_ERROR_OUT_OF_MEMORY) NoteError(error.text);
      return false;
    }
    live_.push_back({at, bytes, 0});
    Fill(&live_.back());
    return true;
  }
  // Gives a block, the oldest being 0, contents that no other has had lately.
  void Fill(size_t index) { Fill(&live_[index]); }
  void Check(size_t index) {
    const Block& block = live_[index];
    if (read_bytes_ + block.bytes > kReadBackBytes) Compare();
    Must(gpu_.api().MemcpyAsync(read_back_.address() + read_bytes_, block.at, block.bytes,
                                stream_.get()),
         "cuMemcpyAsync");
    pending_.push_back({read_bytes_, block.bytes, block.value});
    read_bytes_ += block.bytes;
  }
  void CheckAll() {
    for (size_t i = 0; i < live_.size(); ++i) Check(i);
    Compare();
  }
  void Free(size_t index) {
    Check(index);
    const HeapError error = heap_->FreeAsync(live_[index].at, stream_.get());
    if (!error.ok()) NoteError(error.text);
    live_.erase(live_.begin() + static_cast<ptrdiff_t>(index));
  }
  void FreeAll() {
    while (!live_.empty()) Free(live_.size() - 1);
  }
  // Merges and gives back what is idle.
  void Compact() {
    weir_compact_options_t options{};
    options.merge = 1;
    weir_compact_result_t result{};
    const HeapError error = heap_->Compact(options, &result);
    if (!error.ok()) NoteError(error.text);
  }

  // After everything is freed: what was found. The check is about what `counters` count: if one of
  // them is 0, right contents decide nothing.
  Answer Result(const std::vector<std::pair<const char*, uint64_t weir_stats_t::*>>& counters) {
    Compare();
    const weir_stats_t stats = Stats();
    if (const HeapError error = heap_->EmptyCache(); !error.ok()) NoteError(error.text);
    if (const std::string broken = heap_->Verify(); !broken.empty()) NoteError(broken);
    Answer answer;
    answer.observed = std::to_string(wrong_blocks_) + " of " + std::to_string(checked_blocks_) +
                      " blocks had wrong contents";
    answer.agrees = wrong_blocks_ == 0 && error_.empty() && Stats().reserved_bytes == 0;
    answer.detail = {{"checked_blocks", checked_blocks_},
                     {"checked_bytes", checked_bytes_},
                     {"wrong_blocks", wrong_blocks_},
                     {"still_reserved_bytes", Stats().reserved_bytes},
                     {"driver_time_ms", static_cast<double>(stats.driver_time_ns) / 1e6}};
    for (const auto& [name, counter] : counters) {
      answer.detail[name] = stats.*counter;
      answer.observed += std::string(", ") + name + " " + std::to_string(stats.*counter);
      if (stats.*counter == 0 && answer.agrees == true) answer.agrees.reset();  // not decided
    }
    if (!error_.empty()) {
      answer.detail["weir_error"] = error_;
      answer.observed += "; " + error_;
    }
    return answer;
  }

 private:
  static constexpr uint64_t kReadBackBytes = 16 * kMiB;  // more than the largest block
  struct Pending {
    uint64_t offset;
    uint64_t bytes;
    uint8_t value;
  };

  // By a memset, a kernel, or a memset of one half that is copied to the other.
  void Fill(Block* block) {
    block->value = next_value_ = static_cast<uint8_t>(next_value_ % 251 + 1);
    const uint64_t set = next_value_ % 2 == 0 ? block->bytes : (block->bytes + 1) / 2;
    if (next_value_ % 4 == 0) {
      gpu_.kernels().Fill(stream_.get(), block->at, block->value, set);
    } else {
      Must(gpu_.api().MemsetD8Async(block->at, block->value, set, stream_.get()),
           "cuMemsetD8Async");
    }
    if (set == block->bytes) return;
    Must(gpu_.api().MemcpyAsync(block->at + set, block->at, block->bytes - set, stream_.get()),
         "cuMemcpyAsync");
  }
  // Waits for what Check has read.
  void Compare() {
    stream_.Wait();
    const auto* data = static_cast<const uint8_t*>(read_back_.get());
    for (const Pending& read : pending_) {
      const uint8_t* begin = data + read.offset;
      // All bytes are the same if each is like the one behind it.
      const bool is_right =
          *begin == read.value && std::memcmp(begin, begin + 1, read.bytes - 1) == 0;
      wrong_blocks_ += !is_right;
      ++checked_blocks_;
      checked_bytes_ += read.bytes;
    }
    pending_.clear();
    read_bytes_ = 0;
  }
  void NoteError(const std::string& text) {
    if (error_.empty()) error_ = text;
  }

  const Gpu& gpu_;
  const ScopedStream stream_;
  const ScopedPinned read_back_;
  std::unique_ptr<DeviceHeap> heap_;
  std::vector<Block> live_;  // in the order of allocation
  uint8_t next_value_ = 0;
  uint64_t read_bytes_ = 0;
  std::vector<Pending> pending_;
  uint64_t checked_blocks_ = 0, checked_bytes_ = 0, wrong_blocks_ = 0;
  std::string error_;  // the first
};

// Requests of changing sizes and lifetimes; what is oldest is freed while more than `most` bytes
// would be live, or memory is short. The same seed asks the same.
void RunRequests(Program* program, uint32_t seed, int requests, uint64_t largest, uint64_t most) {
  constexpr uint64_t kSmallest = 300 * kKiB;
  std::mt19937 random(seed);
  const auto below = [&](uint64_t bound) { return random() % bound; };
  for (int i = 0; i < requests; ++i) {
    const uint64_t bytes = kSmallest + below(largest - kSmallest);
    while (program->live() > 0 && program->live_bytes() + bytes > most) program->Free(0);
    while (!program->Allocate(bytes) && program->live() > 0) program->Free(0);
    if (program->live() > 0 && below(2) == 0) program->Free(below(program->live()));
  }
}

}  // namespace

Answer CheckWeirTight(const Gpu& gpu) {
  gpu.Granularity();  // without mapping there is nothing to see
  Program program(gpu, "mode:tight,memory_limit:32MiB");
  // Periods, so that their contexts are known: requests are recognized by the 256 before them.
  constexpr int kPeriods = 16;
  for (int period = 0; period < kPeriods; ++period) {
    RunRequests(&program, 1, 64, 4 * kMiB, 27 * kMiB);
    program.FreeAll();
  }
  // Granules used in part are merged; contents survive, and each block has its bytes for itself.
  for (int i = 0; i < 30; ++i) (void)program.Allocate(700 * kKiB);
  for (size_t i = program.live(); i-- > 0;) {
    if (i % 4 != 0) program.Free(i);
  }
  program.Compact();
  program.CheckAll();
  for (size_t i = 0; i < program.live(); ++i) program.Fill(i);
  program.CheckAll();
  // What the merges made free is used again beside them.
  RunRequests(&program, 2, 64, 4 * kMiB, 32 * kMiB);
  program.CheckAll();
  program.FreeAll();
  return program.Result({{"stitched_bytes", &weir_stats_t::stitched_bytes},
                         {"merged_granules", &weir_stats_t::merged_granules}});
}

Answer CheckWeirServing(const Gpu& gpu) {
  gpu.Granularity();  // without mapping there is nothing to see
  Program program(gpu, "mode:serving,memory_limit:64MiB");
  RunRequests(&program, 3, 200, 8 * kMiB, 64 * kMiB);
  program.CheckAll();
  for (size_t i = 0; i < program.live(); ++i) program.Fill(i);
  program.CheckAll();
  program.Compact();
  program.CheckAll();
  program.FreeAll();
  return program.Result({{"shared_blocks", &weir_stats_t::shared_blocks},
                         {"remapped_bytes", &weir_stats_t::remapped_bytes}});
}

}  // namespace weir::gpu_check
