// TOP_K: the exact set of the k greatest of each row (ties: the lower cell), handed out in ascending order.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <span>
#include <vector>

#include "outcome.hpp"
#include "workers.hpp"

namespace seriatim::plugin {

// Whether a node is one that top_k() computes. Reads shapes and types alone.
bool fits_top_k(const ggml_tensor* node);

class TopK {
 public:
  // Throws bad_alloc, before anything is written.
  Outcome compute(const ggml_tensor* node, Workers& workers, const AbortCallback& abort);

 private:
  void one_row(std::span<const float> scores, std::int64_t keep, std::int32_t* out, std::span<std::int32_t> scratch);
  void long_row(std::span<const float> scores, std::int64_t keep, std::int32_t* out, Workers& workers);

  std::vector<std::vector<std::int32_t>> scratch_;  // of each worker
  std::vector<std::int32_t> cells_;                 // what the parts of a long row chose
  std::vector<float> scores_;
};

}  // namespace seriatim::plugin
