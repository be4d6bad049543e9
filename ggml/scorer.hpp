// Canonical scores (contract section 3, step 4) of many keys, which lie in rows of any type that ggml can widen: each
// is widened and turned once for all queries that share the pass.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "panel.hpp"
#include "seriatim/geometry.hpp"
#include "workers.hpp"

namespace seriatim::plugin {

struct KeyRows {
  ggml_type type = GGML_TYPE_F32;
  const std::byte* first = nullptr;
  std::int64_t stride_bytes = 0;
  std::int64_t count = 0;
};

class Scorer {
 public:
  static constexpr std::int64_t kTilePanels = 8;  // read again for each block of queries, from the second cache
  static constexpr std::int64_t kTileKeys = kTilePanels * kPanelKeys;

  // What becomes of the scores of keys first .. first + count - 1 for a query. `spare` has kTileKeys floats.
  class Sink {
   public:
    virtual void take(std::int64_t query, std::int64_t first, std::int64_t count, const float* scores,
                      float* spare) = 0;

   protected:
    ~Sink() = default;
  };

  // Takes   queries [Q, index_heads, index_dim] f32, any strides; weights [Q, index_heads] f32, or empty
  // Throws bad_alloc, before the sink is called.
  void run(const Geometry& geometry, const ConstTensor& queries, const ConstTensor& weights, const KeyRows& keys,
           Workers& workers, Sink& sink);

 private:
  struct Scratch {                // of a worker
    AlignedBuffer<float> rows;    // [16][row]: keys that are being turned
    AlignedBuffer<float> panels;  // [kTilePanels][row][16]
    AlignedBuffer<float> scores;  // [block][kTileKeys]
    AlignedBuffer<float> spare;   // [kTileKeys]
    AlignedBuffer<std::byte> edge;
  };

  void pack(const Geometry& geometry, const ConstTensor& queries, const ConstTensor& weights, Workers& workers);
  void score_tile(const Geometry& geometry, const KeyRows& keys, std::int64_t queries, bool weighted, std::int64_t tile,
                  Scratch& own, Sink& sink) const;

  std::vector<Scratch> scratch_;
  AlignedBuffer<float> queries_;  // [Q][heads][dim], packed block by block
  AlignedBuffer<float> weights_;  // [Q][heads]
};

}  // namespace seriatim::plugin
