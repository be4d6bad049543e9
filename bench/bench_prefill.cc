
#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "bench/bench.hpp"
#include "bench/inputs.hpp"

namespace seriatim::bench {
namespace {

constexpr std::int64_t kBlock = 128;   // queries that plan and attend take at once, as an engine's prefill does
constexpr double kCorrelation = 0.98;  // of neighbouring index queries

// The blocks of a prefill that are run: all of them, or some spread evenly over the context, each with what it sees.
class Prefill {
 public:
  Prefill(Bench& bench, Layer& layer, int threads, std::int64_t blocks)
      : layer_(layer),
        engine_(make_engine(layer, bench.executor(threads), bench.kernels())),
        answer_(layer.geometry(), kBlock) {
    const std::int64_t all = layer.queries() / kBlock;
    const std::int64_t some = std::min(blocks, all);
    for (std::int64_t b = 0; b < some; ++b) blocks_.push_back((2 * b + 1) * all / (2 * some));
  }

  void run() {
    for (const std::int64_t block : blocks_) run_block(block);
  }

  // The last block's last queries against the reference.
  void check() {
    constexpr std::int64_t kChecked = 4;
    const std::int64_t first = (blocks_.back() + 1) * kBlock - kChecked;
    Engine reference = make_engine(layer_, serial_executor(), Kernels::reference());
    Answer expected(layer_.geometry(), kChecked);
    require(
        reference.plan(layer_.view(), layer_.index_queries(first, kChecked), NanPolicy::kRefuse, expected.rows()).ok(),
        "plan by the reference");
    require(
        reference.attend(layer_.view(), layer_.attend_queries(first, kChecked), expected.rows(), expected.output(), {})
            .ok(),
        "attend by the reference");
    run_block(blocks_.back());
    const std::size_t values = expected.values.size();
    require(
        std::memcmp(answer_.values.data() + answer_.values.size() - values, expected.values.data(), values * 4) == 0,
        "prefill by the reference");
  }

  // What the run must compute: scores of every complete group where rows are sparse, and the rows.
  double fmas() const {
    const Geometry& g = layer_.geometry();
    double total = 0.0;
    for (const std::int64_t block : blocks_) {
      for (std::int64_t q = block * kBlock; q < (block + 1) * kBlock; ++q) {
        const std::int64_t visible = q + 1;
        if (visible > g.row_capacity())
          total += static_cast<double>(g.groups(visible) * g.index_dim() * g.index_heads());
        total += static_cast<double>(g.row_width(visible) * g.query_heads() * (g.head_dim() + g.value_dim()));
      }
    }
    return total;
  }
  std::int64_t queries() const { return static_cast<std::int64_t>(blocks_.size()) * kBlock; }

 private:
  void run_block(std::int64_t block) {
    require(
        engine_.plan(layer_.view(), layer_.index_queries(block * kBlock, kBlock), NanPolicy::kRefuse, answer_.rows())
            .ok(),
        "plan");
    require(
        engine_
            .attend(layer_.view(), layer_.attend_queries(block * kBlock, kBlock), answer_.rows(), answer_.output(), {})
            .ok(),
        "attend");
    consume(answer_.values.data());
  }

  Layer& layer_;
  Engine engine_;
  Answer answer_;
  std::vector<std::int64_t> blocks_;
};

}  // namespace

void bench_prefill(Bench& bench) {
  if (!bench.wants("prefill")) return;
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    for (const std::int64_t tokens : {8192, 32768}) {
      Layer layer(real_geometry(dtype), tokens, tokens, kCorrelation, 51);
      double one_thread_ns = 0.0;
      double one_thread_limit_ns = 0.0;
      for (const int threads : {1, 2}) {
        const std::int64_t blocks = bench.quick() ? 2 : 16;
        Prefill prefill(bench, layer, threads, blocks);
        prefill.check();
        const double goal = dtype == DType::kBf16 ? 0.55 : 0.45;
        const Measure& m = bench.add(formatted("prefill {}, {}, {} thread{}, {} queries of it", tokens,
                                               dtype_name(dtype), threads, threads > 1 ? "s" : "", prefill.queries()),
                                     {"ours", [&prefill] { prefill.run(); }, {}}, {0.0, prefill.fmas(), 0.0}, threads,
                                     {}, {1.0 / goal, 0.0, formatted(">= {:.0f} % of fma peak", 100.0 * goal)});
        if (threads == 1) one_thread_ns = m.ours.median_ns, one_thread_limit_ns = m.limit_ns;
        if (threads == 1) continue;
        Measure speedup;
        speedup.name = formatted("prefill {}, {}, 2 threads against 1", tokens, dtype_name(dtype));
        speedup.ours = m.ours;
        speedup.limit_ns = one_thread_ns / 2.0;
        speedup.limit = "half the time of one thread";
        speedup.target = ">= 1.8x faster than 1";
        speedup.met = one_thread_ns / m.ours.median_ns >= 1.8;
        speedup.limits_ratio = one_thread_limit_ns / m.limit_ns;
        bench.note(std::move(speedup));
      }
    }
  }
}

}  // namespace seriatim::bench
