// LIGHTNING_INDEXER against ggml's own within its tolerance, and against the canonical score bit for bit.
#include "indexer.hpp"

#include <string>

#include "base/half.hpp"
#include "graph.hpp"
#include "seriatim/score.hpp"
#include "support/mapped_memory.hpp"
#include "tensors.hpp"

namespace seriatim::plugin {
namespace {

using namespace testing;
using seriatim::testing::Random;

struct Shape {
  ggml_type type = GGML_TYPE_F16;
  std::int64_t dim = 128;
  std::int64_t heads = 4;
  std::int64_t tokens = 3;
  std::int64_t cells = 300;
  std::int64_t streams = 1;
  std::int64_t mask_streams = 1;
};

struct IndexerNode {
  IndexerNode(const Shape& s, std::uint64_t seed) : shape(s) {
    Random random(seed);
    ggml_context* context = graph.context();
    // Heads and tokens lie the other way round than the node's axes: a view, as llama.cpp's is.
    ggml_tensor* q_wide = graph.random(random, GGML_TYPE_F32, {s.dim + 32, s.heads, s.tokens, s.streams});
    q = ggml_view_4d(context, q_wide, s.dim, s.heads, s.tokens, s.streams, q_wide->nb[1], q_wide->nb[2], q_wide->nb[3],
                     0);
    k = graph.random(random, s.type, {s.dim, 1, s.cells, s.streams});
    w = graph.random(random, GGML_TYPE_F32, {s.heads, s.tokens, 1, s.streams}, 0.1f);
    mask = graph.tensor(GGML_TYPE_F16, {s.cells, s.tokens, 1, s.mask_streams});
    auto* entries = static_cast<std::uint16_t*>(mask->data);
    for (std::int64_t i = 0; i < ggml_nelements(mask); ++i) {
      const std::int64_t kind = random.below(5);
      entries[i] = kind == 0 ? 0xfc00 : kind == 1 ? to_f16(random.uniform()) : 0;
    }
    node = ggml_lightning_indexer(context, q, k, w, mask);
  }

  std::vector<std::byte> by_definition() const {
    GeometryOptions options;
    options.pooling = Pooling::kNone;
    options.scale_at = ScaleAt::kNowhere;
    options.group_tokens = options.budget_tokens = 1;
    options.query_heads = options.kv_heads = options.head_dim = 1;
    options.index_heads = shape.heads;
    options.index_dim = shape.dim;
    options.index_rotary_dim = 0;
    const Geometry geometry = *Geometry::admit(options);
    std::vector<float> all;
    for (std::int64_t s = 0; s < shape.streams; ++s) {
      std::vector<float> keys(static_cast<std::size_t>(shape.cells * shape.dim));
      for (std::int64_t cell = 0; cell < shape.cells; ++cell)
        widen_row(k->type, bytes_of(k) + s * stride(k, 3) + cell * stride(k, 2), shape.dim,
                  keys.data() + cell * shape.dim);
      std::vector<float> panels(static_cast<std::size_t>(panel_bytes(geometry, shape.cells) / 4 + 16));
      auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(panels.data()) + 63) / 64 * 64);
      const auto keys_view = dense_view(static_cast<const void*>(keys.data()), DType::kF32, {shape.cells, shape.dim});
      EXPECT_TRUE(pack_pooled_keys(geometry, keys_view, aligned).ok());
      const std::byte* page = aligned;
      PooledKeys pooled;
      pooled.pages = &page;
      pooled.page_groups = (shape.cells + 15) / 16 * 16;
      pooled.groups = shape.cells;
      pooled.dim = shape.dim;
      for (std::int64_t t = 0; t < shape.tokens; ++t) {
        std::vector<float> scores(static_cast<std::size_t>(shape.cells));
        const ConstTensor query = row_of_tokens(t, s);
        const auto weights = dense_view(static_cast<const void*>(bytes_of(w) + t * stride(w, 1) + s * stride(w, 3)),
                                        DType::kF32, {shape.heads});
        EXPECT_TRUE(score_groups(geometry, query, weights, pooled, scores).ok());
        const auto* row = reinterpret_cast<const std::uint16_t*>(bytes_of(mask) + t * stride(mask, 1) +
                                                                 s % shape.mask_streams * stride(mask, 3));
        for (std::int64_t cell = 0; cell < shape.cells; ++cell)
          all.push_back(scores[static_cast<std::size_t>(cell)] + from_f16(row[cell]));
      }
    }
    const auto bytes = std::as_bytes(std::span<const float>(all));
    return {bytes.begin(), bytes.end()};
  }
  ConstTensor row_of_tokens(std::int64_t token, std::int64_t stream) const {
    ConstTensor view = view3(q, DType::kF32, 2, 1, 0, stream);
    return seriatim::row_of(view, token);
  }

  Shape shape;
  Graph graph;
  ggml_tensor* q;
  ggml_tensor* k;
  ggml_tensor* w;
  ggml_tensor* mask;
  ggml_tensor* node;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const ggml_type type :
       {GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q5_0}) {
    all.push_back({.type = type});
    all.push_back({.type = type, .heads = 64, .tokens = 1, .cells = 1030, .streams = 2, .mask_streams = 2});
  }
  all.push_back({.dim = 40, .heads = 3, .tokens = 40, .cells = 17, .streams = 4, .mask_streams = 2});
  all.push_back({.heads = 64, .tokens = 9, .cells = 1});
  return all;
}

TEST(Indexer, IsWithinTheToleranceOfGgmlsOwn) {
  std::uint64_t seed = 1;
  for (const Shape& shape : shapes()) {
    IndexerNode one(shape, ++seed);
    const auto want = one.graph.by_ggml(one.node);
    Indexer indexer;
    EXPECT_LT(normalized_error(by_us(indexer, one.node, 2), want), 5e-6) << ggml_type_name(shape.type);
  }
}

TEST(Indexer, IsTheCanonicalScoreBitForBitWhateverTheThreads) {
  std::uint64_t seed = 50;
  for (const Shape& shape : shapes()) {
    const IndexerNode one(shape, ++seed);
    ASSERT_TRUE(fits_indexer(one.node)) << ggml_type_name(shape.type);
    const auto want = one.by_definition();
    ASSERT_FALSE(want.empty());
    for (const int threads : {1, 2, 4}) {
      Indexer indexer;
      EXPECT_TRUE(by_us(indexer, one.node, threads) == want) << ggml_type_name(shape.type) << ", dim " << shape.dim;
    }
  }
}

// Keys of f32 with gaps between: the last one's gap may be nobody's memory.
TEST(Indexer, ReadsNothingPastTheLastKey) {
  const Shape shape{.type = GGML_TYPE_F32, .dim = 40, .heads = 2, .tokens = 1, .cells = 16, .streams = 1};
  const IndexerNode one(shape, 90);
  const auto want = one.by_definition();
  constexpr std::int64_t kApart = 48 * sizeof(float), kKey = 40 * sizeof(float);
  const std::int64_t page = seriatim::testing::MappedMemory::page_bytes();
  seriatim::testing::MappedMemory memory(2 * page);
  ASSERT_TRUE(memory.forbid(page, page));
  std::byte* first = memory.data() + page - 15 * kApart - kKey;
  for (std::int64_t cell = 0; cell < 16; ++cell)
    std::memcpy(first + cell * kApart, bytes_of(one.k) + cell * kKey, kKey);
  one.k->data = first;
  one.k->nb[1] = one.k->nb[2] = kApart;
  one.k->nb[3] = 16 * kApart;
  ASSERT_TRUE(fits_indexer(one.node));
  Indexer indexer;
  EXPECT_TRUE(by_us(indexer, one.node, 1) == want);
}

TEST(Indexer, LeavesOtherShapesToGgml) {
  const auto fits_after = [](auto&& change) {
    IndexerNode one({}, 3);
    EXPECT_TRUE(fits_indexer(one.node));
    change(one);
    return fits_indexer(one.node);
  };
  EXPECT_FALSE(fits_after([](IndexerNode& one) { one.mask->type = GGML_TYPE_F32; }));
  EXPECT_FALSE(fits_after([](IndexerNode& one) { one.k->ne[1] = 2; }));
  EXPECT_FALSE(fits_after([](IndexerNode& one) { one.k->type = GGML_TYPE_I32; }));
  EXPECT_FALSE(fits_after([](IndexerNode& one) { one.q->nb[0] = 8; }));
  EXPECT_FALSE(fits_after([](IndexerNode& one) { one.node->src[2] = nullptr; }));
  EXPECT_FALSE(fits_after([](IndexerNode& one) { one.node->op = GGML_OP_MUL_MAT; }));
}

TEST(Indexer, StopsWhenItIsAskedTo) {
  const IndexerNode one({}, 4);
  Workers workers;
  Indexer indexer;
  EXPECT_EQ(indexer.compute(one.node, workers, {[](void*) { return true; }, nullptr}), Outcome::kAborted);
}

}  // namespace
}  // namespace seriatim::plugin
