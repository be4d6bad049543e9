#include "agreement/sharded_side.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "agreement/kernel_access.hpp"
#include "base/format.hpp"
#include "seriatim/shard_cache.hpp"

namespace seriatim::agreement {
namespace {

ConstTensor rows_or_nothing(const HostTensor& tensor, std::int64_t first, std::int64_t count) {
  return tensor.elements() > 0 ? tensor.rows(first, count) : ConstTensor{};
}

// One rank.
class Rank {
 public:
  Rank(const Problem& problem, const Way& way)
      : p_(problem),
        g_(problem.geometry),
        way_(way),
        rows(static_cast<std::size_t>(p_.count() * g_.row_capacity())),
        counts(static_cast<std::size_t>(p_.count()), -1),
        output(p_.output_dtype, {p_.count(), g_.query_heads(), g_.value_dim()}),
        lse(DType::kF32, {p_.count(), g_.query_heads()}),
        scores(static_cast<std::size_t>(p_.count())) {}

  Status run(const std::shared_ptr<Transport>& transport) {
    auto group = Group::meet(transport, Call("agreement"));
    if (!group.ok()) return group.status();
    ShardedCacheOptions options;
    options.cache.layers[0].index_norm_weight = p_.norm_weight;
    options.cache.capacity_tokens = p_.tokens() + 64 * 16 * g_.group_tokens();
    if (way_.chunk != 0) options.cache.page_tokens = 16 * g_.group_tokens();
    auto cache = ShardedCache::create(g_, std::move(options), *group);
    if (!cache.ok()) return cache.status();
    const auto sequence = (*cache)->add(p_.anchor, cuts());
    if (!sequence.ok()) return sequence.status();
    auto engine = Engine::host(serial_executor(), way_.kernels);
    if (!engine.ok()) return engine.status();
    ShardedEngine sharded(*std::move(engine), *group);
    const std::int64_t chunk = way_.chunk == 0 ? p_.tokens() : way_.chunk;
    for (std::int64_t first = 0; first < p_.tokens(); first += chunk) {
      if (Status s = step(**cache, *sequence, sharded, first, std::min(chunk, p_.tokens() - first)); !s.ok()) return s;
    }
    return collect(**cache, *sequence);
  }

 private:
  // Shorter ranges first; the first may be empty.
  std::vector<std::int64_t> cuts() const {
    std::vector<std::int64_t> cuts;
    const std::int64_t n = way_.ranks;
    for (std::int64_t k = 1; k < n; ++k)
      cuts.push_back(p_.anchor + g_.groups(p_.tokens()) * k * k / (n * n) * g_.group_tokens());
    return cuts;
  }

  Status step(ShardedCache& cache, SequenceId sequence, ShardedEngine& engine, std::int64_t first,
              std::int64_t tokens) {
    auto transaction = cache.begin();
    if (!transaction.ok()) return transaction.status();
    TokenBatch batch;
    batch.first_position = p_.anchor + first;
    batch.keys = p_.keys.rows(first, tokens);
    if (!g_.values_alias_keys()) batch.values = p_.values.rows(first, tokens);
    batch.index_keys = p_.index_keys.rows(first, tokens);
    if (!p_.coordinates.empty()) batch.coordinates = p_.coordinates.data() + first;
    if (Status s = transaction->append(sequence, 0, batch); !s.ok()) return s;
    const std::int64_t begin = next_;
    while (next_ < p_.count() && p_.positions[static_cast<std::size_t>(next_)] < p_.anchor + first + tokens) ++next_;
    if (next_ > begin) {
      const auto layer = transaction->layer(sequence, 0);
      if (!layer.ok()) return layer.status();
      if (Status s = ask(*layer, engine, begin, next_ - begin); !s.ok()) return s;
    }
    return transaction->commit();
  }

  Status ask(const ShardedLayer& layer, ShardedEngine& engine, std::int64_t first, std::int64_t count) {
    const std::span<const std::int64_t> positions =
        std::span(p_.positions).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    const Rows to{rows.data() + first * g_.row_capacity(), g_.row_capacity(), counts.data() + first};
    const ConstTensor weights = rows_or_nothing(p_.head_weights, first, count);
    const ShardedPlanAsk plan{&layer, {p_.index_queries.rows(first, count), weights, positions}};
    if (Status s = engine.plan({&plan, 1}, NanPolicy::kRefuse, to); !s.ok()) return s;
    const ShardedAttendAsk attend{&layer, {p_.queries.rows(first, count), positions, p_.sinks}};
    const Finish finish = way_.ranks % 2 == 0 ? Finish::kGather : Finish::kChain;
    if (Status s = engine.attend({&attend, 1}, to, output.writable_rows(first, count), lse.writable_rows(first, count),
                                 {finish, -1});
        !s.ok())
      return s;
    const VisibleRun local = layer.local.run;
    for (std::int64_t q = first; q < first + count; ++q) {
      const std::int64_t seen = std::min(p_.positions[static_cast<std::size_t>(q)] + 1 - local.anchor, local.tokens);
      if (seen < g_.group_tokens()) continue;
      const std::int64_t position = local.anchor + seen - 1;
      scores[static_cast<std::size_t>(q)] = score_all(way_.kernels, layer.local, p_.index_queries.rows(q, 1),
                                                      rows_or_nothing(p_.head_weights, q, 1), {&position, 1})
                                                .front();
    }
    return {};
  }

  Status collect(ShardedCache& cache, SequenceId sequence) {
    const auto snapshot = cache.snapshot(sequence);
    if (!snapshot.ok()) return snapshot.status();
    const PooledKeys keys = snapshot->layer(0).local.pooled;
    const std::int64_t element = dtype_bytes(keys.dtype);
    for (std::int64_t group = 0; group < keys.groups; ++group) {
      for (std::int64_t i = 0; i < keys.dim; ++i) {
        const std::byte* at = keys.group(group) + i * PooledKeys::kPanelGroups * element;
        pooled.insert(pooled.end(), at, at + element);
      }
    }
    return {};
  }

  const Problem& p_;
  const Geometry& g_;
  const Way& way_;
  std::int64_t next_ = 0;  // the first query that was not asked yet

 public:
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> counts;
  HostTensor output;
  HostTensor lse;
  std::vector<std::vector<float>> scores;  // of the rank's own groups
  std::vector<std::byte> pooled;           // likewise

  bool same_results(const Rank& other) const {
    return rows == other.rows && counts == other.counts && std::ranges::equal(output.bytes(), other.output.bytes()) &&
           std::ranges::equal(lse.bytes(), other.lse.bytes());
  }
};

}  // namespace

Result<Answer> sharded_answer(const Problem& problem, const Way& way) {
  const auto transports = ThreadTransports::make(way.ranks, std::chrono::seconds(10));
  if (!transports.ok()) return transports.status();
  std::vector<Rank> ranks(static_cast<std::size_t>(way.ranks), Rank(problem, way));
  std::vector<Status> answers(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < ranks.size(); ++k)
    threads.emplace_back([&, k] { answers[k] = ranks[k].run(transports->at(static_cast<int>(k))); });
  for (std::thread& thread : threads) thread.join();
  // Where a rank fails alone the others lose it.
  for (const Status& status : answers) {
    if (!status.ok() && status.code() != Code::kPeerLost) return status;
  }
  Answer all;
  const auto add = [&](Part part, std::span<const std::byte> bytes, std::int64_t element_bytes) {
    auto& to = all.parts[static_cast<std::size_t>(part)];
    to.insert(to.end(), bytes.begin(), bytes.end());
    all.values[static_cast<std::size_t>(part)] += static_cast<std::int64_t>(bytes.size()) / element_bytes;
  };
  for (std::size_t k = 0; k < ranks.size(); ++k) {
    if (!answers[k].ok()) return answers[k];
    if (!ranks[k].same_results(ranks.front()))
      return Status::error(Code::kCorrupt, "rank", formatted("rank: rank {} has another answer than rank 0", k));
    add(Part::kPooled, ranks[k].pooled, dtype_bytes(problem.geometry.index_dtype()));
  }
  for (std::size_t q = 0; q < problem.positions.size(); ++q) {
    for (const Rank& rank : ranks) add(Part::kScores, std::as_bytes(std::span(rank.scores[q])), 4);
  }
  const Rank& one = ranks.front();
  add(Part::kRows, std::as_bytes(std::span(one.rows)), 4);
  add(Part::kRows, std::as_bytes(std::span(one.counts)), 4);
  add(Part::kOutput, one.output.bytes(), dtype_bytes(problem.output_dtype));
  add(Part::kLse, one.lse.bytes(), 4);
  for (std::size_t q = 0; q < problem.positions.size(); ++q)
    all.sparse_rows += one.counts[q] < problem.positions[q] - problem.anchor + 1 ? 1 : 0;
  return all;
}

}  // namespace seriatim::agreement
