#include "backend.hpp"

#include <ggml-backend-impl.h>
#include <ggml-impl.h>

#include <new>
#include <utility>

#include "base/float_environment.hpp"
#include "claims.hpp"
#include "counters.hpp"
#include "options.hpp"
#include "tensors.hpp"

namespace seriatim::plugin {
namespace {

bool computes_nothing(const ggml_tensor* node) {
  return is_view(node) || (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0 || ggml_is_empty(node);
}

// Whether the node is one of the three ops that are computed by themselves.
bool is_ours_alone(const ggml_tensor* node) {
  return fits_top_k(node) || unfit_attention(node).empty() || fits_indexer(node);
}

// A function that a backend offers by name.
template <typename Function>
Function offered(ggml_backend_t backend, const char* name) {
  ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
  return reinterpret_cast<Function>(ggml_backend_reg_get_proc_address(reg, name));
}

ggml_backend_t make_cpu_backend() {
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  return device == nullptr ? nullptr : ggml_backend_dev_init(device, nullptr);
}

}  // namespace

Backend::~Backend() {
  flash_gate().forget(caches_);
  if (cpu_ != nullptr) ggml_backend_free(cpu_);
}

void Backend::set_threads(int threads) { workers_.set_threads(threads); }

void Backend::set_abort(AbortCallback abort) { abort_ = abort; }

ggml_status Backend::compute(ggml_cgraph* graph) noexcept {
  try {
    return compute_all(graph);
  } catch (const std::bad_alloc&) {
    return GGML_STATUS_ALLOC_FAILED;
  } catch (...) {
    return GGML_STATUS_FAILED;
  }
}

void Backend::optimize(const ggml_cgraph* graph, const ggml_backend_graph_optimize_params* params) noexcept {
  try {
    for (int i = 0; i < graph->n_nodes; ++i) {
      if (graph->nodes[i]->op == GGML_OP_FLASH_ATTN_EXT) caches_.insert(cache_behind(graph->nodes[i]->src[1]));
    }
    if (options().chains) runs_.find(graph, params);
  } catch (...) {  // no memory: nodes are computed one by one
  }
}

ggml_status Backend::compute_all(ggml_cgraph* graph) {
  int left = 0;  // nodes before i that ggml's CPU backend computes next
  const auto leave_until = [&](int i) {
    const int first = i - std::exchange(left, 0);
    return first == i ? GGML_STATUS_SUCCESS : leave(graph, first, i);
  };
  for (int i = 0; i < graph->n_nodes;) {
    const Run* run = runs_.at(graph, i);
    const int nodes = run == nullptr ? 1 : run->nodes;
    if (run == nullptr && (computes_nothing(graph->nodes[i]) || !is_ours_alone(graph->nodes[i]))) {
      if (left > 0 || !computes_nothing(graph->nodes[i])) ++left;
      ++i;
      continue;
    }
    if (const ggml_status status = leave_until(i); status != GGML_STATUS_SUCCESS) return status;
    switch (run == nullptr ? compute_node(graph->nodes[i]) : compute_run(*run)) {
      case Outcome::kDone:
        break;
      case Outcome::kAborted:
        return GGML_STATUS_ABORTED;
      case Outcome::kLeft:
        ++counters().left_to_ggml;
        if (const ggml_status status = leave(graph, i, i + nodes); status != GGML_STATUS_SUCCESS) return status;
    }
    i += nodes;
  }
  return leave_until(graph->n_nodes);
}

Outcome Backend::compute_run(const Run& run) {
  DefaultFloatEnvironment environment;
  if (const auto* pool = std::get_if<PoolChain>(&run.chain); pool != nullptr) {
    ++counters().pools;
    return qsa_.pool(*pool, workers_, abort_);
  }
  ++counters().chains;
  if (const auto* select = std::get_if<SelectChain>(&run.chain); select != nullptr)
    return qsa_.select(*select, workers_, abort_);
  const auto& chain = std::get<AttendChain>(run.chain);
  return qsa_.attend(chain, attention_, workers_, abort_);
}

Outcome Backend::compute_node(const ggml_tensor* node) {
  DefaultFloatEnvironment environment;
  switch (node->op) {
    case GGML_OP_TOP_K: {
      ++counters().top_k;
      const auto chain = runs_.knows_selection(node) ? select_chain(node) : std::nullopt;
      return chain.has_value() ? qsa_.select_cells(*chain, workers_, abort_) : top_k_.compute(node, workers_, abort_);
    }
    case GGML_OP_FLASH_ATTN_EXT:
      ++counters().attention;
      return attention_.compute(node, workers_, abort_);
    default:
      ++counters().indexer;
      return indexer_.compute(node, workers_, abort_);
  }
}

ggml_status Backend::leave(ggml_cgraph* graph, int first, int end) {
  if (cpu_ == nullptr) cpu_ = make_cpu_backend();
  if (cpu_ == nullptr) return GGML_STATUS_FAILED;
  if (const auto set = offered<ggml_backend_set_n_threads_t>(cpu_, "ggml_backend_set_n_threads"); set != nullptr)
    set(cpu_, workers_.threads());
  if (const auto set = offered<ggml_backend_set_abort_callback_t>(cpu_, "ggml_backend_set_abort_callback");
      set != nullptr) {
    set(cpu_, abort_.callback, abort_.data);
  }
  ggml_cgraph part = ggml_graph_view(graph, first, end);
  return ggml_backend_graph_compute(cpu_, &part);
}

}  // namespace seriatim::plugin
