// One decode token of each of many sequences: one call with an ask for each, against a loop of calls of one.
#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/bench.hpp"
#include "bench/inputs.hpp"

namespace seriatim::bench {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;  // of layers that differ; further sequences repeat them

std::int64_t layer_bytes(const Geometry& g, std::int64_t tokens) {
  return tokens * (row_bytes(g.kv_dtype(), g.kv_heads() * (g.head_dim() + g.value_dim())) +
                   row_bytes(g.index_dtype(), g.index_dim()));
}

// Sequences of one length, each with a query at its end.
class Users {
 public:
  Users(const Geometry& geometry, std::int64_t sequences, std::int64_t tokens) {
    const std::int64_t differ = std::clamp<std::int64_t>(kMostBytes / layer_bytes(geometry, tokens), 1, sequences);
    for (std::int64_t s = 0; s < differ; ++s)
      layers_.emplace_back(geometry, tokens, 1, 0.0, 700 + static_cast<std::uint64_t>(s));
    for (std::int64_t s = 0; s < sequences; ++s) {
      const Layer& layer = layers_[static_cast<std::size_t>(s % differ)];
      plans.push_back({&layer.view(), layer.index_queries(0, 1)});
      attends.push_back({&layer.view(), layer.attend_queries(0, 1)});
    }
  }
  std::int64_t count() const { return static_cast<std::int64_t>(plans.size()); }

  std::vector<PlanAsk> plans;
  std::vector<AttendAsk> attends;

 private:
  std::deque<Layer> layers_;
};

class BatchStep {
 public:
  BatchStep(Bench& bench, const Geometry& geometry, const Users& users, std::int64_t tokens, int threads)
      : bench_(bench),
        users_(users),
        threads_(threads),
        engine_(make(geometry, users, tokens, bench.executor(threads), bench.kernels())),
        batched_(geometry, users.count()),
        looped_(geometry, users.count()) {
    call(engine_, batched_);
    loop();
    require(batched_.counts == looped_.counts && batched_.positions == looped_.positions &&
                std::memcmp(batched_.values.data(), looped_.values.data(), looped_.values.size() * 4) == 0,
            "the batch by the loop");
    const auto some = static_cast<std::size_t>(std::min<std::int64_t>(users.count(), 2));
    Engine reference = make(geometry, users, tokens, serial_executor(), Kernels::reference());
    Answer due(geometry, static_cast<std::int64_t>(some));
    require(reference.plan(std::span(users.plans).first(some), NanPolicy::kRefuse, due.rows()).ok() &&
                reference.attend(std::span(users.attends).first(some), due.rows(), due.output(), {}).ok(),
            "plan and attend by the reference");
    require(std::equal(due.positions.begin(), due.positions.end(), batched_.positions.begin()) &&
                std::memcmp(batched_.values.data(), due.values.data(), due.values.size() * 4) == 0,
            "the first ones by the reference");
    for (const std::int32_t count : batched_.counts) entries_ += count;
  }

  Contestant batched(bool cold) {
    return {"ours",
            [this] {
              call(engine_, batched_);
              consume(batched_.values.data());
            },
            prepare(cold)};
  }
  Contestant looped(bool cold) {
    return {"a loop of single calls",
            [this] {
              loop();
              consume(looped_.values.data());
            },
            prepare(cold)};
  }

  Work work(bool cold, std::int64_t tokens) const {
    const Geometry& g = *users_.plans.front().layer->geometry;
    const bool scored = g.groups(tokens) > g.budget_groups();
    const auto groups = static_cast<double>(scored ? users_.count() * g.groups(tokens) : 0);
    const auto dims = static_cast<double>(g.head_dim() + g.value_dim());
    const auto index_dim = static_cast<double>(g.index_dim());
    Work work;
    work.fmas = groups * index_dim * static_cast<double>(g.index_heads()) +
                static_cast<double>(entries_ * g.query_heads()) * dims;
    if (cold) {
      work.cold_bytes = groups * index_dim * static_cast<double>(dtype_bytes(g.index_dtype())) +
                        static_cast<double>(row_bytes(g.kv_dtype(), entries_ * g.kv_heads())) * dims;
    }
    return work;
  }

 private:
  static Engine make(const Geometry& geometry, const Users& users, std::int64_t tokens, Executor& executor,
                     Kernels kernels) {
    auto engine = Engine::host(executor, kernels);
    require(engine.ok() && engine->reserve(geometry, {tokens, users.count(), users.count()}).ok(), "make an engine");
    return *std::move(engine);
  }

  std::function<void()> prepare(bool cold) {
    if (!cold) return {};
    return [this] { bench_.chill(threads_); };
  }

  void call(Engine& engine, Answer& answer) const {
    require(engine.plan(users_.plans, NanPolicy::kRefuse, answer.rows()).ok(), "plan");
    require(engine.attend(users_.attends, answer.rows(), answer.output(), {}).ok(), "attend");
  }

  void loop() {
    const Rows all = looped_.rows();
    for (std::int64_t s = 0; s < users_.count(); ++s) {
      const auto at = static_cast<std::size_t>(s);
      const Rows rows{all.positions + s * all.stride, all.stride, all.counts + s};
      Tensor output = looped_.output();
      output.data = output.at(s);
      output.shape[0] = 1;
      require(engine_.plan({&users_.plans[at], 1}, NanPolicy::kRefuse, rows).ok(), "plan");
      require(engine_.attend({&users_.attends[at], 1}, rows, output, {}).ok(), "attend");
    }
  }

  Bench& bench_;
  const Users& users_;
  const int threads_;
  Engine engine_;
  Answer batched_;
  Answer looped_;
  std::int64_t entries_ = 0;
};

}  // namespace

void bench_batch(Bench& bench) {
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    const Geometry geometry = real_geometry(dtype);
    for (const std::int64_t tokens : {512, 8'192, 65'536}) {
      for (const std::int64_t sequences : {1, 8, 32, 128}) {
        const std::string name = std::to_string(sequences) + " sequences of " + std::to_string(tokens) + " tokens, " +
                                 std::string(dtype_name(dtype));
        if (!bench.wants("batch: " + name) || (bench.quick() && sequences * tokens > 65'536)) continue;
        const Users users(geometry, sequences, tokens);
        for (const int threads : {1, 2}) {
          BatchStep step(bench, geometry, users, tokens, threads);
          const bool aimed = threads == 2 && sequences >= 8;
          for (const bool cold : {true, false}) {
            bench.add("batch: " + name + (cold ? ", cold" : ", warm"), step.batched(cold), step.work(cold, tokens),
                      threads, {step.looped(cold)}, {0.0, aimed ? 1.25 : 0.0, aimed ? ">= 1.25 of the loop" : ""});
          }
        }
      }
    }
  }
}

}  // namespace seriatim::bench
