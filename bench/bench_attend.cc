
#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "bench/bench.hpp"
#include "bench/decode_step.hpp"
#include "bench/inputs.hpp"
#include "bench/peers.hpp"

namespace seriatim::bench {
namespace {

// The two products of attention as dense matrices in cache: what a library call would do with the gathered row.
class TwoProducts {
 public:
  explicit TwoProducts(const Geometry& g)
      : heads_(g.query_heads() / g.kv_heads()), kv_(g.kv_heads()), dim_(g.head_dim()), row_(g.row_capacity()) {
    Random random(31);
    query_ = normal_scores(random, heads_ * dim_);
    keys_ = normal_scores(random, kv_ * row_ * dim_);
    logits_.resize(static_cast<std::size_t>(heads_ * row_));
    output_.resize(static_cast<std::size_t>(heads_ * dim_));
  }
  Contestant contestant() {
    return {"OpenBLAS sgemm, the two products alone, f32, gathered",
            [this] {
              for (std::int64_t h = 0; h < kv_; ++h) {
                const float* keys = keys_.data() + h * row_ * dim_;
                sgemm(true, heads_, row_, dim_, query_.data(), keys, logits_.data());
                sgemm(false, heads_, dim_, row_, logits_.data(), keys, output_.data());
              }
              consume(output_.data());
            },
            {}};
  }

 private:
  std::int64_t heads_, kv_, dim_, row_;
  std::vector<float> query_, keys_, logits_, output_;
};

void in_cache(Bench& bench, DType dtype) {
  const Geometry geometry = real_geometry(dtype);
  Layer layer(geometry, geometry.row_capacity(), 1, 0.0, 32);
  DecodeStep step(bench, layer, 1);
  TwoProducts products(geometry);
  std::vector<Contestant> peers;
  if (has_sgemm()) peers.push_back(products.contestant());
  bench.add(formatted("attend 2,051 entries, 24 x 2 x 256, {}, in cache", dtype_name(dtype)), step.attend_only(false),
            {0.0, step.attend_fmas(), 0.0}, 1, peers, {1.0 / 0.60, 0.0, ">= 60 % of fma peak"});
}

void cold(Bench& bench, DType dtype) {
  double short_context_ns = 0.0;
  for (const std::int64_t tokens : {8192, 262144}) {
    if (bench.quick() && tokens > 8192 && dtype == DType::kF32) continue;
    Layer layer(real_geometry(dtype), tokens, 32, 0.0, 33);
    layer.stand_at(tokens - 1);
    DecodeStep step(bench, layer, 1);
    const Measure& m = bench.add(formatted("attend at {} tokens, {}, cold rows", tokens, dtype_name(dtype)),
                                 step.attend_only(true), step.attend_work(), 1, {}, {1.5, 0.0, "<= 1.5x limit"});
    if (tokens == 8192) short_context_ns = m.ours.median_ns;
    if (tokens == 8192) continue;
    Measure growth;
    growth.name = formatted("attend, {}, 262,144 tokens against 8,192", dtype_name(dtype));
    growth.ours = m.ours;
    growth.limit_ns = short_context_ns;
    growth.limit = "the same at 8,192 tokens";
    growth.target = "<= 1.2x";
    growth.met = growth.to_limit() <= 1.2;
    bench.note(std::move(growth));
  }
}

}  // namespace

void bench_attend(Bench& bench) {
  if (!bench.wants("attend")) return;
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    in_cache(bench, dtype);
    cold(bench, dtype);
  }
}

}  // namespace seriatim::bench
