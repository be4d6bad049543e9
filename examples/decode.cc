// One layer of an engine's decode loop: append a token, plan its row, attend.
#include <cstdio>
#include <random>
#include <vector>

#include "seriatim/seriatim.hpp"

using namespace seriatim;

// What the model hands to the layer for one token; random here.
struct Token {
  Token(const Geometry& geometry, std::int64_t at, std::mt19937& random) : g(geometry), position(at) {
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, std::int64_t n) {
      values.resize(static_cast<std::size_t>(n));
      for (float& v : values) v = normal(random);
    };
    fill(key, g.kv_heads() * g.head_dim());
    fill(value, g.kv_heads() * g.value_dim());
    fill(index_key, g.index_dim());
    fill(query, g.query_heads() * g.head_dim());
    fill(index_query, g.index_heads() * g.index_dim());
  }

  TokenBatch batch() const {
    return {.first_position = position,
            .keys = dense_view(key.data(), DType::kF32, {1, g.kv_heads(), g.head_dim()}),
            .values = dense_view(value.data(), DType::kF32, {1, g.kv_heads(), g.value_dim()}),
            .index_keys = dense_view(index_key.data(), DType::kF32, {1, g.index_dim()})};
  }
  IndexQueries index_queries() const {
    return {dense_view(index_query.data(), DType::kF32, {1, g.index_heads(), g.index_dim()}), {}, {&position, 1}};
  }
  AttendQueries queries() const {
    return {dense_view(query.data(), DType::kF32, {1, g.query_heads(), g.head_dim()}), {&position, 1}, {}};
  }

  const Geometry& g;
  std::int64_t position;
  std::vector<float> key, value, index_key, query, index_query;
};

Status decode(Engine& engine, Cache& cache, SequenceId user, const Token& token, Rows rows, Tensor output) {
  auto step = cache.begin();
  if (!step.ok()) return step.status();
  if (Status s = step->append(user, 0, token.batch()); !s.ok()) return s;
  const auto layer = step->layer(user, 0);  // the staged token is visible to its own query
  if (!layer.ok()) return layer.status();
  if (Status s = engine.plan(*layer, token.index_queries(), NanPolicy::kRefuse, rows); !s.ok()) return s;
  if (Status s = engine.attend(*layer, token.queries(), rows, output, {}); !s.ok()) return s;
  return step->commit();  // all of the token, or none of it
}

int main() {
  GeometryOptions options;  // QSA's group size and budget rules, small here so that the example is quick
  options.budget_tokens = 64;
  options.query_heads = 4;
  options.kv_heads = 2;
  options.head_dim = 32;
  const auto g = Geometry::admit(options);
  if (!g.ok()) return 1;
  auto cache = Cache::create(*g, CacheOptions{.capacity_tokens = 4096});
  auto engine = Engine::host();
  if (!cache.ok() || !engine.ok()) return 1;
  const auto user = (*cache)->add();
  if (!user.ok()) return 1;

  std::mt19937 random(1);
  std::vector<std::int32_t> row(static_cast<std::size_t>(g->row_capacity()));
  std::int32_t count = 0;
  std::vector<float> output(static_cast<std::size_t>(g->query_heads() * g->value_dim()));
  const Tensor out = dense_view(static_cast<void*>(output.data()), DType::kF32, {1, g->query_heads(), g->value_dim()});
  for (std::int64_t position = 0; position < 200; ++position) {
    const Token token(*g, position, random);
    if (Status s = decode(*engine, **cache, *user, token, {row.data(), g->row_capacity(), &count}, out); !s.ok()) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(s.message().size()), s.message().data());
      return 1;
    }
  }
  const WorkDone done = engine->done();
  std::printf(
      "%lld tokens decoded, %lld of them from dense rows; %lld row tokens read where dense attention reads %d\n",
      static_cast<long long>(done.queries), static_cast<long long>(done.dense_rows),
      static_cast<long long>(done.row_tokens), 200 * 201 / 2);
  return done.queries == 200 && done.dense_rows == 67 ? 0 : 1;
}
