// The backend of one context: computes the nodes that the device claimed.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <set>

#include "attention.hpp"
#include "indexer.hpp"
#include "outcome.hpp"
#include "qsa.hpp"
#include "runs.hpp"
#include "top_k.hpp"
#include "workers.hpp"

namespace seriatim::plugin {

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  ~Backend();

  void set_threads(int threads);
  void set_abort(AbortCallback abort);

  ggml_status compute(ggml_cgraph* graph) noexcept;
  // Before the graph's memory is laid out.
  void optimize(const ggml_cgraph* graph, const ggml_backend_graph_optimize_params* params) noexcept;

 private:
  ggml_status compute_all(ggml_cgraph* graph);
  Outcome compute_run(const Run& run);
  // Of one node that the device claims by itself; kLeft also for nodes that are claimed as parts of chains alone.
  Outcome compute_node(const ggml_tensor* node);
  // Nodes first .. end - 1, by ggml's CPU backend.
  ggml_status leave(ggml_cgraph* graph, int first, int end);

  Workers workers_;
  AbortCallback abort_;
  TopK top_k_;
  Indexer indexer_;
  Attention attention_;
  Qsa qsa_;
  Runs runs_;
  std::set<const ggml_tensor*> caches_;  // whose attention was laid out for this
  ggml_backend_t cpu_ = nullptr;         // made when it is first needed
};

}  // namespace seriatim::plugin
