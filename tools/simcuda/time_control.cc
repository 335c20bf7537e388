// The control functions of simcuda.h about time: holds, steps, kernels with declared accesses, and
// the checker's reports. Each takes the simulator lock.
#include <cstring>
#include <mutex>
#include <utility>

#include "tools/simcuda/time_entries.h"

namespace weir::sim {
namespace {

// A kernel's view of memory. Lives while the kernel's body runs, under the simulator lock.
class RunningKernel final : public KernelMemory {
 public:
  RunningKernel(AddressTranslator* translator, int device)
      : translator_(translator), device_(device) {}

  bool Read(CUdeviceptr address, void* to, uint64_t bytes) override {
    return ForEachSpan(address, bytes, false, [&to](const PhysicalSpan& span) {
      std::memcpy(to, span.host, span.bytes);
      to = static_cast<std::byte*>(to) + span.bytes;
    });
  }
  bool Write(CUdeviceptr address, const void* from, uint64_t bytes) override {
    return ForEachSpan(address, bytes, true, [&from](const PhysicalSpan& span) {
      std::memcpy(span.host, from, span.bytes);
      from = static_cast<const std::byte*>(from) + span.bytes;
    });
  }
  CUresult result() const { return result_; }

 private:
  template <typename Visit>
  bool ForEachSpan(CUdeviceptr address, uint64_t bytes, bool write, Visit visit) {
    if (result_ != CUDA_SUCCESS) return false;  // a kernel that faulted does nothing more
    if (bytes == 0) return true;
    std::vector<PhysicalSpan> spans;
    result_ = translator_->Translate(device_, address, bytes, write, &spans);
    if (result_ != CUDA_SUCCESS) return false;
    for (const PhysicalSpan& span : spans) visit(span);
    return true;
  }

  AddressTranslator* const translator_;
  const int device_;
  CUresult result_ = CUDA_SUCCESS;
};

using Guard = std::lock_guard<std::mutex>;

void SetHeld(int device, CUstream handle, bool held) {
  const Guard guard(Simulator::Get().lock());
  if (!Simulator::Get().IsDevice(device)) return;
  const std::shared_ptr<Stream> stream = Time().FindStream(device, handle);
  if (stream == nullptr) return;
  stream->held = held;
  Time().executor().Wake();
}

}  // namespace

void HoldStream(int device, CUstream stream) { SetHeld(device, stream, true); }
void ReleaseStream(int device, CUstream stream) { SetHeld(device, stream, false); }

void OnStalledWait(std::function<bool()> hook) {
  const Guard guard(Simulator::Get().lock());
  Time().set_on_stalled_wait(std::move(hook));
}

bool Step() {
  const Guard guard(Simulator::Get().lock());
  return Time().executor().Step();
}

void RunUntilIdle() {
  const Guard guard(Simulator::Get().lock());
  StreamExecutor& executor = Time().executor();
  // The wait ends when nothing runs and nothing is ready: the condition itself never holds.
  executor.WaitUntil([] { return false; });
}

uint64_t QueuedOperations() {
  const Guard guard(Simulator::Get().lock());
  return Time().executor().queued();
}

CUresult Launch(CUstream handle, const std::string& label, std::vector<Access> accesses,
                std::function<void(KernelMemory&)> body) {
  if (Timeline::InHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  const Guard guard(Simulator::Get().lock());
  const int device = CurrentDevice();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  TimelineState& time = Time();
  if (const CUresult error = time.sticky(device); error != CUDA_SUCCESS) return error;
  const std::shared_ptr<Stream> stream = FindStream(handle);
  if (stream == nullptr || stream->device != device) return CUDA_ERROR_INVALID_HANDLE;
  Operation kernel;
  kernel.kind = OperationKind::kKernel;
  kernel.label = label;
  kernel.accesses = std::move(accesses);
  if (body) {
    kernel.body = [body = std::move(body), translator = time.translator(), device] {
      RunningKernel memory(translator, device);
      body(memory);
      return memory.result();
    };
  }
  return time.Submit(stream, std::move(kernel));
}

std::vector<Report> CheckerReports() {
  const Guard guard(Simulator::Get().lock());
  return Time().checker().reports();
}

void ClearCheckerReports() {
  const Guard guard(Simulator::Get().lock());
  Time().checker().ClearReports();
}

void SetSpuriousNotReady(double probability) {
  const Guard guard(Simulator::Get().lock());
  Time().set_spurious_not_ready(probability);
}

}  // namespace weir::sim
