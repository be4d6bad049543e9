// Runs of a graph's nodes that are computed in one pass: found when ggml hands over the graph to be optimized, when it
// can still be told which of their inputs must live until the end.
#pragma once

#include <ggml-backend-impl.h>
#include <ggml.h>

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "qsa_graph.hpp"

namespace seriatim::plugin {

struct Run {
  std::variant<PoolChain, SelectChain, AttendChain> chain;
  int nodes = 0;  // from the first to the last
};

class Runs {
 public:
  // Forgets what it knew of these nodes, and pins the inputs of the runs that it finds among them.
  // Threads  one call at a time. Throws bad_alloc.
  void find(const ggml_cgraph* graph, const ggml_backend_graph_optimize_params* params);

  // The run that begins at node `first` of a whole graph, or null.
  const Run* at(const ggml_cgraph* graph, int first) const;
  // Whether the inputs of a selection's rule live until it.
  bool knows_selection(const ggml_tensor* top_k) const { return selections_.contains(top_k); }

 private:
  std::unordered_map<const ggml_tensor*, Run> runs_;  // by their first node
  std::unordered_set<const ggml_tensor*> selections_;
};

// Slices of a graph are computed node by node, since who has it sliced looks at what is between. Whoever looks at the
// last nodes of slices alone, in order to time them, says so here, for the whole process: their runs are then joined,
// too. Threads  any.
void join_slices(bool joined);

// The nodes of a chain stand side by side in the graph with its last, and nobody else knows what they make.
// Gives   the index of the first, or nothing
std::optional<int> first_of_run(const ggml_cgraph* graph, const std::vector<const ggml_tensor*>& inside, int last);

}  // namespace seriatim::plugin
