// Screening against scoring in full: the same engine, the same rows.

#include "base/format.hpp"
#include "bench/bench.hpp"
#include "bench/inputs.hpp"

namespace seriatim::bench {
namespace {

// Little else than an index: keys and values are not read here.
Geometry index_of(Geometry whole) {
  GeometryOptions options = whole.options();
  options.query_heads = options.kv_heads = 1;
  options.head_dim = options.value_dim = 8;
  options.values_alias_keys = true;
  options.softmax_scale.reset();
  return *Geometry::admit(options);
}

class Planning {
 public:
  Planning(Bench& bench, Layer& layer, int threads, std::int64_t queries, Screening screening)
      : bench_(bench),
        layer_(layer),
        threads_(threads),
        queries_(queries),
        engine_(*Engine::host(bench.executor(threads), bench.kernels(), screening)),
        answer_(layer.geometry(), queries) {
    require(engine_.reserve(layer.geometry(), {layer.tokens(), queries, 1}).ok(), "make an engine");
    run();
  }

  void run() {
    require(engine_.plan(layer_.view(), layer_.index_queries(turn_, queries_), NanPolicy::kRefuse, answer_.rows()).ok(),
            "plan");
    consume(answer_.positions.data());
  }

  Contestant contestant(std::string name) {
    return {std::move(name), [this] { run(); },
            [this] {
              turn_ = turn_ + queries_ < layer_.queries() ? turn_ + 1 : 0;
              bench_.chill(threads_);
            }};
  }

  const Answer& answer() const { return answer_; }
  WorkDone done() const { return engine_.done(); }

 private:
  Bench& bench_;
  Layer& layer_;
  int threads_;
  std::int64_t queries_;
  std::int64_t turn_ = 0;
  Engine engine_;
  Answer answer_;
};

struct Case {
  std::string_view name;
  std::int64_t queries;
  Screening screening = Screening::kAutomatic;
  std::string_view target = "stated";
  double faster = 0.0;  // than scoring in full
};

void measure(Bench& bench, const Geometry& geometry, std::int64_t tokens, std::span<const Case> cases) {
  Layer layer(geometry, tokens, 72, 0.0, 71);
  layer.stand_at(tokens - 1);
  for (const Case& one : cases) {
    for (const int threads : {1, 2}) {
      Planning full(bench, layer, threads, one.queries, Screening::kOff);
      Planning screened(bench, layer, threads, one.queries, one.screening);
      require(
          full.answer().counts == screened.answer().counts && full.answer().positions == screened.answer().positions,
          "the rows of full scoring");
      const WorkDone done = screened.done();
      const double groups = static_cast<double>(geometry.groups(tokens));
      const double products = static_cast<double>(geometry.index_heads() * geometry.index_dim() * one.queries) * groups;
      const double bytes = groups * static_cast<double>(row_bytes(geometry.index_dtype(), geometry.index_dim()));
      // Two products an instruction where keys are screened, one where they are not.
      const double fmas = done.groups_screened > 0 ? products / 2 : products;
      bench.add(formatted("screen {}, {} thread{}: {} of {} groups rescored, {:.3f} of the bytes", one.name, threads,
                          threads > 1 ? "s" : "", done.groups_rescored, done.groups_screened,
                          static_cast<double>(done.index_bytes_read) / bytes),
                screened.contestant("ours"), {bytes, fmas, 0.0}, threads, {full.contestant("scored in full")},
                {0.0, one.faster, std::string(one.target)});
    }
  }
}

}  // namespace

void bench_screen(Bench& bench) {
  if (!bench.wants("screen")) return;
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    const std::string name{dtype_name(dtype)};
    const bool bf16 = dtype == DType::kBf16;
    const Screening screening = bf16 ? Screening::kAutomatic : Screening::kOn;  // f32 is screened by force alone
    const std::string block = formatted("index 4 x 128 at 262,144, {}, block of 64 queries", name);
    const std::string decode = formatted("index 4 x 128 at 262,144, {}, one query, forced", name);
    const Case pooled[] = {{block, 64, screening, bf16 ? ">= 1.8x full" : "stated", bf16 ? 1.8 : 0.0},
                           {decode, 1, Screening::kOn}};
    measure(bench, index_of(real_geometry(dtype)), 262144, pooled);
    for (const std::int64_t tokens : {std::int64_t{8192}, std::int64_t{131072}}) {
      const bool held = bf16 && tokens == 131072;
      const std::string one = formatted("index 64 x 128 at {}, {}, one query", tokens, name);
      const std::string some = formatted("index 64 x 128 at {}, {}, block of 16 queries", tokens, name);
      const Case tokenwise[] = {{one, 1, screening, held ? ">= 1.9x full" : "stated", held ? 1.9 : 0.0},
                                {some, 16, screening, held ? ">= 1.9x full" : "stated", held ? 1.9 : 0.0}};
      measure(bench, index_of(latent_geometry(dtype)), tokens, tokenwise);
    }
  }
}

}  // namespace seriatim::bench
