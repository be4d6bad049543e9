// One layer of an engine's decode loop: append a token, plan its row, attend.
#include <cstdio>
#include <random>
#include <vector>

#include "seriatim/seriatim.hpp"

using namespace seriatim;

// What the model hands to the layer for one token; random here.
struct Token {
  std::vector<float> key, value, index_key, query, index_query;
};

Token next_token(const Geometry& g, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const auto fill = [&](std::int64_t n) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& v : values) v = normal(random);
    return values;
  };
  return {fill(g.kv_heads() * g.head_dim()), fill(g.kv_heads() * g.value_dim()), fill(g.index_dim()),
          fill(g.query_heads() * g.head_dim()), fill(g.index_heads() * g.index_dim())};
}

Status decode(const Geometry& g, Cache& cache, SequenceId user, Engine& engine, std::int64_t position,
              const Token& token, std::vector<float>& output) {
  std::vector<std::int32_t> row(static_cast<std::size_t>(g.row_capacity()));
  std::int32_t count = 0;
  const Rows rows{row.data(), g.row_capacity(), &count};

  auto step = cache.begin();
  if (!step.ok()) return step.status();
  TokenBatch batch{.first_position = position,
                   .keys = dense_view(token.key.data(), DType::kF32, {1, g.kv_heads(), g.head_dim()}),
                   .values = dense_view(token.value.data(), DType::kF32, {1, g.kv_heads(), g.value_dim()}),
                   .index_keys = dense_view(token.index_key.data(), DType::kF32, {1, g.index_dim()})};
  if (Status s = step->append(user, 0, batch); !s.ok()) return s;
  const auto layer = step->layer(user, 0);  // the staged token is visible to its own query
  if (!layer.ok()) return layer.status();

  const IndexQueries index{
      dense_view(token.index_query.data(), DType::kF32, {1, g.index_heads(), g.index_dim()}), {}, {&position, 1}};
  if (Status s = engine.plan(*layer, index, NanPolicy::kRefuse, rows); !s.ok()) return s;
  const AttendQueries queries{
      dense_view(token.query.data(), DType::kF32, {1, g.query_heads(), g.head_dim()}), {&position, 1}, {}};
  const Tensor out = dense_view(static_cast<void*>(output.data()), DType::kF32, {1, g.query_heads(), g.value_dim()});
  if (Status s = engine.attend(*layer, queries, rows, out, {}); !s.ok()) return s;
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
  std::vector<float> output(static_cast<std::size_t>(g->query_heads() * g->value_dim()));
  for (std::int64_t position = 0; position < 200; ++position) {
    if (Status s = decode(*g, **cache, *user, *engine, position, next_token(*g, random), output); !s.ok()) {
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
