// How Weir becomes PyTorch's allocator. Called by the Python package, through ctypes: no function
// of Python is used, so that one build serves every Python.
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <cstdio>
#include <exception>

#include "settings.h"
#include "torch_allocator.h"
#include "trace_writer.h"
#include "weir/weir.h"

using weir::torch_plugin::TorchAllocator;
using weir::torch_plugin::TraceWriter;

namespace {

// Runs fn, and keeps what it throws from crossing into C. 0, or 1 with the reason in `error`.
template <typename Fn>
int Guarded(char* error, size_t size, Fn fn) noexcept {
  try {
    fn();
    return 0;
  } catch (const c10::Error& failure) {
    std::snprintf(error, size, "%s", failure.what_without_backtrace());
  } catch (const std::exception& failure) {
    std::snprintf(error, size, "%s", failure.what());
  }
  return 1;
}

}  // namespace

extern "C" {

// Makes Weir the allocator of this process's CUDA tensors. Before CUDA is initialized. 0, or 1 and
// the reason in `error`; then nothing has changed.
__attribute__((visibility("default"))) int weir_torch_enable(char* error, size_t size) {
  return Guarded(error, size, [] {
    using namespace weir::torch_plugin;  // NOLINT: the function's subject
    TORCH_CHECK(!c10::cuda::CUDACachingAllocator::get()->initialized(),
                "CUDA is initialized already");
    // Says what is wrong with WEIR_CONF too. The driver is not asked for anything yet: a process
    // that has not used CUDA may fork children that do.
    TORCH_CHECK(weir_configure(OptionsFromSettings().c_str()) == WEIR_OK, weir_last_error());
    TorchAllocator& allocator = TorchAllocator::Get();
    const std::shared_ptr<CUDAAllocator> shared(&allocator, [](CUDAAllocator*) {});
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(shared);
    // torch.accelerator asks this one.
    c10::SetAllocator(c10::DeviceType::CUDA, &allocator, 0);
    FollowSettings();
  });
}

// Writes what PyTorch's allocator, whichever it is, is asked for into a file that `weir replay`
// reads, until weir_torch_stop_trace. After CUDA is initialized.
__attribute__((visibility("default"))) int weir_torch_start_trace(const char* path, char* error,
                                                                  size_t size) {
  return Guarded(error, size, [path] { TraceWriter::Get().Start(path); });
}

__attribute__((visibility("default"))) int weir_torch_stop_trace(char* error, size_t size) {
  return Guarded(error, size, [] { TraceWriter::Get().Stop(); });
}

}  // extern "C"
