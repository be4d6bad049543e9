// Sparse FLASH_ATTN_EXT against ggml's own within its tolerance, and against the library's definition bit for bit.
#include "attention.hpp"

#include <algorithm>
#include <numeric>

#include "base/half.hpp"
#include "graph.hpp"
#include "support/bits.hpp"
#include "tensors.hpp"

namespace seriatim::plugin {
namespace {

using namespace testing;
using seriatim::testing::Random;

struct Shape {
  std::int64_t cells = 300;
  std::int64_t tokens = 3;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t key_dim = 64;
  std::int64_t value_dim = 64;
  std::int64_t streams = 1;
  std::int64_t mask_streams = 1;
  ggml_type k_type = GGML_TYPE_F16;
  ggml_type v_type = GGML_TYPE_F16;
  bool alias = false;  // values are the leading dims of the keys
  bool sinks = false;
  bool biased = false;
  std::int64_t visible = 40;  // about
};

// A node as llama.cpp builds it: permuted views of the queries and of the cache.
struct AttentionNode {
  AttentionNode(const Shape& s, std::uint64_t seed) : shape(s), graph(std::size_t{96} << 20) {
    Random random(seed);
    ggml_context* context = graph.context();
    ggml_tensor* q_cur = graph.random(random, GGML_TYPE_F32, {s.key_dim, s.heads, s.tokens, s.streams}, 2.0f);
    q = ggml_permute(context, q_cur, 0, 2, 1, 3);
    ggml_tensor* k_cache = graph.random(random, s.k_type, {s.key_dim, s.kv_heads, s.cells, s.streams});
    k = ggml_permute(context, k_cache, 0, 2, 1, 3);
    if (s.alias) {
      v = ggml_view_4d(context, k, s.value_dim, k->ne[1], k->ne[2], k->ne[3], k->nb[1], k->nb[2], k->nb[3], 0);
    } else {
      v = ggml_permute(context, graph.random(random, s.v_type, {s.value_dim, s.kv_heads, s.cells, s.streams}), 0, 2, 1,
                       3);
    }
    mask = graph.tensor(GGML_TYPE_F16, {s.cells, s.tokens, 1, s.mask_streams});
    auto* entries = static_cast<std::uint16_t*>(mask->data);
    for (std::int64_t i = 0; i < ggml_nelements(mask); ++i) {
      const bool visible = random.below(s.cells) < s.visible;
      entries[i] = visible ? to_f16(s.biased ? random.uniform() : 0.0f) : 0xfc00;
    }
    const float scale = 1.0f / std::sqrt(static_cast<float>(s.key_dim));
    node = ggml_flash_attn_ext(context, q, k, v, mask, scale, 0.0f, 0.0f);
    ggml_prec_set_acc(node, GGML_PREC_F32);
    if (s.sinks) {
      sinks = graph.random(random, GGML_TYPE_F32, {s.heads}, 3.0f);
      ggml_flash_attn_ext_add_sinks(node, sinks);
    }
    node->op_params[4] = static_cast<std::int32_t>(most());
  }

  std::uint16_t* mask_row(std::int64_t stream, std::int64_t token) const {
    return static_cast<std::uint16_t*>(mask->data) +
           ((stream % shape.mask_streams) * shape.tokens + token) * shape.cells;
  }
  std::int64_t most() const {
    std::int64_t most = 1;
    for (std::int64_t s = 0; s < shape.streams; ++s) {
      for (std::int64_t t = 0; t < shape.tokens; ++t) {
        const std::uint16_t* row = mask_row(s, t);
        most = std::max<std::int64_t>(most, shape.cells - std::count(row, row + shape.cells, 0xfc00));
      }
    }
    return most;
  }

  // The definition over keys and values widened one by one.
  std::vector<std::byte> by_definition() const {
    GeometryOptions options;
    options.group_tokens = options.budget_tokens = 4096;
    options.query_heads = shape.heads;
    options.kv_heads = shape.kv_heads;
    options.head_dim = shape.key_dim;
    options.value_dim = shape.value_dim;
    options.softmax_scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
    const Geometry geometry = *Geometry::admit(options);
    Engine engine = *Engine::host(serial_executor(), Kernels::reference());
    std::vector<std::byte> all;
    for (std::int64_t s = 0; s < shape.streams; ++s) {
      const std::vector<float> keys = widened(k, s), values = widened(v, s);
      BorrowedTensors tensors;
      tensors.keys =
          dense_view(static_cast<const void*>(keys.data()), DType::kF32, {shape.cells, shape.kv_heads, shape.key_dim});
      tensors.values = dense_view(static_cast<const void*>(values.data()), DType::kF32,
                                  {shape.cells, shape.kv_heads, shape.value_dim});
      BorrowedLayer layer(geometry);
      EXPECT_TRUE(layer.bind({0, shape.cells}, tensors).ok());
      std::vector<std::int32_t> rows(static_cast<std::size_t>(shape.tokens * shape.cells)), counts;
      std::vector<float> biases(rows.size());
      for (std::int64_t t = 0; t < shape.tokens; ++t) {
        std::int32_t count = 0;
        for (std::int64_t cell = 0; cell < shape.cells; ++cell) {
          if (mask_row(s, t)[cell] == 0xfc00) continue;
          const auto at = static_cast<std::size_t>(t * shape.cells + count++);
          rows[at] = static_cast<std::int32_t>(cell);
          biases[at] = from_f16(mask_row(s, t)[cell]);
        }
        counts.push_back(count);
      }
      ConstRows asked(rows.data(), shape.cells, counts.data());
      if (shape.biased) asked.biases = biases.data();
      const std::vector<std::int64_t> positions(static_cast<std::size_t>(shape.tokens), shape.cells - 1);
      const LayerView view = layer.view();
      AttendQueries queries{view3(q, DType::kF32, 1, 2, 0, s), positions, {}};
      if (sinks != nullptr)
        queries.sinks = {static_cast<const float*>(sinks->data), static_cast<std::size_t>(shape.heads)};
      std::vector<float> out(static_cast<std::size_t>(shape.tokens * shape.heads * shape.value_dim));
      const Tensor output =
          dense_view(static_cast<void*>(out.data()), DType::kF32, {shape.tokens, shape.heads, shape.value_dim});
      const Status status = engine.attend(view, queries, asked, output, {});
      EXPECT_TRUE(status.ok()) << status.message();
      const auto bytes = std::as_bytes(std::span<const float>(out));
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

  std::vector<float> widened(const ggml_tensor* t, std::int64_t stream) const {
    std::vector<float> all(static_cast<std::size_t>(t->ne[0] * t->ne[1] * t->ne[2]));
    float* to = all.data();
    for (std::int64_t cell = 0; cell < t->ne[1]; ++cell) {
      for (std::int64_t h = 0; h < t->ne[2]; ++h, to += t->ne[0])
        widen_row(t->type, bytes_of(t) + stream * stride(t, 3) + h * stride(t, 2) + cell * stride(t, 1), t->ne[0], to);
    }
    return all;
  }

  Shape shape;
  Graph graph;
  ggml_tensor* q;
  ggml_tensor* k;
  ggml_tensor* v;
  ggml_tensor* mask;
  ggml_tensor* sinks = nullptr;
  ggml_tensor* node;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all(1);
  all.push_back({.cells = 1024, .tokens = 1, .heads = 24, .kv_heads = 2, .visible = 300});
  all.push_back({.tokens = 70, .visible = 60});
  all.push_back({.cells = 530, .streams = 3, .mask_streams = 3});
  all.push_back({.streams = 4, .mask_streams = 2, .sinks = true});
  all.push_back({.heads = 16, .kv_heads = 1, .key_dim = 96, .value_dim = 64, .alias = true, .sinks = true});
  all.push_back({.heads = 8, .kv_heads = 1, .alias = true});  // the whole key is the value
  all.push_back({.biased = true});
  all.push_back({.streams = 2, .mask_streams = 2, .sinks = true, .biased = true});
  all.push_back({.visible = 0});  // most rows see nothing
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q5_1}) {
    all.push_back({.tokens = 5, .streams = 2, .mask_streams = 2, .k_type = type, .v_type = type});
    all.push_back({.heads = 4, .kv_heads = 1, .key_dim = 96, .k_type = type, .v_type = type, .alias = true});
  }
  all.push_back({.k_type = GGML_TYPE_Q8_0, .v_type = GGML_TYPE_F16, .biased = true});
  return all;
}

std::string described(const Shape& s) {
  return std::string(ggml_type_name(s.k_type)) + ", " + std::to_string(s.tokens) + " tokens of " +
         std::to_string(s.streams) + " streams, " + std::to_string(s.cells) + " cells, alias " +
         std::to_string(s.alias) + ", sinks " + std::to_string(s.sinks);
}

TEST(Attention, IsWithinTheToleranceOfGgmlsOwn) {
  std::uint64_t seed = 10;
  for (const Shape& shape : shapes()) {
    if (shape.visible == 0) continue;  // has no signal to measure by
    AttentionNode one(shape, ++seed);
    const auto want = one.graph.by_ggml(one.node);
    Attention attention;
    EXPECT_LT(normalized_error(by_us(attention, one.node, 2), want), 5e-4) << described(shape);
  }
}

TEST(Attention, IsTheDefinitionBitForBitWhateverTheThreads) {
  std::uint64_t seed = 100;
  for (const Shape& shape : shapes()) {
    const AttentionNode one(shape, ++seed);
    ASSERT_EQ(unfit_attention(one.node), "") << described(shape);
    const auto want = one.by_definition();
    ASSERT_FALSE(want.empty());
    for (const int threads : {1, 2, 4}) {
      Attention attention;
      EXPECT_TRUE(by_us(attention, one.node, threads) == want) << described(shape) << ", " << threads << " threads";
    }
  }
}

TEST(Attention, OfATokenIsTheSameAloneAndInAnyBatch) {
  const AttentionNode all({.cells = 400, .tokens = 200, .streams = 2, .mask_streams = 2, .visible = 150}, 7);
  Attention attention;
  const auto together = by_us(attention, all.node, 2);
  const std::size_t token_bytes = all.node->nb[2];
  ggml_context* context = all.graph.context();
  for (const std::int64_t stream : {0, 1}) {
    for (const std::int64_t token : {0, 1, 63, 128, 199}) {
      const auto at = [&](const ggml_tensor* t, int axis, std::int64_t i) {
        return static_cast<std::size_t>(i) * t->nb[axis];
      };
      ggml_tensor* q = ggml_view_4d(context, all.q, all.q->ne[0], 1, all.q->ne[2], 1, all.q->nb[1], all.q->nb[2],
                                    all.q->nb[3], at(all.q, 1, token) + at(all.q, 3, stream));
      const auto one_stream = [&](ggml_tensor* t) {
        return ggml_view_4d(context, t, t->ne[0], t->ne[1], t->ne[2], 1, t->nb[1], t->nb[2], t->nb[3],
                            at(t, 3, stream));
      };
      ggml_tensor* mask = ggml_view_4d(context, all.mask, all.mask->ne[0], 1, 1, 1, all.mask->nb[1], all.mask->nb[2],
                                       all.mask->nb[3], at(all.mask, 1, token) + at(all.mask, 3, stream));
      ggml_tensor* node = ggml_flash_attn_ext(context, q, one_stream(all.k), one_stream(all.v), mask, 0.125f, 0, 0);
      node->op_params[4] = all.node->op_params[4];
      ASSERT_EQ(unfit_attention(node), "");
      const auto alone = by_us(attention, node, 4);
      const std::size_t offset = static_cast<std::size_t>(stream * 200 + token) * token_bytes;
      EXPECT_EQ(std::memcmp(alone.data(), together.data() + offset, token_bytes), 0) << stream << ", " << token;
    }
  }
}

TEST(Attention, ReadsNoCellThatTheMaskHides) {
  AttentionNode one({.tokens = 2}, 8);
  Attention attention;
  const auto want = by_us(attention, one.node, 2);
  for (std::int64_t cell = 0; cell < one.shape.cells; ++cell) {
    if (one.mask_row(0, 0)[cell] != 0xfc00 || one.mask_row(0, 1)[cell] != 0xfc00) continue;
    for (const ggml_tensor* t : {one.k, one.v}) {
      for (std::int64_t h = 0; h < t->ne[2]; ++h)
        std::memset(static_cast<std::byte*>(t->data) + h * stride(t, 2) + cell * stride(t, 1), 0xff, t->nb[2]);  // NaN
    }
  }
  EXPECT_TRUE(by_us(attention, one.node, 2) == want);
}

TEST(Attention, LeavesToGgmlWhatHasMoreVisibleThanTheGraphSaidOrIsNotFinite) {
  Workers workers;
  Attention attention;
  AttentionNode more({}, 9);
  more.node->op_params[4] -= 1;
  EXPECT_EQ(attention.compute(more.node, workers, {}), Outcome::kLeft);
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_Q8_0}) {
    AttentionNode nan({.k_type = type, .v_type = type}, 10);
    *static_cast<float*>(nan.q->data) = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(attention.compute(nan.node, workers, {}), Outcome::kLeft);
  }
  AttentionNode nan_mask({}, 11);
  nan_mask.mask_row(0, 1)[17] = 0x7e00;
  nan_mask.node->op_params[4] += 1;
  EXPECT_EQ(attention.compute(nan_mask.node, workers, {}), Outcome::kLeft);
}

TEST(Attention, CountsTheMaskWhereTheGraphSaysNothing) {
  const AttentionNode few({.tokens = 5}, 14);
  const auto want = few.by_definition();
  few.node->op_params[4] = 0;
  Attention attention;
  EXPECT_TRUE(by_us(attention, few.node, 2) == want);
  const AttentionNode many({.tokens = 5, .visible = 200}, 15);  // of 300
  many.node->op_params[4] = 0;
  Workers workers;
  EXPECT_EQ(attention.compute(many.node, workers, {}), Outcome::kLeft);
}

TEST(Attention, RefusesByName) {
  const auto refused = [](auto&& change) {
    AttentionNode one({}, 12);
    EXPECT_EQ(unfit_attention(one.node), "");
    change(one);
    return unfit_attention(one.node);
  };
  const auto parameter = [](int index, float value) {
    return [=](AttentionNode& one) { std::memcpy(one.node->op_params + index, &value, sizeof value); };
  };
  EXPECT_EQ(refused(parameter(1, 8.0f)), "ALiBi");
  EXPECT_EQ(refused(parameter(2, 30.0f)), "softcap");
  EXPECT_EQ(refused(parameter(0, 0.0f)), "scale");
  EXPECT_EQ(refused([](AttentionNode& one) { one.node->src[3] = nullptr; }), "no mask");
  EXPECT_EQ(refused([](AttentionNode& one) { one.mask->type = GGML_TYPE_F32; }), "type of the mask");
  EXPECT_EQ(refused([](AttentionNode& one) { one.mask->ne[2] = 4; }), "shape of the mask");
  EXPECT_EQ(refused([](AttentionNode& one) { one.q->type = GGML_TYPE_F16; }), "queries or output not f32");
  EXPECT_EQ(refused([](AttentionNode& one) { one.v->ne[1] += 1; }), "shapes");
  EXPECT_EQ(refused([](AttentionNode& one) { one.k->type = GGML_TYPE_I8; }), "type of keys or values");
  EXPECT_EQ(refused([](AttentionNode& one) { one.node->op = GGML_OP_MUL_MAT; }), "another op");
}

TEST(Attention, StopsWhenItIsAskedTo) {
  const AttentionNode one({.tokens = 300}, 13);
  Workers workers;
  Attention attention;
  int asked = 0;
  const AbortCallback second{[](void* data) { return ++*static_cast<int*>(data) > 1; }, &asked};
  EXPECT_EQ(attention.compute(one.node, workers, second), Outcome::kAborted);
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace seriatim::plugin
