// The capture table: every call of capture_calls.h in every mode, from the capturing thread and
// from another, with and without a relaxed scope.
#include "allocator/driver/relaxed_capture_scope.h"
#include "tools/gpu_check/capture_calls.h"
#include "tools/gpu_check/checks.h"

namespace weir::gpu_check {
namespace {

struct Column {
  const char* name;
  CUstreamCaptureMode mode;
  bool other_thread;
  bool relaxed_scope;  // the thread that calls is in a RelaxedCaptureScope
};

constexpr Column kColumns[] = {
    {"global", CU_STREAM_CAPTURE_MODE_GLOBAL, false, false},
    {"global, other thread", CU_STREAM_CAPTURE_MODE_GLOBAL, true, false},
    {"thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, false},
    {"thread-local, other thread", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, false},
    {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, false, false},
    {"relaxed, other thread", CU_STREAM_CAPTURE_MODE_RELAXED, true, false},
    {"global, relaxed scope", CU_STREAM_CAPTURE_MODE_GLOBAL, false, true},
    {"global, other thread, relaxed scope", CU_STREAM_CAPTURE_MODE_GLOBAL, true, true},
};

struct Cell {
  CUresult result = CUDA_SUCCESS;
  bool survived = false;
  bool ok() const { return result == CUDA_SUCCESS && survived; }
  std::string Text() const {
    return ResultName(result) + (survived ? "" : ", capture invalidated");
  }
};

Cell Examine(const Gpu& gpu, const CaptureCall& call, const Column& column) {
  const Api& api = gpu.api();
  Cell cell;
  CaptureScene scene(gpu, call.blocking_stream ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
  Must(Need(api.StreamBeginCapture, "cuStreamBeginCapture")(scene.captured.get(), column.mode),
       "cuStreamBeginCapture");
  const auto make = [&] {
    if (column.relaxed_scope) {
      const RelaxedCaptureScope relaxed(api);
      cell.result = call.make(scene);
    } else {
      cell.result = call.make(scene);
    }
  };
  if (column.other_thread) {
    gpu.InOtherThread(make);
  } else {
    make();
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = api.StreamIsCapturing(scene.captured.get(), &status);
  CUgraph graph = nullptr;
  const CUresult ended =
      Need(api.StreamEndCapture, "cuStreamEndCapture")(scene.captured.get(), &graph);
  cell.survived =
      asked == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE && ended == CUDA_SUCCESS;
  if (graph != nullptr) Must(Need(api.GraphDestroy, "cuGraphDestroy")(graph), "cuGraphDestroy");
  gpu.Synchronize();
  return cell;
}

}  // namespace

Answer CheckCaptureRelaxed(const Gpu& gpu) {
  Answer answer;
  int calls = 0;
  std::string broken;
  for (const CaptureCall& call : CaptureCalls()) {
    if (!call.weir_makes_it) continue;
    ++calls;
    for (const Column& column : kColumns) {
      if (!column.relaxed_scope) continue;
      const Cell cell = Examine(gpu, call, column);
      answer.detail[call.name][column.name] = cell.Text();
      // An entry that the driver lacks is not called.
      if (cell.ok() || cell.result == CUDA_ERROR_NOT_FOUND) continue;
      broken += (broken.empty() ? "" : "; ") + std::string(call.name) + ": " + cell.Text();
    }
  }
  answer.observed = broken.empty() ? "all " + std::to_string(calls) + " calls are legal" : broken;
  answer.agrees = broken.empty();
  return answer;
}

Answer CheckCaptureTable(const Gpu& gpu) {
  Answer answer;
  int cells = 0;
  std::string differing;
  for (const CaptureCall& call : CaptureCalls()) {
    nlohmann::json& row = answer.detail[call.name];
    row["expected"] = call.expected == InCapture::kLegal     ? "legal"
                      : call.expected == InCapture::kRefused ? "refused"
                                                             : "open";
    bool differs = false;
    for (const Column& column : kColumns) {
      const Cell cell = Examine(gpu, call, column);
      row[column.name] = cell.Text();
      ++cells;
      const bool own_unrelaxed = !column.other_thread && !column.relaxed_scope &&
                                 column.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
      if (!own_unrelaxed || call.expected == InCapture::kOpen) continue;
      if (cell.result == CUDA_ERROR_NOT_FOUND) continue;
      differs = differs || cell.ok() != (call.expected == InCapture::kLegal);
    }
    if (differs) differing += (differing.empty() ? "" : ", ") + std::string(call.name);
  }
  answer.observed = std::to_string(cells) + " cells; " +
                    (differing.empty() ? "as expected" : "differing: " + differing);
  answer.agrees = differing.empty();
  return answer;
}

}  // namespace weir::gpu_check
