// Entry points of graphs: made by captures only, instantiated, launched, destroyed.
#include <algorithm>
#include <utility>
#include <vector>

#include "tools/simcuda/time_entries.h"

namespace weir::sim {

CUresult SimGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph handle, unsigned long long flags) {
  // There is no memory to free in a graph, and priorities change nothing here.
  constexpr unsigned long long kWithoutEffect = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                                CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  constexpr unsigned long long kDeviceLaunch = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  if (exec == nullptr || (flags & ~(kWithoutEffect | kDeviceLaunch)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & kDeviceLaunch) != 0) return CUDA_ERROR_NOT_SUPPORTED;
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

// All edges are of the default kind, which is all zeros.
CUresult SimGraphNodeGetDependenciesV2(CUgraphNode node, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edges, size_t* count) {
  const CUgraph handle = GraphOfNode(node);
  const std::shared_ptr<Graph> graph = Time().graphs().Find(handle);
  if (graph == nullptr || count == nullptr || (edges != nullptr && dependencies == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint32_t index = NodeIndex(handle, *graph, node);
  if (index == UINT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<uint32_t>& found = graph->nodes[index].dependencies;
  if (dependencies == nullptr) {
    *count = found.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) {
    dependencies[i] = i < found.size() ? NodeHandle(handle, found[i]) : nullptr;
    if (edges != nullptr) edges[i] = {};
  }
  *count = std::min(*count, found.size());
  return CUDA_SUCCESS;
}

CUresult SimGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* dependencies, size_t* count) {
  return SimGraphNodeGetDependenciesV2(node, dependencies, nullptr, count);
}

// There are no memory nodes, so graphs hold no memory.
CUresult SimDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                       void* value) {
  if (!Simulator::Get().IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || attribute < CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ||
      attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *static_cast<cuuint64_t*>(value) = 0;
  return CUDA_SUCCESS;
}

// The high watermarks can be set to 0, nothing else can be set.
CUresult SimDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                       void* value) {
  if (!Simulator::Get().IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  const bool high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                    attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  const bool zero = value != nullptr && *static_cast<const cuuint64_t*>(value) == 0;
  return high && zero ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace weir::sim
