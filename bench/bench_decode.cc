
#include <algorithm>
#include <numeric>

#include "base/format.hpp"
#include "bench/bench.hpp"
#include "bench/decode_step.hpp"
#include "bench/inputs.hpp"

namespace seriatim::bench {
DecodeStep::DecodeStep(Bench& bench, Layer& layer, int threads)
    : bench_(bench),
      layer_(layer),
      threads_(threads),
      engine_(make_engine(layer, bench.executor(threads), bench.kernels())),
      answer_(layer.geometry(), 1),
      planned_(layer.geometry(), layer.queries()) {
  require(engine_.plan(layer.view(), layer.index_queries(0, layer.queries()), NanPolicy::kRefuse, planned_.rows()).ok(),
          "plan");
  check();
}

void DecodeStep::check() {
  Engine reference = make_engine(layer_, serial_executor(), Kernels::reference());
  Answer expected(layer_.geometry(), 1);
  require(reference.plan(layer_.view(), layer_.index_queries(0, 1), NanPolicy::kRefuse, expected.rows()).ok(),
          "plan by the reference");
  require(reference.attend(layer_.view(), layer_.attend_queries(0, 1), expected.rows(), expected.output(), {}).ok(),
          "attend by the reference");
  plan_next();
  require(answer_.counts == expected.counts && answer_.positions == expected.positions, "rows by the reference");
  attend_next();
  require(std::memcmp(answer_.values.data(), expected.values.data(), expected.values.size() * 4) == 0,
          "outputs by the reference");
  turn_ = 0;
}

void DecodeStep::plan_next() {
  require(engine_.plan(layer_.view(), layer_.index_queries(turn_, 1), NanPolicy::kRefuse, answer_.rows()).ok(), "plan");
}

void DecodeStep::attend_next() {
  require(engine_.attend(layer_.view(), layer_.attend_queries(turn_, 1), answer_.rows(), answer_.output(), {}).ok(),
          "attend");
  consume(answer_.values.data());
}

Contestant DecodeStep::whole() {
  return {"ours", [this] { plan_next(), attend_next(); },
          [this] {
            turn_ = (turn_ + 1) % layer_.queries();
            bench_.chill(threads_);
          }};
}

Contestant DecodeStep::plan_only() {
  return {"ours", [this] { plan_next(); },
          [this] {
            turn_ = (turn_ + 1) % layer_.queries();
            bench_.chill(threads_);
          }};
}

Contestant DecodeStep::attend_only(bool is_cold) {
  const auto take = [this] {
    std::copy_n(planned_.positions.begin() + turn_ * planned_.capacity, planned_.capacity, answer_.positions.begin());
    answer_.counts[0] = planned_.counts[static_cast<std::size_t>(turn_)];
  };
  take();
  Contestant c{"ours", [this] { attend_next(); }, {}};
  if (is_cold) {
    c.prepare = [this, take] {
      turn_ = (turn_ + 1) % layer_.queries();
      take();
      bench_.chill(threads_);
    };
  }
  return c;
}

double DecodeStep::score_bytes() const {
  const Geometry& g = layer_.geometry();
  return static_cast<double>(row_bytes(g.index_dtype(), g.groups(layer_.tokens()) * g.index_dim()));
}

double DecodeStep::score_fmas() const {
  const Geometry& g = layer_.geometry();
  return static_cast<double>(g.groups(layer_.tokens()) * g.index_dim() * g.index_heads());
}

double DecodeStep::attend_bytes() const {
  const Geometry& g = layer_.geometry();
  const std::int64_t dims = g.values_alias_keys() ? g.head_dim() : g.head_dim() + g.value_dim();
  return static_cast<double>(row_bytes(g.kv_dtype(), planned_.counts[0] * g.kv_heads() * dims));
}

double DecodeStep::attend_fmas() const {
  const Geometry& g = layer_.geometry();
  return static_cast<double>(planned_.counts[0] * g.query_heads() * (g.head_dim() + g.value_dim()));
}

Work DecodeStep::attend_work() const {
  const Geometry& g = layer_.geometry();
  const std::int64_t dims = g.values_alias_keys() ? g.head_dim() : g.head_dim() + g.value_dim();
  const std::int64_t token_bytes = g.kv_heads() * row_bytes(g.kv_dtype(), dims);
  return {attend_bytes(), attend_fmas(), 0.0, g.group_tokens() * token_bytes, layer_.tokens() * token_bytes};
}

namespace {

// Dense attention over every key, by the same kernels and without a selection.
class DenseStep {
 public:
  DenseStep(Bench& bench, Layer& layer, int threads)
      : bench_(bench),
        layer_(layer),
        threads_(threads),
        engine_(make_engine(layer, bench.executor(threads), bench.kernels())),
        answer_(layer.geometry(), 1, layer.tokens()) {
    std::iota(answer_.positions.begin(), answer_.positions.end(), 0);
    answer_.counts[0] = static_cast<std::int32_t>(layer.tokens());
  }
  Contestant contestant() {
    return {"dense over all keys, same kernels",
            [this] {
              require(
                  engine_.attend(layer_.view(), layer_.attend_queries(0, 1), answer_.rows(), answer_.output(), {}).ok(),
                  "attend densely");
              consume(answer_.values.data());
            },
            [this] { bench_.chill(threads_); }};
  }

 private:
  Bench& bench_;
  Layer& layer_;
  const int threads_;
  Engine engine_;
  Answer answer_;
};

// The least a selection must read, as a part of the step's limit.
double scan_ns(Bench& bench, std::int64_t groups) {
  Random random(41);
  const auto scores = normal_scores(random, groups);
  const auto run = [&] {
    const float best = max_scan(bench.kernels(), scores.data(), groups);
    consume(&best);
  };
  return interleave({{"scan", run, {}}}, {0.1, 200})[0].median_ns;
}

double at_least(const Limits& limits, double bytes, double fmas) {
  return std::max(bytes / limits.dram_bytes_per_ns, fmas / limits.fma_per_ns);
}

// The same of a cold row, whose bytes are scattered.
double row_at_least(Bench& bench, const Limits& limits, const Work& work, int threads) {
  std::unique_ptr<ScatteredPass> pass;
  const double runs_ns = interleave({bench.scattered(work, threads, pass)}, {0.5, 100})[0].median_ns;
  return std::max(work.cold_bytes * runs_ns / pass->bytes(), work.fmas / limits.fma_per_ns);
}

}  // namespace

void bench_decode(Bench& bench) {
  if (!bench.wants("decode")) return;
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    if (bench.quick() && dtype == DType::kF32) continue;
    constexpr std::int64_t kTokens = 262144;
    Layer layer(real_geometry(dtype), kTokens, 32, 0.0, 42);
    layer.stand_at(kTokens - 1);
    double one_thread_ns = 0.0;
    double one_thread_limit_ns = 0.0;
    for (const int threads : {1, 2}) {
      DecodeStep step(bench, layer, threads);
      DenseStep dense(bench, layer, threads);
      const Limits limits = measure_limits(bench.kernels(), bench.executor(threads), {0.3, 40});
      const double limit = at_least(limits, step.score_bytes(), step.score_fmas()) +
                           scan_ns(bench, layer.geometry().groups(kTokens)) +
                           row_at_least(bench, limits, step.attend_work(), threads);
      const Measure& m = bench.add(
          formatted("decode step at 262,144, {}, {} thread{}", dtype_name(dtype), threads, threads > 1 ? "s" : ""),
          step.whole(), {0.0, 0.0, limit}, threads, {dense.contestant()}, {1.4, 15.0, "<= 1.4x limits, >= 15x dense"});
      if (threads == 1) one_thread_ns = m.ours.median_ns, one_thread_limit_ns = limit;
      if (threads == 1) continue;
      Measure speedup;
      speedup.name = formatted("decode, {}, 2 threads against 1", dtype_name(dtype));
      speedup.ours = m.ours;
      speedup.limit_ns = one_thread_ns / 2.0;
      speedup.limit = "half the time of one thread";
      speedup.target = ">= 1.8x faster than 1";
      speedup.met = one_thread_ns / m.ours.median_ns >= 1.8;
      speedup.limits_ratio = one_thread_limit_ns / limit;
      bench.note(std::move(speedup));
    }
  }
}

}  // namespace seriatim::bench
