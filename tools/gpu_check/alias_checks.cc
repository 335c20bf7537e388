// Checks of physical memory that has several addresses: contents through all of them, in the order
// of a stream, beside unmapping, and across what a merge does. That one handle may be mapped more
// than once is documented (CUDA programming guide, "Virtual Aliasing Support"): what an operation
// wrote through one address is there for operations ordered after it, through any other. Only
// within one operation, or beside it, nothing is promised; Weir relies on neither.
#include <array>
#include <chrono>

#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/resources.h"

namespace weir::gpu_check {
namespace {

// Pages of the simulated device cost host memory, and its kernels run on one thread.
uint64_t TestBytes(const Gpu& gpu) { return gpu.simulated() ? 64 * 1024 : gpu.Granularity(); }

void CopyAsync(const Gpu& gpu, CUdeviceptr to, CUdeviceptr from, uint64_t bytes, CUstream stream) {
  Must(gpu.api().MemcpyAsync(to, from, bytes, stream), "cuMemcpyAsync");
}
void FillAsync(const Gpu& gpu, CUdeviceptr at, uint8_t value, uint64_t bytes, CUstream stream) {
  Must(gpu.api().MemsetD8Async(at, value, bytes, stream), "cuMemsetD8Async");
}

// Ways to write `value` and to read into `out`, all queued on a stream. Besides kernels there are
// copies by copy engines, to which host memory leads.
struct Buffers {
  Buffers(const Gpu& gpu, uint64_t bytes)
      : device(gpu, bytes), out(gpu, bytes), host(gpu, bytes), host_out(gpu, bytes) {}
  ScopedDeviceMemory device, out;
  ScopedPinned host, host_out;
};

constexpr std::array kWriters = {"memset", "copy on the device", "copy from the host", "kernel"};
constexpr std::array kReaders = {"copy on the device", "copy to the host", "kernel"};

// Of a copy the source holds the value already when this is called: see Prepare.
void Write(const Gpu& gpu, const Buffers& buffers, size_t how, CUdeviceptr at, uint8_t value,
           uint64_t bytes, CUstream stream) {
  if (how == 0) FillAsync(gpu, at, value, bytes, stream);
  if (how == 1) CopyAsync(gpu, at, buffers.device.get(), bytes, stream);
  if (how == 2) CopyAsync(gpu, at, buffers.host.address(), bytes, stream);
  if (how == 3) gpu.kernels().Fill(stream, at, value, bytes);
}
void Prepare(const Gpu& gpu, const Buffers& buffers, uint8_t value, uint64_t bytes) {
  gpu.Set(buffers.device.get(), value, bytes);
  std::memset(buffers.host.get(), value, bytes);
}
void Read(const Gpu& gpu, const Buffers& buffers, size_t how, CUdeviceptr at, uint64_t bytes,
          CUstream stream) {
  if (how == 0) CopyAsync(gpu, buffers.out.get(), at, bytes, stream);
  if (how == 1) CopyAsync(gpu, buffers.host_out.address(), at, bytes, stream);
  if (how == 2) gpu.kernels().Copy(stream, buffers.out.get(), at, bytes);
}
// What Read has read; waits for it.
std::vector<uint8_t> Result(const Gpu& gpu, const Buffers& buffers, size_t how, uint64_t bytes) {
  if (how != 1) return gpu.Read(buffers.out.get(), bytes);
  gpu.Synchronize();
  const auto* begin = static_cast<const uint8_t*>(buffers.host_out.get());
  return {begin, begin + bytes};
}

// How many of the bytes at an address are not `value`.
uint64_t CountWrong(const Gpu& gpu, CUdeviceptr at, uint64_t bytes, uint8_t value) {
  const std::vector<uint8_t> data = gpu.Read(at, bytes);
  return bytes - static_cast<uint64_t>(std::count(data.begin(), data.end(), value));
}

// Unmaps what is at the address and maps the handle there, as a merge does.
void Remap(const Gpu& gpu, CUdeviceptr at, uint64_t bytes, const ScopedHandle& handle) {
  Must(gpu.api().MemUnmap(at, bytes), "cuMemUnmap");
  Must(gpu.api().MemMap(at, bytes, 0, handle.get(), 0), "cuMemMap");
  Must(ScopedRange::SetAccess(gpu, at, bytes), "cuMemSetAccess");
}

// Changes another address of memory while kernels that use it through the first one run, and while
// they wait in a stream behind a gate.
class BesideWork {
 public:
  explicit BesideWork(const Gpu& gpu)
      : gpu_(gpu),
        unit_(gpu.Granularity()),
        bytes_(TestBytes(gpu)),
        handle_(gpu, unit_),
        kept_(gpu, unit_),
        stream_(gpu),
        out_(gpu, bytes_) {
    kept_.Map(0, unit_, handle_.get());
  }
  CUmemGenericAllocationHandle handle() const { return handle_.get(); }
  // The other address is mapped before the work is queued, and no more at the end; else only then.
  void MapOtherFirst() { map_first_ = true; }

  // `change` is given the range of the other address, and makes the calls.
  template <typename Change>
  Answer Run(Change change) {
    // How far the kernels are differs from round to round.
    constexpr int kRounds = 8;
    Waited running;
    for (int round = 0; round < kRounds && running.result == CUDA_SUCCESS; ++round) {
      const Waited waited = Once(nullptr, change);
      if (waited.ms >= running.ms || waited.result != CUDA_SUCCESS) running = waited;
    }
    Waited queued;
    {
      Gate gate(gpu_);
      queued = Once(&gate, change);
    }
    Answer answer;
    answer.detail = {{"wrong_bytes", wrong_},
                     {"beside_running_kernels", ResultName(running.result)},
                     {"before_queued_kernels", ResultName(queued.result)},
                     {"waits_for_queued_kernels", queued.waits}};
    const bool succeeds = running.result == CUDA_SUCCESS && queued.result == CUDA_SUCCESS;
    answer.observed = std::to_string(wrong_) + " wrong bytes; " +
                      (!succeeds      ? "it fails"
                       : queued.waits ? "it waits"
                                      : "it does not wait");
    if (!gpu_.simulated()) {
      answer.detail["host_ms_beside_running_kernels"] = running.ms;  // the slowest
      answer.detail["host_ms_before_queued_kernels"] = queued.ms;
      char text[96];
      std::snprintf(text, sizeof(text), ": %.2f ms beside running kernels, %.2f ms behind a gate",
                    running.ms, queued.ms);
      answer.observed += text;
    }
    answer.agrees = succeeds && wrong_ == 0;
    return answer;
  }

 private:
  struct Waited {
    double ms = 0;
    bool waits = false;  // until the gate's kernel had ended
    CUresult result = CUDA_SUCCESS;
  };

  template <typename Change>
  Waited Once(Gate* gate, Change change) {
    const uint32_t repeats = gpu_.simulated() ? 1 : 20;
    ScopedRange other(gpu_, unit_);
    if (map_first_) other.Map(0, unit_, handle_.get());
    gpu_.Set(kept_.base(), 0, bytes_);
    const ScopedEvent opened(gpu_);
    if (gate != nullptr) gate->Hold(stream_.get());
    Must(gpu_.api().EventRecord(opened.get(), stream_.get()), "cuEventRecord");
    gpu_.kernels().Fill(stream_.get(), kept_.base(), ++value_, bytes_, 1, repeats);
    Waited waited;
    const auto begin = std::chrono::steady_clock::now();
    waited.result = change(&other);
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - begin;
    if (!gpu_.simulated()) waited.ms = spent.count();
    waited.waits = gate != nullptr && opened.IsComplete();
    const bool reads_other = !map_first_ && waited.result == CUDA_SUCCESS;
    gpu_.kernels().Copy(stream_.get(), out_.get(), (reads_other ? other : kept_).base(), bytes_);
    if (gate != nullptr) gate->Open();
    stream_.Wait();
    wrong_ += CountWrong(gpu_, out_.get(), bytes_, value_) +
              CountWrong(gpu_, kept_.base(), bytes_, value_);
    return waited;
  }

  const Gpu& gpu_;
  const uint64_t unit_;
  const uint64_t bytes_;
  const ScopedHandle handle_;
  ScopedRange kept_;
  const ScopedStream stream_;
  const ScopedDeviceMemory out_;
  bool map_first_ = false;
  uint64_t wrong_ = 0;
  uint8_t value_ = 0;
};

}  // namespace

Answer CheckAliasStreamOrder(const Gpu& gpu) {
  const uint64_t unit = gpu.Granularity();
  const uint64_t bytes = TestBytes(gpu);
  ScopedHandle handle(gpu, unit);
  ScopedRange one(gpu, unit);
  ScopedRange two(gpu, unit);
  one.Map(0, unit, handle.get());
  two.Map(0, unit, handle.get());
  const Buffers buffers(gpu, bytes);
  const ScopedStream first(gpu);
  const ScopedStream second(gpu);
  const ScopedEvent order(gpu);
  nlohmann::json stale = nlohmann::json::object();
  uint64_t wrong = 0;
  uint8_t value = 0;
  int rounds = 0;
  for (size_t writer = 0; writer < kWriters.size(); ++writer) {
    for (size_t reader = 0; reader < kReaders.size(); ++reader) {
      for (const bool same_stream : {true, false}) {
        const CUstream reads = same_stream ? first.get() : second.get();
        for (int turn = 0; turn < 4; ++turn, ++rounds) {
          const CUdeviceptr to = turn % 2 == 0 ? one.base() : two.base();
          const CUdeviceptr from = turn % 2 == 0 ? two.base() : one.base();
          Prepare(gpu, buffers, ++value, bytes);
          // The old contents have just been read through the other address, and may be cached.
          Read(gpu, buffers, reader, from, bytes, first.get());
          Write(gpu, buffers, writer, to, value, bytes, first.get());
          if (!same_stream) {
            Must(gpu.api().EventRecord(order.get(), first.get()), "cuEventRecord");
            Must(gpu.api().StreamWaitEvent(reads, order.get(), 0), "cuStreamWaitEvent");
          }
          Read(gpu, buffers, reader, from, bytes, reads);
          if (AllAre(Result(gpu, buffers, reader, bytes), value)) continue;
          ++wrong;
          stale[std::string(kWriters[writer]) + ", then " + kReaders[reader] +
                (same_stream ? "" : ", in another stream behind an event")] = true;
        }
      }
    }
  }
  Answer answer;
  answer.observed = std::to_string(wrong) + " of " + std::to_string(rounds) + " rounds were stale";
  answer.agrees = wrong == 0;
  answer.detail = {{"rounds", rounds}, {"bytes", bytes}, {"stale", stale}};
  return answer;
}

Answer CheckAccessOverSeveral(const Gpu& gpu) {
  const uint64_t unit = gpu.Granularity();
  const uint64_t bytes = gpu.simulated() ? 4096 : unit;  // of each granule
  constexpr uint64_t kGranules = 4;
  // Two handles have another address too, as guests have; the last one comes twice in the range.
  std::vector<std::unique_ptr<ScopedHandle>> handles;
  for (int i = 0; i < 3; ++i) handles.push_back(std::make_unique<ScopedHandle>(gpu, unit));
  ScopedRange homes(gpu, 2 * unit);
  homes.Map(0, unit, handles[1]->get());
  homes.Map(unit, unit, handles[2]->get());
  gpu.Set(homes.base(), 1, unit);
  gpu.Set(homes.base() + unit, 2, unit);

  ScopedRange range(gpu, kGranules * unit);
  const size_t order[kGranules] = {0, 2, 1, 2};
  for (uint64_t i = 0; i < kGranules; ++i) {
    range.MapOnly(i * unit, unit, handles[order[i]]->get());
  }
  const CUresult result = ScopedRange::SetAccess(gpu, range.base(), kGranules * unit);
  Answer answer;
  answer.observed = ResultName(result);
  answer.agrees = result == CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return answer;
  // What was written through the homes is there, and what is written through the range is there.
  uint64_t wrong = CountWrong(gpu, range.base() + unit, bytes, 2) +
                   CountWrong(gpu, range.base() + 2 * unit, bytes, 1) +
                   CountWrong(gpu, range.base() + 3 * unit, bytes, 2);
  const ScopedStream stream(gpu);
  for (uint64_t i = 0; i < kGranules - 1; ++i) {
    gpu.kernels().Fill(stream.get(), range.base() + i * unit, static_cast<uint8_t>(10 + i), bytes);
  }
  stream.Wait();
  wrong += CountWrong(gpu, range.base(), bytes, 10) + CountWrong(gpu, homes.base(), bytes, 12) +
           CountWrong(gpu, homes.base() + unit, bytes, 11) +
           CountWrong(gpu, range.base() + 3 * unit, bytes, 11);
  // Again, over a part that has access already.
  const CUresult again = ScopedRange::SetAccess(gpu, range.base() + unit, 2 * unit);
  answer.detail = {{"wrong_bytes", wrong}, {"again_over_a_part", ResultName(again)}};
  answer.observed += ", " + std::to_string(wrong) + " wrong bytes; again: " + ResultName(again);
  answer.agrees = wrong == 0 && again == CUDA_SUCCESS;
  return answer;
}

Answer CheckAliasRemap(const Gpu& gpu) {
  const uint64_t unit = gpu.Granularity();
  const uint64_t half = TestBytes(gpu) / 2;
  constexpr int kRounds = 16;
  ScopedHandle host(gpu, unit);
  ScopedHandle guest(gpu, unit);
  ScopedRange one(gpu, unit);
  ScopedRange two(gpu, unit);
  ScopedRange third(gpu, unit);  // of the host handle too
  one.Map(0, unit, host.get());
  two.Map(0, unit, guest.get());
  third.Map(0, unit, host.get());
  const ScopedStream stream(gpu);
  ScopedDeviceMemory out(gpu, 2 * half);
  uint64_t wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto low = static_cast<uint8_t>(3 * round + 1);
    const auto high = static_cast<uint8_t>(low + 1);
    const auto old = static_cast<uint8_t>(low + 2);
    // The first address uses the low half of its granule, the second one the high half.
    gpu.kernels().Fill(stream.get(), one.base(), low, half);
    gpu.kernels().Fill(stream.get(), two.base(), old, half);
    gpu.kernels().Fill(stream.get(), two.base() + half, high, half);
    // So that translations of the address are cached wherever they can be.
    gpu.kernels().Copy(stream.get(), out.get(), two.base(), 2 * half);
    gpu.Synchronize();
    CopyAsync(gpu, one.base() + half, two.base() + half, half, nullptr);
    gpu.Synchronize();
    Remap(gpu, two.base(), unit, host);
    // All addresses now show both halves, to kernels and to copies.
    for (const CUdeviceptr at : {one.base(), two.base(), third.base()}) {
      gpu.kernels().Copy(stream.get(), out.get(), at, 2 * half);
      stream.Wait();
      wrong +=
          CountWrong(gpu, out.get(), half, low) + CountWrong(gpu, out.get() + half, half, high);
      wrong += CountWrong(gpu, at, half, low) + CountWrong(gpu, at + half, half, high);
    }
    // The merged half is written through one of its addresses; and back to memory of its own.
    const auto later = static_cast<uint8_t>(high ^ 0x80);
    gpu.kernels().Fill(stream.get(), two.base() + half, later, half);
    stream.Wait();
    wrong += CountWrong(gpu, one.base() + half, half, later);
    Remap(gpu, two.base(), unit, guest);
    gpu.kernels().Copy(stream.get(), out.get(), two.base(), 2 * half);
    stream.Wait();
    wrong += CountWrong(gpu, out.get(), half, old) + CountWrong(gpu, out.get() + half, half, high);
    wrong +=
        CountWrong(gpu, one.base(), half, low) + CountWrong(gpu, third.base() + half, half, later);
  }
  Answer answer;
  answer.detail = {{"rounds", kRounds}, {"bytes", 2 * half}, {"wrong_bytes", wrong}};
  answer.observed =
      std::to_string(wrong) + " wrong bytes in " + std::to_string(kRounds) + " merges";
  answer.agrees = wrong == 0;
  return answer;
}

Answer CheckAliasMapBesideWork(const Gpu& gpu) {
  BesideWork beside(gpu);
  return beside.Run([&](ScopedRange* other) {
    const CUresult result = other->TryMap(0, other->bytes(), beside.handle());
    if (result != CUDA_SUCCESS) return result;
    return ScopedRange::SetAccess(gpu, other->base(), other->bytes());
  });
}

Answer CheckAliasUnmapBesideWork(const Gpu& gpu) {
  BesideWork beside(gpu);
  beside.MapOtherFirst();
  return beside.Run([&](ScopedRange* other) {
    const CUresult result = gpu.api().MemUnmap(other->base(), other->bytes());
    if (result == CUDA_SUCCESS) other->ForgetMappings();
    return result;
  });
}

}  // namespace weir::gpu_check
