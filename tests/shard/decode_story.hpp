// A decode over ranks whose tokens are a function of their positions, so that any launch can go on where another ended.
#pragma once

#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "seriatim/seriatim.hpp"

namespace seriatim::decode_story {

inline Geometry geometry() {
  GeometryOptions options;
  options.budget_tokens = 64;
  options.query_heads = 4;
  options.kv_heads = 2;
  options.head_dim = 32;
  return *Geometry::admit(options);
}

// What a model hands to the layer for one token; equal on all ranks.
struct Token {
  Token(const Geometry& geometry, std::int64_t at) : g(geometry), position(at) {
    std::mt19937 random(static_cast<unsigned>(at + 1));
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& part, std::int64_t count) {
      part.resize(static_cast<std::size_t>(count));
      for (float& v : part) v = normal(random);
    };
    fill(keys, g.kv_heads() * g.head_dim());
    fill(values, g.kv_heads() * g.value_dim());
    fill(index_keys, g.index_dim());
    fill(queries, g.query_heads() * g.head_dim());
    fill(index_queries, g.index_heads() * g.index_dim());
  }

  TokenBatch batch() const {
    return {.first_position = position,
            .keys = dense_view(keys.data(), DType::kF32, {1, g.kv_heads(), g.head_dim()}),
            .values = dense_view(values.data(), DType::kF32, {1, g.kv_heads(), g.value_dim()}),
            .index_keys = dense_view(index_keys.data(), DType::kF32, {1, g.index_dim()})};
  }
  IndexQueries for_plan() const {
    return {dense_view(index_queries.data(), DType::kF32, {1, g.index_heads(), g.index_dim()}), {}, {&position, 1}};
  }
  AttendQueries for_attend() const {
    return {dense_view(queries.data(), DType::kF32, {1, g.query_heads(), g.head_dim()}), {&position, 1}, {}};
  }

  const Geometry& g;
  std::int64_t position;
  std::vector<float> keys, values, index_keys, queries, index_queries;
};

// One token on all ranks. Gives a digest of its row and output.
inline Result<std::uint64_t> step(ShardedEngine& engine, ShardedCache& cache, SequenceId user, const Token& token) {
  auto staged = cache.begin();
  if (!staged.ok()) return staged.status();
  if (Status s = staged->append(user, 0, token.batch()); !s.ok()) return s;
  const auto layer = staged->layer(user, 0);
  if (!layer.ok()) return layer.status();
  const Geometry& g = token.g;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(g.row_capacity()));
  std::int32_t count = 0;
  const Rows rows{positions.data(), g.row_capacity(), &count};
  const ShardedPlanAsk plan{&*layer, token.for_plan()};
  if (Status s = engine.plan({&plan, 1}, NanPolicy::kRefuse, rows); !s.ok()) return s;
  std::vector<float> output(static_cast<std::size_t>(g.query_heads() * g.value_dim()));
  const Tensor out = dense_view(static_cast<void*>(output.data()), DType::kF32, {1, g.query_heads(), g.value_dim()});
  const ShardedAttendAsk attend{&*layer, token.for_attend()};
  if (Status s = engine.attend({&attend, 1}, rows, out, {}); !s.ok()) return s;
  if (Status s = staged->commit(); !s.ok()) return s;
  std::uint64_t digest = 14695981039346656037ull;
  const auto add = [&digest](std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) digest = (digest ^ static_cast<std::uint64_t>(b)) * 1099511628211ull;
  };
  add(std::as_bytes(std::span(positions)));
  add(std::as_bytes(std::span(output)));
  return digest;
}

}  // namespace seriatim::decode_story
