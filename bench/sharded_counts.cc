// What one decode step of one layer sends, counted: the library's own code over ranks that are threads of this process.
//   seriatim-sharded-counts [RANKS...]
// Prints a line of JSON per number of ranks; tools/sharding_model.py fills in latency and bandwidth.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "seriatim/attend.hpp"
#include "seriatim/shard_cache.hpp"
#include "shard/spread.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kTokensPerRank = 256;  // counts depend on the row, which is 2,048 entries for any such length
constexpr std::int64_t kLeastTokens = 4096;

struct Count {
  std::int64_t plan_bytes = 0;  // sent by the rank
  std::int64_t attend_bytes = 0;
  std::int64_t messages = 0;
  std::int64_t splits = 0;  // that the rank reduces
};

// Finite bf16 values of about 1, the same on every rank for the same seed.
std::vector<std::uint16_t> drawn(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& value : values) {
    const std::uint64_t bits = random();
    value = static_cast<std::uint16_t>((bits & 0x807fU) | 0x3f00U);
  }
  return values;
}

ConstTensor view(const std::vector<std::uint16_t>& values, std::initializer_list<std::int64_t> shape) {
  return dense_view(static_cast<const void*>(values.data()), DType::kBf16, shape);
}

// Keys and values repeat, what is selected does not.
struct Tokens {
  explicit Tokens(std::int64_t tokens)
      : count(tokens),
        keys(drawn(kTokensPerRank * 512, 1)),
        values(drawn(kTokensPerRank * 512, 2)),
        index(drawn(static_cast<std::size_t>(tokens) * 128, 3)) {}
  std::int64_t count;
  std::vector<std::uint16_t> keys;
  std::vector<std::uint16_t> values;
  std::vector<std::uint16_t> index;
};

Status run_rank(const Geometry& g, const std::shared_ptr<Transport>& transport, const Tokens& all, Finish finish,
                Count& count) {
  const std::int64_t tokens = all.count;
  auto group = Group::meet(transport, Call("counts"));
  if (!group.ok()) return group.status();
  ShardedCacheOptions options;
  options.cache.capacity_tokens = tokens + 1024;
  auto cache = ShardedCache::create(g, std::move(options), *group);
  if (!cache.ok()) return cache.status();
  const auto sequence = (*cache)->add(0, (*cache)->even_cuts({0, tokens}));
  if (!sequence.ok()) return sequence.status();
  auto transaction = (*cache)->begin();
  if (!transaction.ok()) return transaction.status();
  for (std::int64_t first = 0; first < tokens; first += kTokensPerRank) {
    TokenBatch batch;
    batch.first_position = first;
    batch.keys = view(all.keys, {kTokensPerRank, 2, 256});
    batch.values = view(all.values, {kTokensPerRank, 2, 256});
    batch.index_keys =
        dense_view(static_cast<const void*>(all.index.data() + first * 128), DType::kBf16, {kTokensPerRank, 128});
    if (Status s = transaction->append(*sequence, 0, batch); !s.ok()) return s;
  }
  if (Status s = transaction->commit(); !s.ok()) return s;
  const auto snapshot = (*cache)->snapshot(*sequence);
  if (!snapshot.ok()) return snapshot.status();
  const ShardedLayer layer = snapshot->layer(0);
  auto engine = Engine::host();
  if (!engine.ok()) return engine.status();
  ShardedEngine sharded(*std::move(engine), *group);
  const auto queries = drawn(24 * 256, 71);
  const auto index_queries = drawn(4 * 128, 72);
  const std::int64_t position = tokens - 1;
  std::vector<std::int32_t> row(static_cast<std::size_t>(g.row_capacity()));
  std::int32_t width = 0;
  const Rows rows{row.data(), g.row_capacity(), &width};
  std::vector<float> output(24 * 256);
  const Traffic before = transport->traffic();
  const ShardedPlanAsk plan{&layer, {view(index_queries, {1, 4, 128}), {}, {&position, 1}}};
  if (Status s = sharded.plan({&plan, 1}, NanPolicy::kRefuse, rows); !s.ok()) return s;
  const Traffic planned = transport->traffic();
  const ShardedAttendAsk attend{&layer, {view(queries, {1, 24, 256}), {&position, 1}, {}}};
  const Tensor to = dense_view(static_cast<void*>(output.data()), DType::kF32, {1, 24, 256});
  if (Status s = sharded.attend({&attend, 1}, rows, to, {}, {finish, -1}); !s.ok()) return s;
  const Traffic after = transport->traffic();
  count = {planned.bytes - before.bytes, after.bytes - planned.bytes, after.messages - before.messages,
           spread_row(rows.row(0), layer.borders).splits_of(group->rank())};
  return {};
}

int run(int ranks, Finish finish) {
  GeometryOptions options;
  options.kv_dtype = options.index_dtype = DType::kBf16;
  const Geometry g = *Geometry::admit(options);
  const Tokens tokens(std::max(kLeastTokens, ranks * kTokensPerRank));
  const auto transports = ThreadTransports::make(ranks, std::chrono::minutes(5));
  if (!transports.ok()) return EXIT_FAILURE;
  std::vector<Count> counts(static_cast<std::size_t>(ranks));
  std::vector<Status> answers(counts.size());
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    threads.emplace_back(
        [&, k] { answers[k] = run_rank(g, transports->at(static_cast<int>(k)), tokens, finish, counts[k]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : answers) {
    if (status.ok()) continue;
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return EXIT_FAILURE;
  }
  Count most;
  std::int64_t bytes = 0;
  std::int64_t messages = 0;
  std::int64_t reducing = 0;
  for (const Count& one : counts) {
    most.plan_bytes = std::max(most.plan_bytes, one.plan_bytes);
    most.attend_bytes = std::max(most.attend_bytes, one.attend_bytes);
    most.messages = std::max(most.messages, one.messages);
    most.splits = std::max(most.splits, one.splits);
    bytes += one.plan_bytes + one.attend_bytes;
    messages += one.messages;
    reducing += one.splits > 0 ? 1 : 0;
  }
  std::printf(
      "{\"ranks\": %d, \"finish\": \"%s\", \"tokens\": %lld, \"bytes\": %lld, \"messages\": %lld, \"most_plan_bytes\": "
      "%lld, \"most_attend_bytes\": %lld, \"most_messages\": %lld, \"most_splits\": %lld, \"reducing\": %lld}\n",
      ranks, finish == Finish::kChain ? "chain" : "gather", static_cast<long long>(tokens.count),
      static_cast<long long>(bytes), static_cast<long long>(messages), static_cast<long long>(most.plan_bytes),
      static_cast<long long>(most.attend_bytes), static_cast<long long>(most.messages),
      static_cast<long long>(most.splits), static_cast<long long>(reducing));
  std::fflush(stdout);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace seriatim

int main(int argc, char** argv) {
  std::vector<int> ranks;
  for (int i = 1; i < argc; ++i) ranks.push_back(std::atoi(argv[i]));
  if (ranks.empty()) ranks = {1, 2, 4, 8, 16, 64, 256};
  for (const int one : ranks) {
    for (const auto finish : {seriatim::Finish::kGather, seriatim::Finish::kChain}) {
      if (one < 1 || seriatim::run(one, finish) != EXIT_SUCCESS) return EXIT_FAILURE;
    }
  }
  return EXIT_SUCCESS;
}
