#include "tools/simcuda/graph.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace weir::sim {
namespace {

constexpr uint64_t kNodeTag = 0x55;

}  // namespace

std::vector<bool> Graph::WithAncestors(const std::vector<uint32_t>& tail) const {
  std::vector<bool> marked(nodes.size(), false);
  for (const uint32_t node : tail) marked[node] = true;
  for (size_t i = nodes.size(); i-- > 0;) {
    if (!marked[i]) continue;
    for (const uint32_t dependency : nodes[i].dependencies) marked[dependency] = true;
  }
  return marked;
}

CUgraphNode NodeHandle(CUgraph graph, uint32_t index) {
  const uint64_t slot = (reinterpret_cast<uint64_t>(graph) >> 4) & 0xffffff;
  return reinterpret_cast<CUgraphNode>((kNodeTag << 48) | (slot << 24) | index);
}

CUgraph GraphOfNode(CUgraphNode node) {
  const uint64_t value = reinterpret_cast<uint64_t>(node);
  if (value >> 48 != kNodeTag) return nullptr;
  return reinterpret_cast<CUgraph>((kGraphTag << 48) | ((value >> 24 & 0xffffff) << 4));
}

uint32_t NodeIndex(CUgraph graph, const Graph& contents, CUgraphNode node) {
  const uint32_t index = static_cast<uint32_t>(reinterpret_cast<uint64_t>(node) & 0xffffff);
  const bool known = index < contents.nodes.size() && NodeHandle(graph, index) == node;
  return known ? index : UINT32_MAX;
}

std::shared_ptr<GraphExec> Instantiate(const Graph& graph) {
  auto exec = std::make_shared<GraphExec>();
  exec->nodes = graph.nodes;
  exec->user_objects = graph.user_objects;
  const size_t count = exec->nodes.size();
  exec->successors.resize(count);
  exec->chain.resize(count);
  exec->place.resize(count);
  std::vector<bool> extended(count, false);  // is followed by another node of its chain
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t chain = static_cast<uint32_t>(exec->chain_length.size());
    for (const uint32_t dependency : exec->nodes[i].dependencies) {
      exec->successors[dependency].push_back(i);
      if (chain < exec->chain_length.size() || extended[dependency]) continue;
      extended[dependency] = true;
      chain = exec->chain[dependency];
    }
    if (chain == exec->chain_length.size()) exec->chain_length.push_back(0);
    exec->chain[i] = chain;
    exec->place[i] = ++exec->chain_length[chain];
  }
  return exec;
}

CUresult GraphLaunch::Run(Random* random, RunNode run) const {
  const size_t count = exec->nodes.size();
  SharedClock start;
  start.Merge(*record->clock);
  start.Raise(record->lane, record->position);
  std::vector<SharedClock> clocks(count);  // of nodes that ran
  std::vector<size_t> missing(count);
  std::vector<uint32_t> ready;
  for (uint32_t i = 0; i < count; ++i) {
    missing[i] = exec->nodes[i].dependencies.size();
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    const size_t choice = random->Below(ready.size());
    const uint32_t i = ready[choice];
    ready[choice] = ready.back();
    ready.pop_back();
    const GraphNode& node = exec->nodes[i];
    const auto lane = [this](uint32_t n) { return exec->lanes[exec->chain[n]]; };
    const auto position = [this](uint32_t n) { return base[exec->chain[n]] + exec->place[n]; };
    clocks[i] = start;
    for (const uint32_t dependency : node.dependencies) {
      if (exec->chain[dependency] == exec->chain[i] &&
          exec->place[dependency] + 1 == exec->place[i]) {
        clocks[i] = clocks[dependency];
      }
    }
    for (const uint32_t dependency : node.dependencies) {
      if (exec->chain[dependency] == exec->chain[i]) continue;
      clocks[i].Merge(*clocks[dependency]);
      clocks[i].Raise(lane(dependency), position(dependency));
    }
    const auto node_record = std::make_shared<OperationRecord>(
        OperationRecord{absl::StrCat(node.operation.label, " in ", record->label),
                        record->stream_id, lane(i), position(i), clocks[i].Share()});
    const CUresult result = run(node, node_record);
    node_record->clock = nullptr;  // as for operations of streams
    if (result != CUDA_SUCCESS) return result;
    for (const uint32_t successor : exec->successors[i]) {
      if (--missing[successor] == 0) ready.push_back(successor);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
