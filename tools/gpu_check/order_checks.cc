// Checks of what waits for what, by means of kernels that spin until the host opens a gate (for
// 0.3 s at most). No spinning kernel touches the memory that is unmapped or freed meanwhile.
#include <chrono>

#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/resources.h"

namespace weir::gpu_check {
namespace {

// Makes the call while a kernel spins on a non-blocking stream. Whether the call came back only
// when the kernel had ended; then its result is that of the simulated device's report of a deadlock
// (TIMEOUT), or SUCCESS after the kernel's time was up.
struct Waited {
  CUresult result;
  bool waits;
  double ms;
};

template <typename Call>
Waited WhileSpinning(const Gpu& gpu, Call call) {
  const ScopedStream stream(gpu);
  const ScopedEvent done(gpu);
  Gate gate(gpu);
  gate.Hold(stream.get());
  Must(gpu.api().EventRecord(done.get(), stream.get()), "cuEventRecord");
  if (done.IsComplete()) {
    throw DriverFailure(DriverStatus(CUDA_ERROR_UNKNOWN, "the spinning kernel ended at once"));
  }
  const auto begin = std::chrono::steady_clock::now();
  const CUresult result = call();
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
  const bool deadlock = gpu.simulated() && result == CUDA_ERROR_TIMEOUT;
  const bool waits = deadlock || done.IsComplete();
  gate.Open();
  done.Wait();
  return {result, waits, spent.count()};
}

Answer AnswerOf(const Gpu& gpu, const Waited& waited) {
  Answer answer;
  const bool deadlock = gpu.simulated() && waited.result == CUDA_ERROR_TIMEOUT;
  if (!deadlock) Must(waited.result, "the call beside a spinning kernel");
  answer.detail = {{"waits", waited.waits}, {"result", ResultName(waited.result)}};
  if (!gpu.simulated()) answer.detail["host_ms"] = waited.ms;
  answer.observed = waited.waits ? "waits" : "does not wait";
  return answer;
}

// Which streams of the context one marker covers.
struct StreamKind {
  const char* name;
  unsigned flags;
  CUstream special;           // instead of a stream of its own
  bool mark_in_other_thread;  // than the one that submits the work
};

}  // namespace

Answer CheckContextEventCovers(const Gpu& gpu) {
  const auto record = Need(gpu.api().CtxRecordEvent, "cuCtxRecordEvent");
  const StreamKind kinds[] = {
      {"non_blocking", CU_STREAM_NON_BLOCKING, nullptr, false},
      {"non_blocking, marked by another thread", CU_STREAM_NON_BLOCKING, nullptr, true},
      {"blocking", CU_STREAM_DEFAULT, nullptr, false},
      {"per_thread", 0, CU_STREAM_PER_THREAD, false},
      {"per_thread, marked by another thread", 0, CU_STREAM_PER_THREAD, true},
      {"legacy", 0, CU_STREAM_LEGACY, false},
  };
  Answer answer;
  bool agrees = true;
  for (const StreamKind& kind : kinds) {
    const ScopedStream own(gpu, kind.flags);
    const CUstream stream = kind.special != nullptr ? kind.special : own.get();
    const ScopedEvent marker(gpu);
    const ScopedEvent control(gpu);  // the stream's own
    Gate gate(gpu);
    gate.Hold(stream);
    Must(gpu.api().EventRecord(control.get(), stream), "cuEventRecord");
    const auto mark = [&] { Must(record(gpu.context(), marker.get()), "cuCtxRecordEvent"); };
    if (kind.mark_in_other_thread) {
      gpu.InOtherThread(mark);
    } else {
      mark();
    }
    const bool early = marker.IsComplete();
    const bool held = !control.IsComplete();
    gate.Open();
    marker.Wait();
    // The marker is complete, so the work it covers is.
    const bool covers = held && !early && control.IsComplete();
    const char* text = !held ? "the kernel ended early" : covers ? "covered" : "not covered";
    answer.detail[kind.name] = text;
    if (!covers) {
      answer.observed +=
          (answer.observed.empty() ? "" : ", ") + std::string(kind.name) + ": " + text;
    }
    agrees = agrees && covers;
  }
  if (agrees) answer.observed = "all kinds of streams are covered";
  answer.agrees = agrees;
  return answer;
}

Answer CheckContextEventAfterLaunch(const Gpu& gpu) {
  const auto record = Need(gpu.api().CtxRecordEvent, "cuCtxRecordEvent");
  // A thread launches work and then counts it, as an allocator counts frees; this thread sees the
  // count, records a marker, and when that is complete the work must be.
  constexpr int kRounds = 200;
  Answer answer;
  const ScopedStream stream(gpu);
  const ScopedEvent marker(gpu);
  const ScopedPinned result(gpu, 1);
  const auto* byte = static_cast<const volatile uint8_t*>(result.get());
  int missed = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto value = static_cast<uint8_t>(round + 1);
    gpu.InOtherThread([&] {
      gpu.kernels().Fill(stream.get(), result.address(), value, 1, 1, gpu.simulated() ? 1 : 200);
    });
    Must(record(gpu.context(), marker.get()), "cuCtxRecordEvent");
    marker.Wait();
    if (*byte != value) ++missed;
  }
  answer.detail = {{"rounds", kRounds}, {"missed", missed}};
  answer.observed =
      std::to_string(missed) + " of " + std::to_string(kRounds) + " markers were early";
  answer.agrees = missed == 0;
  return answer;
}

Answer CheckUnmapWaits(const Gpu& gpu) {
  const uint64_t unit = gpu.Granularity();
  ScopedHandle handle(gpu, unit);
  ScopedRange range(gpu, unit);
  range.Map(0, unit, handle.get());
  const Waited waited = WhileSpinning(gpu, [&] { return gpu.api().MemUnmap(range.base(), unit); });
  if (waited.result == CUDA_SUCCESS) range.ForgetMappings();
  // Either answer is safe with Weir: it never relies on a wait.
  return AnswerOf(gpu, waited);
}

Answer CheckReleaseWaits(const Gpu& gpu) {
  ScopedHandle handle(gpu, gpu.Granularity());
  const Waited waited = WhileSpinning(gpu, [&] { return gpu.api().MemRelease(handle.get()); });
  if (waited.result == CUDA_SUCCESS) handle.Forget();
  return AnswerOf(gpu, waited);
}

Answer CheckFreeWaits(const Gpu& gpu) {
  Answer answer;
  // A whole segment of the driver's, and a piece of one.
  for (const uint64_t bytes : {uint64_t{32} << 20, uint64_t{4096}}) {
    ScopedDeviceMemory memory(gpu, bytes);
    const Waited waited = WhileSpinning(gpu, [&] { return gpu.api().MemFree(memory.get()); });
    if (waited.result == CUDA_SUCCESS) memory.Forget();
    const Answer one = AnswerOf(gpu, waited);
    const std::string name = std::to_string(bytes) + " bytes";
    answer.detail[name] = one.detail;
    answer.observed += (answer.observed.empty() ? "" : ", ") + name + ": " + one.observed;
    answer.agrees = answer.agrees.value_or(true) && waited.waits;
  }
  return answer;
}

Answer CheckAllocWaits(const Gpu& gpu) {
  CUdeviceptr at = 0;
  const Waited waited =
      WhileSpinning(gpu, [&] { return gpu.api().MemAlloc(&at, uint64_t{32} << 20); });
  if (at != 0) Must(gpu.api().MemFree(at), "cuMemFree");
  Answer answer = AnswerOf(gpu, waited);
  answer.agrees = !waited.waits;
  return answer;
}

Answer CheckHostFreeWaits(const Gpu& gpu) {
  void* memory = nullptr;
  Must(Need(gpu.api().MemHostAlloc, "cuMemHostAlloc")(&memory, uint64_t{1} << 20, 0),
       "cuMemHostAlloc");
  const Waited waited = WhileSpinning(gpu, [&] { return gpu.api().MemFreeHost(memory); });
  if (waited.result != CUDA_SUCCESS) (void)gpu.api().MemFreeHost(memory);
  return AnswerOf(gpu, waited);
}

}  // namespace weir::gpu_check
