// One layer's decode loop with its context spread over MPI processes: mpirun -n 4 decode
//
// Every rank runs the model, so every rank has each token's keys, values and queries; the cache keeps the rank's own.
// The first rank also decodes alone, to show that the outputs are the same bits.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "seriatim/seriatim.hpp"
#include "seriatim/transport_mpi.hpp"

using namespace seriatim;

// What the model hands to the layer for some tokens; random here, and equal on all ranks.
struct Tokens {
  Tokens(const Geometry& geometry, std::int64_t first, std::int64_t count)
      : g(geometry), positions(std::size_t(count)) {
    std::iota(positions.begin(), positions.end(), first);
    std::mt19937 random(static_cast<unsigned>(first));
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& part, std::int64_t of_a_token) {
      part.resize(static_cast<std::size_t>(count * of_a_token));
      for (float& v : part) v = normal(random);
    };
    fill(keys, g.kv_heads() * g.head_dim());
    fill(values, g.kv_heads() * g.value_dim());
    fill(index_keys, g.index_dim());
    fill(queries, g.query_heads() * g.head_dim());
    fill(index_queries, g.index_heads() * g.index_dim());
  }

  std::int64_t count() const { return static_cast<std::int64_t>(positions.size()); }
  TokenBatch batch() const {
    return {.first_position = positions[0],
            .keys = dense_view(keys.data(), DType::kF32, {count(), g.kv_heads(), g.head_dim()}),
            .values = dense_view(values.data(), DType::kF32, {count(), g.kv_heads(), g.value_dim()}),
            .index_keys = dense_view(index_keys.data(), DType::kF32, {count(), g.index_dim()})};
  }
  IndexQueries for_plan() const {
    return {dense_view(index_queries.data(), DType::kF32, {count(), g.index_heads(), g.index_dim()}), {}, positions};
  }
  AttendQueries for_attend() const {
    return {dense_view(queries.data(), DType::kF32, {count(), g.query_heads(), g.head_dim()}), positions, {}};
  }

  const Geometry& g;
  std::vector<std::int64_t> positions;
  std::vector<float> keys, values, index_keys, queries, index_queries;
};

// Memory for the rows and outputs of some tokens.
struct Answers {
  Answers(const Geometry& g, std::int64_t count)
      : positions(static_cast<std::size_t>(count * g.row_capacity())),
        counts(static_cast<std::size_t>(count)),
        output(static_cast<std::size_t>(count * g.query_heads() * g.value_dim())),
        rows{positions.data(), g.row_capacity(), counts.data()},
        out(dense_view(static_cast<void*>(output.data()), DType::kF32, {count, g.query_heads(), g.value_dim()})) {}

  std::vector<std::int32_t> positions, counts;
  std::vector<float> output;
  Rows rows;
  Tensor out;
};

// All of the tokens on all ranks, or none of them on any.
Status step(ShardedEngine& engine, ShardedCache& cache, SequenceId user, const Tokens& tokens, Answers& answers) {
  auto staged = cache.begin();
  if (!staged.ok()) return staged.status();
  if (Status s = staged->append(user, 0, tokens.batch()); !s.ok()) return s;
  const auto layer = staged->layer(user, 0);
  if (!layer.ok()) return layer.status();
  const ShardedPlanAsk plan{&*layer, tokens.for_plan()};
  if (Status s = engine.plan({&plan, 1}, NanPolicy::kRefuse, answers.rows); !s.ok()) return s;
  const ShardedAttendAsk attend{&*layer, tokens.for_attend()};
  if (Status s = engine.attend({&attend, 1}, answers.rows, answers.out, {}); !s.ok()) return s;
  return staged->commit();
}

Status step_alone(Engine& engine, Cache& cache, SequenceId user, const Tokens& tokens, Answers& answers) {
  auto staged = cache.begin();
  if (!staged.ok()) return staged.status();
  if (Status s = staged->append(user, 0, tokens.batch()); !s.ok()) return s;
  const auto layer = staged->layer(user, 0);
  if (!layer.ok()) return layer.status();
  if (Status s = engine.plan(*layer, tokens.for_plan(), NanPolicy::kRefuse, answers.rows); !s.ok()) return s;
  if (Status s = engine.attend(*layer, tokens.for_attend(), answers.rows, answers.out, {}); !s.ok()) return s;
  return staged->commit();
}

Status decode() {
  auto transport = mpi_transport(MPI_COMM_WORLD, std::chrono::seconds(30));
  if (!transport.ok()) return transport.status();
  auto group = Group::meet(*transport, Call("decode"));  // all ranks are there, of one version
  if (!group.ok()) return group.status();

  GeometryOptions options;  // QSA's group size and budget rules, small here so that the example is quick
  options.budget_tokens = 64;
  options.query_heads = 4;
  options.kv_heads = 2;
  options.head_dim = 32;
  const auto g = Geometry::admit(options);
  if (!g.ok()) return g.status();
  ShardedCacheOptions cache_options;
  cache_options.cache.capacity_tokens = 4096;
  auto cache = ShardedCache::create(*g, std::move(cache_options), *group);
  if (!cache.ok()) return cache.status();
  ShardedEngine engine(*Engine::host(), *group);

  CacheOptions alone_options;
  alone_options.capacity_tokens = 4096;
  const auto alone = Cache::create(*g, std::move(alone_options));
  if (!alone.ok()) return alone.status();
  Engine alone_engine = *Engine::host();

  constexpr std::int64_t kPrompt = 1000;
  const auto user = (*cache)->add(0, (*cache)->even_cuts({0, kPrompt}));  // the prompt in equal parts
  if (!user.ok()) return user.status();
  const auto alone_user = (*alone)->add();
  if (!alone_user.ok()) return alone_user.status();
  std::int64_t compared = 0;
  for (std::int64_t at = 0; at < kPrompt + 50;) {
    const Tokens tokens(*g, at, at == 0 ? kPrompt : 1);
    Answers answers(*g, tokens.count());
    if (Status s = step(engine, **cache, *user, tokens, answers); !s.ok()) return s;
    if (group->rank() == 0) {
      Answers due(*g, tokens.count());
      if (Status s = step_alone(alone_engine, **alone, *alone_user, tokens, due); !s.ok()) return s;
      const bool same = answers.counts == due.counts && answers.positions == due.positions &&
                        std::memcmp(answers.output.data(), due.output.data(), due.output.size() * sizeof(float)) == 0;
      if (!same) return Status::error(Code::kCorrupt, "output", "output: other bits than those of one process");
      compared += tokens.count();
    }
    at += tokens.count();
  }
  const auto held = (*cache)->snapshot(*user);
  if (!held.ok()) return held.status();
  if (group->rank() == 0) {
    std::printf("%d ranks, %lld tokens: the bits of one process\n", group->size(), static_cast<long long>(compared));
    for (int rank = 0; rank < group->size(); ++rank)
      std::printf("rank %d holds positions %lld to %lld\n", rank,
                  static_cast<long long>(held->borders()[std::size_t(rank)]),
                  static_cast<long long>(held->borders()[std::size_t(rank) + 1] - 1));
  }
  return group->agree(Call("end"));  // nobody leaves before all are done
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const Status status = decode();
  if (!status.ok()) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(status.message().size()), status.message().data());
    MPI_Abort(MPI_COMM_WORLD, 1);  // a lost rank would never come to MPI_Finalize
  }
  MPI_Finalize();
}
