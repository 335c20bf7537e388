// Stream capture: operations that become nodes of a graph instead of running, and the rules about
// what may be called meanwhile (driver.md section 9). Protected by the simulator lock.
//
// A capture begins on its origin stream; other streams join by waiting for an event recorded in it.
// A capture that was invalidated stays with its streams until EndCapture on the origin.
#ifndef WEIR_TOOLS_SIMCUDA_CAPTURE_H_
#define WEIR_TOOLS_SIMCUDA_CAPTURE_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tools/simcuda/graph.h"
#include "tools/simcuda/stream.h"
#include "tools/simcuda/time.h"

namespace weir::sim {

struct Capture {
  uint64_t id = 0;  // never used again
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id owner;
  bool invalidated = false;
  bool ended = false;
  CUgraph graph_handle = nullptr;
  std::shared_ptr<Graph> graph;
  std::vector<std::shared_ptr<Stream>> streams;  // the origin first
};

class CaptureSet {
 public:
  explicit CaptureSet(GraphTable* graphs);

  // The rule for potentially unsafe calls: see Timeline::CheckCapture.
  CUresult Check(CaptureClass what);
  // Whether a blocking stream of the device captures, so that its legacy stream is unusable.
  bool BlocksLegacy(int device) const;
  // Invalidates those captures. False if there are none.
  bool InvalidateBlockingLegacy(int device);
  // Invalidates every capture with a stream of the device. False if there are none.
  bool InvalidateDevice(int device);

  CUresult Begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode);
  CUresult End(const std::shared_ptr<Stream>& stream, CUgraph* graph);
  // Lets the stream take part, its next node after these. Errors 902 and 901.
  CUresult Join(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Capture>& capture,
                const std::vector<uint32_t>& tail);
  // Makes the operation the next node of the capturing stream. 901 if invalidated.
  static CUresult AddNode(Stream& stream, Operation operation);
  // Ends captures of a device that goes away.
  void DropDevice(int device);

  // The calling thread's mode; forgotten at Reset.
  CUstreamCaptureMode ExchangeThreadMode(CUstreamCaptureMode mode);

 private:
  CUstreamCaptureMode CurrentThreadMode() const;
  bool InvalidateWhere(absl::FunctionRef<bool(const Stream&)> matches);
  void Finish(Capture& capture);

  GraphTable* const graphs_;
  const uint64_t generation_;
  std::vector<std::shared_ptr<Capture>> captures_;  // not ended
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_CAPTURE_H_
