#include "tools/simcuda/time.h"

#include <utility>

#include "tools/simcuda/time_state.h"

namespace weir::sim {

Timeline::Timeline(std::mutex* lock, AddressTranslator* translator)
    : lock_(lock),
      translator_(translator),
      state_(std::make_unique<TimelineState>(lock, translator, Config())) {}

Timeline::~Timeline() {
  std::lock_guard<std::mutex> guard(*lock_);
  state_->Stop();
}

void Timeline::Reset(const Config& config) {
  state_->Stop();
  state_ = std::make_unique<TimelineState>(lock_, translator_, config);
}

CUresult Timeline::CheckCapture(CaptureClass what) { return state_->captures().Check(what); }

CUresult Timeline::CheckContextCapture(int device) {
  return state_->captures().InvalidateDevice(device) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                     : CUDA_SUCCESS;
}

CUresult Timeline::StickyError(int device) const { return state_->sticky(device); }

void Timeline::SetStickyError(int device, CUresult error, const std::string& text) {
  state_->Break(device, error, text);
}

void Timeline::ResetDevice(int device) { state_->ResetDevice(device); }

CUresult Timeline::Submit(int device, CUstream handle, Operation op) {
  const std::shared_ptr<Stream> stream = state_->FindStream(device, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return state_->Submit(stream, std::move(op));
}

bool Timeline::IsCapturing(int device, CUstream handle) const {
  const std::shared_ptr<Stream> stream = state_->FindStream(device, handle);
  return stream != nullptr && stream->capture != nullptr && !stream->capture->invalidated;
}

CUresult Timeline::DrainStream(int device, CUstream handle) {
  const std::shared_ptr<Stream> stream = state_->FindStream(device, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return state_->Wait(state_->StreamMark(stream), stream->device);
}

CUresult Timeline::DrainContext(int device) {
  return state_->Wait(state_->DeviceMark(device), device);
}

void Timeline::OnStoreReleased(uint64_t store) { state_->checker().ForgetStore(store); }

void Timeline::CheckHostRelease(std::string_view entry, CUdeviceptr address, uint64_t,
                                const std::vector<PhysicalSpan>& spans) {
  state_->checker().CheckHostRelease(entry, address, spans.data(), spans.size(),
                                     state_->host_clock());
}

void Timeline::AddReport(Report report) { state_->checker().AddReport(std::move(report)); }

}  // namespace weir::sim
