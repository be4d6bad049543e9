#include "backend.hpp"

#include <ggml-backend-impl.h>
#include <ggml-impl.h>

#include <new>

#include "base/float_environment.hpp"
#include "claims.hpp"
#include "counters.hpp"

namespace seriatim::plugin {
namespace {

bool computes_nothing(const ggml_tensor* node) {
  switch (node->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
      return true;
    default:
      return (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0 || ggml_is_empty(node);
  }
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

ggml_status Backend::compute_all(ggml_cgraph* graph) {
  for (int i = 0; i < graph->n_nodes; ++i) {
    if (computes_nothing(graph->nodes[i])) continue;
    switch (compute_node(graph->nodes[i])) {
      case Outcome::kDone:
        break;
      case Outcome::kAborted:
        return GGML_STATUS_ABORTED;
      case Outcome::kLeft:
        ++counters().left_to_ggml;
        if (const ggml_status status = leave(graph, i, i + 1); status != GGML_STATUS_SUCCESS) return status;
    }
  }
  return GGML_STATUS_SUCCESS;
}

Outcome Backend::compute_node(const ggml_tensor* node) {
  DefaultFloatEnvironment environment;
  if (fits_top_k(node)) {
    ++counters().top_k;
    return top_k_.compute(node, workers_, abort_);
  }
  if (unfit_attention(node).empty()) {
    ++counters().attention;
    caches_.insert(cache_behind(node->src[1]));
    return attention_.compute(node, workers_, abort_);
  }
  if (fits_indexer(node)) {
    ++counters().indexer;
    return indexer_.compute(node, workers_, abort_);
  }
  return Outcome::kLeft;
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
