
#include <cstring>

#include "base/format.hpp"
#include "base/half.hpp"
#include "bench/bench.hpp"
#include "bench/inputs.hpp"
#include "bench/peers.hpp"
#include "score/score_kernels.hpp"

namespace seriatim::bench {
namespace {

constexpr std::int64_t kGroups = 65536;

// Finished keys in panels, and a block of queries over them.
class Scoring {
 public:
  Scoring(Kernels kernels, const Geometry& geometry, std::int64_t queries)
      : kernels_(score_kernels(kernels)), geometry_(geometry), queries_(queries) {
    Random random(21);
    const DType dtype = geometry.index_dtype();
    const std::int64_t dim = geometry.index_dim();
    const std::int64_t heads = geometry.index_heads();
    panels_ = uniform_elements(random, kGroups * dim, dtype);
    page_ = panels_.data();
    pooled_.pages = &page_;
    pooled_.page_groups = kGroups;
    pooled_.groups = kGroups;
    pooled_.dim = dim;
    pooled_.dtype = dtype;
    query_ = uniform_elements(random, queries * heads * dim, dtype);
    packed_.resize(static_cast<std::size_t>(queries * heads * dim));
    scores_.resize(static_cast<std::size_t>(queries * kGroups));
    edge_.resize(static_cast<std::size_t>(score_edge_bytes(geometry) + 64));
    kernels_.pack(dense_view(static_cast<const void*>(query_.data()), dtype, {queries, heads, dim}), packed_.data());
    check();
  }

  void run() {
    ScoreBlock block;
    block.geometry = &geometry_;
    block.count = queries_;
    block.queries = packed_.data();
    block.pooled = &pooled_;
    block.panels = kGroups / PooledKeys::kPanelGroups;
    block.edge = aligned_edge();
    block.scores = scores_.data();
    block.stride = kGroups;
    kernels_.score(block);
    consume(scores_.data());
  }

  Contestant ours(Bench* chilled_by) {
    Contestant c{"ours", [this] { run(); }, {}};
    if (chilled_by != nullptr) c.prepare = [chilled_by] { chilled_by->chill(1); };
    return c;
  }

  // The product alone, on f32 keys laid out for it: no relu, no sum over heads.
  Contestant gemm(Bench* chilled_by) {
    const std::int64_t dim = geometry_.index_dim();
    Random random(22);
    keys_f32_ = normal_scores(random, kGroups * dim);
    query_f32_ = normal_scores(random, queries_ * geometry_.index_heads() * dim);
    product_.resize(static_cast<std::size_t>(queries_ * geometry_.index_heads() * kGroups));
    Contestant c{"OpenBLAS sgemm, the products alone, f32",
                 [this, dim] {
                   sgemm(true, queries_ * geometry_.index_heads(), kGroups, dim, query_f32_.data(), keys_f32_.data(),
                         product_.data());
                   consume(product_.data());
                 },
                 {}};
    if (chilled_by != nullptr) c.prepare = [chilled_by] { chilled_by->chill(1); };
    return c;
  }

  double bytes() const { return static_cast<double>(panels_.size()); }
  double fmas() const {
    return static_cast<double>(queries_ * geometry_.index_heads() * geometry_.index_dim() * kGroups);
  }

 private:
  std::byte* aligned_edge() {
    const auto address = reinterpret_cast<std::uintptr_t>(edge_.data());
    return edge_.data() + (64 - address % 64) % 64;
  }

  // Some hundred groups of every query against the reference, spread over the panels.
  void check() {
    run();
    constexpr std::int64_t kChecked = 16;
    for (std::int64_t q = 0; q < queries_; ++q) {
      for (std::int64_t first = 0; first + kChecked <= kGroups; first += 4096) {
        PooledKeys some = pooled_;
        const std::byte* page = panels_.data() + row_bytes(pooled_.dtype, first * geometry_.index_dim());
        some.pages = &page;
        some.groups = kChecked;
        some.page_groups = kChecked;
        float expected[kChecked];
        const std::int64_t heads = geometry_.index_heads();
        const std::int64_t dim = geometry_.index_dim();
        const std::byte* row = query_.data() + row_bytes(pooled_.dtype, q * heads * dim);
        const ConstTensor query = dense_view(static_cast<const void*>(row), pooled_.dtype, {heads, dim});
        score_by_reference(query, some, expected);
        require(std::memcmp(expected, scores_.data() + q * kGroups + first, sizeof expected) == 0,
                "scores by the reference");
      }
    }
  }

  void score_by_reference(const ConstTensor& query, const PooledKeys& pooled, float* scores) {
    std::vector<float> widened(static_cast<std::size_t>(geometry_.index_heads() * geometry_.index_dim()));
    ConstTensor one = query;
    one.rank = 3;
    one.shape = {1, query.shape[0], query.shape[1], 1};
    one.stride_bytes = {0, query.stride_bytes[0], query.stride_bytes[1], 0};
    const ScoreKernels& reference = score_reference();
    reference.pack(one, widened.data());
    ScoreBlock block;
    block.geometry = &geometry_;
    block.count = 1;
    block.queries = widened.data();
    block.pooled = &pooled;
    block.panels = 1;
    block.edge = aligned_edge();
    block.scores = scores;
    block.stride = PooledKeys::kPanelGroups;
    reference.score(block);
  }

  const ScoreKernels& kernels_;
  Geometry geometry_;
  std::int64_t queries_;
  std::vector<std::byte> panels_, query_, edge_;
  const std::byte* page_ = nullptr;
  PooledKeys pooled_;
  std::vector<float> packed_, scores_, keys_f32_, query_f32_, product_;
};

}  // namespace

void bench_score(Bench& bench) {
  if (!bench.wants("score")) return;
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    const Geometry geometry = real_geometry(dtype);
    const std::string name{dtype_name(dtype)};
    {
      Scoring decode(bench.kernels(), geometry, 1);
      std::vector<Contestant> peers;
      if (has_sgemm()) peers.push_back(decode.gemm(&bench));
      bench.add(formatted("score 65,536 x 4 x 128, {}, cold", name), decode.ours(&bench),
                {decode.bytes(), decode.fmas(), 0.0}, 1, peers, {1.25, 0.0, "<= 1.25x limit"});
      bench.add(formatted("score 65,536 x 4 x 128, {}, warm", name), decode.ours(nullptr), {0.0, decode.fmas(), 0.0}, 1,
                {}, {0.0, 0.0, "stated"});
    }
    Scoring prefill(bench.kernels(), geometry, 64);
    std::vector<Contestant> peers;
    if (has_sgemm() && !bench.quick()) peers.push_back(prefill.gemm(nullptr));
    bench.add(formatted("score, block of 64 queries, {}", name), prefill.ours(nullptr), {0.0, prefill.fmas(), 0.0}, 1,
              peers, {1.0 / 0.70, 0.0, ">= 70 % of fma peak"});
  }
}

}  // namespace seriatim::bench
