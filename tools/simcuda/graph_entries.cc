// Entry points of graphs: made by captures only, instantiated, launched, destroyed.
#include <algorithm>
#include <utility>

#include "tools/simcuda/time_entries.h"

namespace weir::sim {

CUresult SimGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph handle, unsigned long long flags) {
  if (exec == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  TimelineState& time = Time();
  const std::shared_ptr<Graph> graph = time.graphs().Find(handle);
  if (graph == nullptr || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<GraphExec> made = Instantiate(*graph);
  for (size_t i = 0; i < made->chain_length.size(); ++i) {
    made->lanes.push_back(time.lanes().Take(time.host_clock()));
  }
  *exec = time.graph_execs().Add(made);
  return CUDA_SUCCESS;
}

CUresult SimGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  TimelineState& time = Time();
  const std::shared_ptr<GraphExec> exec = time.graph_execs().Find(handle);
  const std::shared_ptr<Stream> stream = FindStream(stream_handle);
  if (exec == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // no child graph nodes
  if (const CUresult result = time.CheckLegacy(*stream); result != CUDA_SUCCESS) return result;

  const auto launch = std::make_shared<GraphLaunch>();
  launch->exec = exec;
  for (size_t i = 0; i < exec->lanes.size(); ++i) {
    launch->base.push_back(time.lanes().Last(exec->lanes[i]));
    time.lanes().Advance(exec->lanes[i], exec->chain_length[i]);
  }
  Operation operation;
  operation.kind = OperationKind::kGraphLaunch;
  operation.label = time.Label("cuGraphLaunch");
  operation.body = [launch, &time] {
    return launch->Run(&time.random(), [&time](const GraphNode& node,
                                               const std::shared_ptr<OperationRecord>& record) {
      return time.RunNow(node.operation, node.device, record);
    });
  };
  const bool first = exec->last_launch.points.empty();
  launch->record = time.Enqueue(stream, std::move(operation),
                                {&exec->last_launch, first ? size_t{0} : size_t{1}});
  for (size_t i = 0; i < exec->lanes.size(); ++i) {
    stream->clock.Raise(exec->lanes[i], time.lanes().Last(exec->lanes[i]));
  }
  exec->last_launch = TimelineState::TailOf(stream);
  time.RunAhead();
  return CUDA_SUCCESS;
}

CUresult SimGraphExecDestroy(CUgraphExec handle) {
  // Launches under way keep what they need.
  const std::shared_ptr<GraphExec> exec = Time().graph_execs().Remove(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const Lane lane : exec->lanes) Time().lanes().GiveBack(lane);
  return CUDA_SUCCESS;
}

CUresult SimGraphDestroy(CUgraph handle) {
  const std::shared_ptr<Graph> graph = Time().graphs().Find(handle);
  if (graph == nullptr || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  Time().graphs().Remove(handle);
  return CUDA_SUCCESS;
}

CUresult SimGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  const std::shared_ptr<Graph> graph = Time().graphs().Find(handle);
  if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const size_t total = graph->nodes.size();
  if (nodes == nullptr) {
    *count = total;
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) {
    nodes[i] = i < total ? NodeHandle(handle, static_cast<uint32_t>(i)) : nullptr;
  }
  *count = std::min(*count, total);
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
