// LIGHTNING_INDEXER: the canonical score (contract section 3, step 4, with signed head weights) of every cell, plus the
// mask.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "outcome.hpp"
#include "seriatim/geometry.hpp"
#include "workers.hpp"

namespace seriatim::plugin {

bool fits_indexer(const ggml_tensor* node);

class Indexer {
 public:
  // Throws bad_alloc, before anything is written.
  Outcome compute(const ggml_tensor* node, Workers& workers, const AbortCallback& abort);

 private:
  struct Scratch {                // of a worker
    AlignedBuffer<float> rows;    // [16][row]: keys that are being turned
    AlignedBuffer<float> panels;  // [kTilePanels][row][16]
    AlignedBuffer<float> scores;  // [block][kTilePanels * 16]
    AlignedBuffer<std::byte> edge;
  };

  void one_stream(const ggml_tensor* node, const Geometry& geometry, std::int64_t stream, Workers& workers);

  std::vector<Scratch> scratch_;
  AlignedBuffer<float> queries_;  // [tokens][heads][dim], packed block by block
  AlignedBuffer<float> weights_;  // [tokens][heads]
};

}  // namespace seriatim::plugin
