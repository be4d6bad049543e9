// LIGHTNING_INDEXER: the canonical score with signed head weights of every cell, plus the mask.
#pragma once

#include <ggml.h>

#include "outcome.hpp"
#include "scorer.hpp"
#include "workers.hpp"

namespace seriatim::plugin {

bool fits_indexer(const ggml_tensor* node);

class Indexer {
 public:
  // Throws bad_alloc, before anything is written.
  Outcome compute(const ggml_tensor* node, Workers& workers, const AbortCallback& abort);

 private:
  Scorer scorer_;
};

}  // namespace seriatim::plugin
