// What the PyTorch tests do to the simulated device from Python: a part of tools/simcuda/simcuda.h
// as C functions for ctypes. Thread-safe as that is.
#include <algorithm>
#include <cstring>
#include <string>

#include "tools/simcuda/simcuda.h"

#define WEIR_TEST_API extern "C" __attribute__((visibility("default")))

WEIR_TEST_API void weir_test_hold_stream(int device, CUstream stream) {
  weir::sim::HoldStream(device, stream);
}

WEIR_TEST_API void weir_test_release_stream(int device, CUstream stream) {
  weir::sim::ReleaseStream(device, stream);
}

WEIR_TEST_API void weir_test_run_until_idle() { weir::sim::RunUntilIdle(); }

WEIR_TEST_API uint64_t weir_test_used_bytes(int device) { return weir::sim::UsedBytes(device); }

WEIR_TEST_API void weir_test_set_other_process_bytes(int device, uint64_t bytes) {
  weir::sim::SetOtherProcessBytes(device, bytes);
}

// Calls of a driver function without version suffix, e.g. "cuMemCreate", since the last reset.
WEIR_TEST_API uint64_t weir_test_call_count(const char* entry) {
  return weir::sim::CallCount(entry);
}

WEIR_TEST_API void weir_test_reset_call_counts() { weir::sim::ResetCallCounts(); }

// The nth call of the driver function from now on (1 = the next) fails with `result`.
WEIR_TEST_API void weir_test_inject_fault(const char* entry, uint64_t nth, int result) {
  weir::sim::Fault fault;
  fault.entry = entry;
  fault.nth = nth;
  fault.result = static_cast<CUresult>(result);
  weir::sim::InjectFault(fault);
}

WEIR_TEST_API void weir_test_clear_faults() { weir::sim::ClearFaults(); }

// The text of the first report of the happens-before checker, cut to `bytes`; returns how many
// reports there are.
WEIR_TEST_API uint64_t weir_test_checker_reports(char* text, uint64_t bytes) {
  const auto reports = weir::sim::CheckerReports();
  if (bytes > 0) {
    const std::string first = reports.empty() ? std::string() : reports.front().text;
    const auto length = std::min<uint64_t>(first.size(), bytes - 1);
    std::memcpy(text, first.data(), length);
    text[length] = '\0';
  }
  return reports.size();
}

WEIR_TEST_API void weir_test_clear_checker_reports() { weir::sim::ClearCheckerReports(); }
