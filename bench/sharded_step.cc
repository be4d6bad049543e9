// One decode step of one QSA layer, shared out among MPI processes of this machine or done by one;
// scripts/bench-sharded launches it.
//   seriatim-sharded-step alone THREADS TOKENS STEPS [DIGEST]        one process, a Cache and an Engine
//   mpiexec -n N seriatim-sharded-step ranks 1 TOKENS STEPS [DIGEST] a ShardedCache over all processes, a thread each
// First every query's row, output and log-sum-exp are digested; where a DIGEST is given, another one ends the program
// before anything is timed. Then rank 0 prints a line of JSON: the digest, and of each step the wall time of the
// slowest rank (ns) and every rank's own time: of the processor, while no call of the transport was running.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "seriatim/attend.hpp"
#include "seriatim/shard_cache.hpp"
#include "seriatim/transport_mpi.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kBatch = 4096;       // tokens of an append; keys and values repeat from batch to batch
constexpr std::int64_t kQueries = 16;       // which take turns
constexpr std::int64_t kChill = 256 << 20;  // bytes of other memory that all ranks together read before each step

std::int64_t now_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Another transport, and the thread's processor time that its calls take.
class TimedTransport final : public Transport {
 public:
  explicit TimedTransport(std::shared_ptr<Transport> with) : inner_(std::move(with)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Status all_gather(std::span<const std::byte> block, std::span<std::byte> blocks) override {
    return timed([&] { return inner_->all_gather(block, blocks); });
  }
  Status send(int to, std::span<const std::byte> bytes) override {
    return timed([&] { return inner_->send(to, bytes); });
  }
  Status receive(int from, std::span<std::byte> bytes) override {
    return timed([&] { return inner_->receive(from, bytes); });
  }
  Status broadcast(int root, std::span<std::byte> bytes) override {
    return timed([&] { return inner_->broadcast(root, bytes); });
  }
  std::int64_t taken_ns() const { return taken_ns_; }

 private:
  template <typename Work>
  Status timed(const Work& work) {
    const std::int64_t started = now_of(CLOCK_THREAD_CPUTIME_ID);
    Status status = work();
    taken_ns_ += now_of(CLOCK_THREAD_CPUTIME_ID) - started;
    traffic_ = inner_->traffic();
    return status;
  }
  std::shared_ptr<Transport> inner_;
  std::int64_t taken_ns_ = 0;
};

// Finite bf16 values of either sign from 0.5 to 2, the same on every rank for the same seed.
std::vector<std::uint16_t> drawn(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
  for (std::uint16_t& value : values) value = static_cast<std::uint16_t>((random() & 0x80ffU) | 0x3f00U);
  return values;
}

ConstTensor view(const std::uint16_t* values, std::initializer_list<std::int64_t> shape) {
  return dense_view(static_cast<const void*>(values), DType::kBf16, shape);
}

// A process of several keeps to one core, where there is one for each.
void bind_to_core(int rank, int size) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < size) return;
  int seen = 0;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || seen++ != rank) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

// A filled layer, and what one step does to a query.
class Contestant {
 public:
  explicit Contestant(const Geometry& g)
      : geometry(g),
        index_queries(drawn(kQueries * 4 * 128, 4)),
        queries(drawn(kQueries * 24 * 256, 5)),
        row(static_cast<std::size_t>(g.row_capacity())),
        output(24 * 256),
        lse(24) {}
  virtual ~Contestant() = default;
  virtual Status step(std::int64_t query) = 0;

  IndexQueries for_plan(std::int64_t query) const {
    return {view(index_queries.data() + query * 4 * 128, {1, 4, 128}), {}, {&position, 1}};
  }
  AttendQueries for_attend(std::int64_t query) const {
    return {view(queries.data() + query * 24 * 256, {1, 24, 256}), {&position, 1}, {}};
  }
  Rows rows() { return {row.data(), geometry.row_capacity(), &width}; }
  Tensor out() { return dense_view(static_cast<void*>(output.data()), DType::kF32, {1, 24, 256}); }
  Tensor lse_out() { return dense_view(static_cast<void*>(lse.data()), DType::kF32, {1, 24}); }

  // Appends every token, in one transaction of a Cache or a ShardedCache.
  template <typename AnyCache>
  Status fill(AnyCache& cache, SequenceId sequence, std::int64_t tokens) {
    auto transaction = cache.begin();
    if (!transaction.ok()) return transaction.status();
    const auto keys = drawn(kBatch * 512, 1);
    const auto values = drawn(kBatch * 512, 2);
    for (std::int64_t first = 0; first < tokens; first += kBatch) {
      const std::int64_t count = std::min(kBatch, tokens - first);
      const auto index_keys = drawn(count * 128, 100 + static_cast<std::uint64_t>(first));
      TokenBatch batch;
      batch.first_position = first;
      batch.keys = view(keys.data(), {count, 2, 256});
      batch.values = view(values.data(), {count, 2, 256});
      batch.index_keys = view(index_keys.data(), {count, 128});
      if (Status s = transaction->append(sequence, 0, batch); !s.ok()) return s;
    }
    position = tokens - 1;
    return transaction->commit();
  }

  const Geometry geometry;
  std::int64_t position = 0;
  const std::vector<std::uint16_t> index_queries;
  const std::vector<std::uint16_t> queries;
  std::vector<std::int32_t> row;
  std::int32_t width = 0;
  std::vector<float> output;
  std::vector<float> lse;
};

class Alone final : public Contestant {
 public:
  Alone(const Geometry& g, int threads)
      : Contestant(g), executor_(make_executor(threads)), engine_(*Engine::host(*executor_)) {}
  Status fill_cache(std::int64_t tokens) {
    CacheOptions options;
    options.capacity_tokens = tokens + kBatch;
    auto cache = Cache::create(geometry, std::move(options));
    if (!cache.ok()) return cache.status();
    cache_ = *std::move(cache);
    const auto sequence = cache_->add();
    if (!sequence.ok()) return sequence.status();
    if (Status s = fill(*cache_, *sequence, tokens); !s.ok()) return s;
    auto snapshot = cache_->snapshot(*sequence);
    if (!snapshot.ok()) return snapshot.status();
    snapshot_ = std::make_unique<Snapshot>(*std::move(snapshot));
    return {};
  }
  Status step(std::int64_t query) override {
    const LayerView layer = snapshot_->layer(0);
    if (Status s = engine_.plan(layer, for_plan(query), NanPolicy::kRefuse, rows()); !s.ok()) return s;
    return engine_.attend(layer, for_attend(query), rows(), out(), lse_out());
  }

 private:
  std::unique_ptr<Executor> executor_;
  Engine engine_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<Snapshot> snapshot_;
};

class Sharded final : public Contestant {
 public:
  Sharded(const Geometry& g, Group& group) : Contestant(g), group_(group), engine_(*Engine::host(), group) {}
  Status fill_cache(std::int64_t tokens) {
    ShardedCacheOptions options;
    options.cache.capacity_tokens = tokens / group_.size() + kBatch;
    auto cache = ShardedCache::create(geometry, std::move(options), group_);
    if (!cache.ok()) return cache.status();
    cache_ = *std::move(cache);
    const auto sequence = cache_->add(0, cache_->even_cuts({0, tokens}));
    if (!sequence.ok()) return sequence.status();
    if (Status s = fill(*cache_, *sequence, tokens); !s.ok()) return s;
    auto snapshot = cache_->snapshot(*sequence);
    if (!snapshot.ok()) return snapshot.status();
    snapshot_ = std::make_unique<ShardedSnapshot>(*std::move(snapshot));
    layer_ = snapshot_->layer(0);
    return {};
  }
  Status step(std::int64_t query) override {
    const ShardedPlanAsk plan{&layer_, for_plan(query)};
    if (Status s = engine_.plan({&plan, 1}, NanPolicy::kRefuse, rows()); !s.ok()) return s;
    const ShardedAttendAsk attend{&layer_, for_attend(query)};
    return engine_.attend({&attend, 1}, rows(), out(), lse_out());
  }

 private:
  Group& group_;
  ShardedEngine engine_;
  std::unique_ptr<ShardedCache> cache_;
  std::unique_ptr<ShardedSnapshot> snapshot_;
  ShardedLayer layer_;
};

void add_to(std::uint64_t& digest, std::span<const std::byte> bytes) {  // FNV-1a
  for (const std::byte byte : bytes) digest = (digest ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ULL;
}

struct Times {
  std::int64_t whole_ns;
  std::int64_t own_ns;
};

struct Measure {
  std::int64_t steps;
  std::string digest;  // that is expected; empty: any
};

// What each step took on every rank, on rank 0. `transport` is null where there are no other ranks.
Status measure(Contestant& contestant, const Measure& ask, const TimedTransport* transport) {
  std::uint64_t digest = 0xcbf29ce484222325ULL;
  for (std::int64_t q = 0; q < kQueries; ++q) {
    if (Status s = contestant.step(q); !s.ok()) return s;
    const auto width = static_cast<std::size_t>(contestant.width);
    add_to(digest, std::as_bytes(std::span(contestant.row).first(width)));
    add_to(digest, std::as_bytes(std::span(contestant.output)));
    add_to(digest, std::as_bytes(std::span(contestant.lse)));
  }
  char said[17];
  std::snprintf(said, sizeof said, "%016llx", static_cast<unsigned long long>(digest));
  if (!ask.digest.empty() && ask.digest != said)
    return Status::error(Code::kCorrupt, "output", "output: other bits than those of the first contestant");

  const int rank = transport == nullptr ? 0 : transport->rank();
  const int size = transport == nullptr ? 1 : transport->size();
  std::vector<unsigned char> cold(static_cast<std::size_t>(kChill / size), 1);
  std::vector<Times> all(static_cast<std::size_t>(size));
  std::string steps;
  unsigned sum = 0;
  for (std::int64_t i = 0; i < ask.steps; ++i) {
    for (std::size_t at = 0; at < cold.size(); at += 64) sum += cold[at];
    MPI_Barrier(MPI_COMM_WORLD);
    const std::int64_t in_calls = transport == nullptr ? 0 : transport->taken_ns();
    const std::int64_t wall = now_of(CLOCK_MONOTONIC);
    const std::int64_t processor = now_of(CLOCK_THREAD_CPUTIME_ID);
    if (Status s = contestant.step(i % kQueries); !s.ok()) return s;
    Times mine{now_of(CLOCK_MONOTONIC) - wall, now_of(CLOCK_THREAD_CPUTIME_ID) - processor};
    if (transport != nullptr) mine.own_ns -= transport->taken_ns() - in_calls;
    MPI_Gather(&mine, 2, MPI_INT64_T, all.data(), 2, MPI_INT64_T, 0, MPI_COMM_WORLD);
    std::int64_t slowest = 0;
    std::string own;
    for (const Times& one : all) {
      slowest = std::max(slowest, one.whole_ns);
      own += (own.empty() ? "" : ", ") + std::to_string(one.own_ns);
    }
    steps += (i == 0 ? "[" : ", [") + std::to_string(slowest) + ", [" + own + "]]";
  }
  if (rank == 0) {
    std::printf("{\"digest\": \"%s\", \"ranks\": %d, \"read\": %u, \"steps\": [%s]}\n", said, size, sum, steps.c_str());
    std::fflush(stdout);
  }
  return {};
}

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

Status run(std::span<char*> arguments) {
  const std::string_view how = arguments.size() > 1 ? arguments[1] : "";
  const bool is_count_right = arguments.size() == 5 || arguments.size() == 6;
  const std::int64_t threads = is_count_right ? number(arguments[2]) : -1;
  const std::int64_t tokens = is_count_right ? number(arguments[3]) : -1;
  const std::int64_t steps = is_count_right ? number(arguments[4]) : -1;
  if ((how != "alone" && how != "ranks") || threads < 1 || threads > 1024 || tokens < 1 || tokens > (1 << 24) ||
      steps < 1 || (how == "ranks" && threads != 1))
    return Status::error(Code::kInvalidArgument, "arguments",
                         "arguments: alone THREADS TOKENS STEPS [DIGEST] or ranks 1 TOKENS STEPS [DIGEST]");
  const Measure ask{steps, arguments.size() == 6 ? arguments[5] : ""};
  GeometryOptions options;
  options.kv_dtype = options.index_dtype = DType::kBf16;
  const auto g = Geometry::admit(options);
  if (!g.ok()) return g.status();
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (how == "alone") {
    if (size != 1) return Status::error(Code::kInvalidArgument, "arguments", "arguments: alone is one process");
    if (threads == 1) bind_to_core(0, 1);
    Alone alone(*g, static_cast<int>(threads));
    if (Status s = alone.fill_cache(tokens); !s.ok()) return s;
    return measure(alone, ask, nullptr);
  }
  bind_to_core(rank, size);
  auto made = mpi_transport(MPI_COMM_WORLD, std::chrono::minutes(1));
  if (!made.ok()) return made.status();
  const auto transport = std::make_shared<TimedTransport>(*std::move(made));
  auto group = Group::meet(transport, Call("sharded step").with("tokens", tokens).with("steps", steps));
  if (!group.ok()) return group.status();
  Sharded sharded(*g, *group);
  if (Status s = sharded.fill_cache(tokens); !s.ok()) return s;
  return measure(sharded, ask, transport.get());
}

}  // namespace
}  // namespace seriatim

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const seriatim::Status status = seriatim::run(std::span(argv, static_cast<std::size_t>(argc)));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
  MPI_Finalize();
  return EXIT_SUCCESS;
}
