#include "runs.hpp"

#include <ggml-impl.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "tensors.hpp"

namespace seriatim::plugin {
namespace {

std::atomic<bool> slices_joined{false};

std::int32_t uses(const ggml_cgraph* graph, const ggml_tensor* tensor) {
  const std::size_t place = ggml_hash_find(&graph->visited_hash_set, tensor);
  const bool known = place != GGML_HASHSET_FULL && ggml_bitset_get(graph->visited_hash_set.used, place);
  return known ? graph->use_counts[place] : -1;
}

// What holds a tensor's memory.
ggml_tensor* memory_of(const ggml_tensor* tensor) {
  return const_cast<ggml_tensor*>(tensor->view_src == nullptr ? tensor : tensor->view_src);
}

using Tensors = std::vector<const ggml_tensor*>;

Tensors inputs_of(const SelectChain& s) {
  return {s.pool.pooled, s.pool.cells, s.queries, s.bias, s.cell_group, s.mask};
}

void pin(const ggml_backend_graph_optimize_params* params, const Tensors& inputs, const ggml_tensor* until) {
  if (params == nullptr || params->add_alloc_dep == nullptr) return;
  for (const ggml_tensor* input : inputs)
    params->add_alloc_dep(params->user_data, memory_of(input), const_cast<ggml_tensor*>(until));
}

}  // namespace

void join_slices(bool joined) { slices_joined = joined; }

std::optional<int> first_of_run(const ggml_cgraph* graph, const std::vector<const ggml_tensor*>& inside, int last) {
  const ggml_tensor* end = graph->nodes[last];
  const std::unordered_set<const ggml_tensor*> members(inside.begin(), inside.end());
  std::unordered_map<const ggml_tensor*, std::int32_t> known;  // uses by members and the last
  const auto look = [&](const ggml_tensor* user) {
    for (const ggml_tensor* source : user->src) {
      if (source != nullptr) ++known[source];
    }
  };
  for (const ggml_tensor* member : members) look(member);
  look(end);
  int first = last;
  for (; first > 0; --first) {
    const ggml_tensor* node = graph->nodes[first - 1];
    if (!members.contains(node) && !is_view(node)) break;
  }
  const auto is_there = [&](const ggml_tensor* member) {
    return std::find(graph->nodes + first, graph->nodes + last, member) != graph->nodes + last;
  };
  for (const ggml_tensor* member : members) {
    // Views may have been left in another part of the graph; they compute nothing.
    if (!is_view(member) && !is_there(member)) return std::nullopt;
    if ((member->flags & GGML_TENSOR_FLAG_OUTPUT) != 0 || uses(graph, member) != known[member]) return std::nullopt;
  }
  while (first < last && !members.contains(graph->nodes[first])) ++first;
  return first;
}

void Runs::find(const ggml_cgraph* graph, const ggml_backend_graph_optimize_params* params) {
  constexpr std::size_t kMost = 1 << 16;  // graphs that are gone leave theirs behind until their memory is used again
  if (runs_.size() > kMost) runs_.clear();
  if (selections_.size() > kMost) selections_.clear();
  for (int i = 0; i < graph->n_nodes; ++i) {
    runs_.erase(graph->nodes[i]);
    selections_.erase(graph->nodes[i]);
  }
  for (int i = 0; i < graph->n_nodes; ++i) {
    const ggml_tensor* node = graph->nodes[i];
    if (auto select = select_chain(node); select.has_value()) {
      pin(params, {select->cell_group}, node);
      selections_.insert(node);
      // Where the attention belongs to it too, what follows takes this one's place.
      if (const auto first = first_of_run(graph, select->inside, i); first.has_value()) {
        pin(params, inputs_of(*select), node);
        runs_.insert_or_assign(graph->nodes[*first], Run{std::move(*select), i - *first + 1});
      }
    }
    if (auto pool = pool_chain(node); pool.has_value()) {
      if (const auto first = first_of_run(graph, pool->inside, i); first.has_value()) {
        pin(params, {pool->cells, pool->positions}, node);
        runs_.insert_or_assign(graph->nodes[*first], Run{std::move(*pool), i - *first + 1});
      }
    }
    if (auto attend = attend_chain(node); attend.has_value()) {
      if (const auto first = first_of_run(graph, attend->inside, i); first.has_value()) {
        pin(params, inputs_of(attend->select), node);
        // Read where the nodes are computed one by one after all, when part of the output is written already.
        pin(params, {attend->zeros}, node);
        runs_.insert_or_assign(graph->nodes[*first], Run{std::move(*attend), i - *first + 1});
      }
    }
  }
}

const Run* Runs::at(const ggml_cgraph* graph, int first) const {
  if (graph->uid == 0 && !slices_joined) return nullptr;
  const auto found = runs_.find(graph->nodes[first]);
  if (found == runs_.end() || first + found->second.nodes > graph->n_nodes) return nullptr;
  const Run& run = found->second;
  const ggml_tensor* last = graph->nodes[first + run.nodes - 1];
  const auto* pool = std::get_if<PoolChain>(&run.chain);
  const auto* select = std::get_if<SelectChain>(&run.chain);
  const ggml_tensor* expected = pool != nullptr     ? pool->pooled
                                : select != nullptr ? select->top_k
                                                    : std::get<AttendChain>(run.chain).attention;
  return last == expected ? &run : nullptr;
}

}  // namespace seriatim::plugin
