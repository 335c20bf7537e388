// Graphs: operations with dependencies, made by captures, run again and again by launches.
// Protected by the simulator lock.
//
// A launch is one operation of its stream. Nodes run in a seeded order that respects dependencies,
// with the addresses that were captured. Only dependencies order the nodes of one launch for the
// checker: an executable graph is cut into chains, each a lane of its own.
#ifndef WEIR_TOOLS_SIMCUDA_GRAPH_H_
#define WEIR_TOOLS_SIMCUDA_GRAPH_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tools/simcuda/clock.h"
#include "tools/simcuda/handle_table.h"
#include "tools/simcuda/operation.h"
#include "tools/simcuda/random.h"
#include "tools/simcuda/stream.h"
#include "tools/simcuda/user_object.h"

namespace weir::sim {

struct GraphNode {
  Operation operation;
  int device;
  std::vector<uint32_t> dependencies;  // smaller indices only
};

struct Graph {
  std::vector<GraphNode> nodes;
  bool capturing = false;
  std::vector<UserReferences> user_objects;

  // Which nodes are among these or needed by them.
  std::vector<bool> WithAncestors(const std::vector<uint32_t>& tail) const;
};
inline constexpr uint64_t kGraphTag = 0x53;
using GraphTable = HandleTable<Graph, CUgraph, kGraphTag>;

// Node handles are made from the graph's handle and the node's index.
CUgraphNode NodeHandle(CUgraph graph, uint32_t index);
// The handle of the graph that the node would be of; null if the handle is none of a node.
CUgraph GraphOfNode(CUgraphNode node);
// The index, or UINT32_MAX if the handle is not of a node of this graph.
uint32_t NodeIndex(CUgraph graph, const Graph& contents, CUgraphNode node);

struct GraphExec {
  std::vector<GraphNode> nodes;
  std::vector<std::vector<uint32_t>> successors;  // by node
  std::vector<uint32_t> chain;                    // by node
  std::vector<uint64_t> place;                    // by node: 1, 2, ... in its chain
  std::vector<uint64_t> chain_length;
  std::vector<Lane> lanes;  // by chain; owned, given back when the executable is destroyed
  Mark last_launch;         // launches of one executable do not overlap
  std::vector<UserReferences> user_objects;
};
using GraphExecTable = HandleTable<GraphExec, CUgraphExec, 0x54>;

std::shared_ptr<GraphExec> Instantiate(const Graph& graph);

struct GraphLaunch {
  std::shared_ptr<GraphExec> exec;
  std::vector<uint64_t> base;               // by chain: position in its lane before this launch
  std::shared_ptr<OperationRecord> record;  // of the launch operation

  // Runs one node; may drop the lock.
  using RunNode =
      absl::FunctionRef<CUresult(const GraphNode&, const std::shared_ptr<OperationRecord>&)>;
  // Runs all nodes; ends at the first error.
  CUresult Run(Random* random, RunNode run) const;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_GRAPH_H_
