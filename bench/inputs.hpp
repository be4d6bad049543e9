// Random input. Scores are normal or of the kinds that selections degrade on; keys, values and queries are uniform.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "seriatim/cache.hpp"
#include "seriatim/step.hpp"

namespace seriatim::bench {

// xoshiro-like, fast enough for gigabytes.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t bits();
  float uniform();  // in -1 .. 1
  float normal();

 private:
  std::uint64_t state_;
};

std::vector<float> normal_scores(Random& random, std::int64_t count);

struct Distribution {
  std::string name;
  std::vector<float> scores;
};
// Those of the table: normal first.
std::vector<Distribution> score_distributions(Random& random, std::int64_t count);

// A buffer of uniform elements of any float dtype.
std::vector<std::byte> uniform_elements(Random& random, std::int64_t count, DType dtype);

// QSA's real geometry: 24 x 2 heads of 256, index 4 x 128.
Geometry real_geometry(DType dtype, std::int64_t budget_tokens = 2048);

// A latent layer: 128 query heads over one kv head of 576 dims whose first 512 are the value, index of 64 x 128 with
// signed head weights, groups of one token.
Geometry latent_geometry(DType dtype);

// One layer filled with random tokens, and queries at its end.
class Layer {
 public:
  // Queries stand at the last `queries` positions, or at `positions`. `correlation` is that of an index query with its
  // predecessor's.
  Layer(const Geometry& geometry, std::int64_t tokens, std::int64_t queries, double correlation, std::uint64_t seed);

  const Geometry& geometry() const { return geometry_; }
  const LayerView& view() const { return view_; }
  std::int64_t queries() const { return queries_; }
  std::int64_t tokens() const { return view_.run.tokens; }
  IndexQueries index_queries(std::int64_t first, std::int64_t count) const;
  AttendQueries attend_queries(std::int64_t first, std::int64_t count) const;
  // All queries at one position instead (decode steps that can be repeated).
  void stand_at(std::int64_t position);

 private:
  Geometry geometry_;
  std::unique_ptr<Cache> cache_;
  std::vector<Snapshot> snapshot_;  // one
  LayerView view_;
  std::int64_t queries_;
  std::vector<std::byte> index_queries_;
  std::vector<std::byte> attend_queries_;
  std::vector<float> head_weights_;  // signed; where they carry the score's scale, else none
  std::vector<std::int64_t> positions_;
};

// An engine with its scratch reserved for calls of one ask over the layer.
Engine make_engine(const Layer& layer, Executor& executor, Kernels kernels);

// Rows and outputs of `queries` queries.
struct Answer {
  Answer(const Geometry& geometry, std::int64_t queries, std::int64_t row_capacity = 0);
  Rows rows();
  Tensor output();
  std::int64_t queries;
  std::int64_t heads, value_dim, capacity;
  std::vector<std::int32_t> positions, counts;
  std::vector<float> values;
};

}  // namespace seriatim::bench
