// qwen4exp's chains through ggml's scheduler: against the library's own engine bit for bit, whole and node by node.
#include <ggml-backend.h>

#include <algorithm>
#include <memory>

#include "claims.hpp"
#include "counters.hpp"
#include "graph.hpp"
#include "qsa_model.hpp"
#include "qsa_row.hpp"
#include "seriatim/borrow.hpp"
#include "seriatim/step.hpp"
#include "tensors.hpp"

namespace seriatim::plugin {
namespace {

using namespace testing;
using seriatim::testing::Random;

// Everything that looks on while a graph runs.
struct Watcher {
  std::vector<const ggml_tensor*> wanted;
  std::vector<std::vector<std::byte>> seen;
  static bool look(ggml_tensor* t, bool ask, void* self) {
    auto& me = *static_cast<Watcher*>(self);
    const bool wants = std::find(me.wanted.begin(), me.wanted.end(), t) != me.wanted.end();
    if (!ask && wants) me.seen.push_back(Graph::bytes(t));
    return !ask || wants;
  }
};

class Context {
 public:
  explicit Context(int threads, bool with_us = true) : context_(threads, with_us) {}

  // Queries first .. first + count - 1 of every stream. Gives what the graph's end holds.
  std::vector<std::byte> run(QsaModel& model, std::int64_t first, std::int64_t count, QsaEnd end = QsaEnd::kAttention,
                             Watcher* watcher = nullptr, ggml_tensor* QsaModel::* shown = nullptr) {
    model.build(first, count);
    if (shown != nullptr) ggml_set_output(model.*shown);
    if (watcher != nullptr) {
      watcher->wanted = {model.pooled_keys, model.group_scores, model.top_k};
      ggml_backend_sched_set_eval_callback(context_.sched(), Watcher::look, watcher);
    }
    EXPECT_TRUE(context_.prepare(model, end));
    EXPECT_TRUE(context_.compute());
    return Graph::bytes(model.end(end));
  }

 private:
  QsaContext context_;
};

// The library's engine over the same numbers.
struct EngineAnswer {
  std::vector<std::vector<std::int32_t>> rows;  // of all tokens of all streams
  std::vector<std::byte> output;
};

std::vector<float> widened(const ggml_tensor* t, std::int64_t stream, std::int64_t rows, std::int64_t row_elements,
                           int stream_axis) {
  std::vector<float> all(static_cast<std::size_t>(rows * row_elements));
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto* from =
        static_cast<const std::byte*>(t->data) + stream * stride(t, stream_axis) + i * stride(t, stream_axis - 1);
    widen_row(t->type, from, row_elements, all.data() + i * row_elements);
  }
  return all;
}

EngineAnswer by_engine(const QsaModel& model) {
  const QsaShape& s = model.shape;
  GeometryOptions options;
  options.group_tokens = s.group;
  options.budget_tokens = s.budget;
  options.query_heads = s.heads;
  options.kv_heads = s.kv_heads;
  options.head_dim = s.head_dim;
  options.index_heads = s.index_heads;
  options.index_dim = s.dim;
  options.index_rotary_dim = s.rotary;
  options.rope_theta = static_cast<double>(s.rope_base);
  options.norm_eps = s.eps;
  options.softmax_scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  const Geometry geometry = *Geometry::admit(options);
  std::vector<float> norm(static_cast<const float*>(model.norm->data),
                          static_cast<const float*>(model.norm->data) + s.dim);
  for (float& w : norm) w -= 1.0f;
  PanelPooler pooler = *PanelPooler::create(geometry, norm);
  Engine engine = *Engine::host();
  EngineAnswer answer;
  for (std::int64_t m = 0; m < s.streams; ++m) {
    const auto raw = widened(model.index_cache, m, s.held, s.dim, 2);
    const auto keys = widened(model.keys, m, s.held, s.kv_heads * s.head_dim, 3);
    const auto values = widened(model.values, m, s.held, s.kv_heads * s.head_dim, 3);
    const std::int64_t panels = (s.groups() + 15) / 16;
    std::vector<float> held_panels(static_cast<std::size_t>(panels * s.dim * 16));
    PoolAsk ask;
    ask.raw = dense_view(static_cast<const void*>(raw.data()), DType::kF32, {s.held, s.dim});
    ask.run = {0, s.held};
    ask.panels = dense_view(static_cast<void*>(held_panels.data()), DType::kF32, {panels, s.dim, 16});
    EXPECT_TRUE(pooler.pool({&ask, 1}).ok());
    BorrowedTensors tensors;
    tensors.keys = dense_view(static_cast<const void*>(keys.data()), DType::kF32, {s.held, s.kv_heads, s.head_dim});
    tensors.values = dense_view(static_cast<const void*>(values.data()), DType::kF32, {s.held, s.kv_heads, s.head_dim});
    tensors.panels = seriatim::as_const(ask.panels);
    BorrowedLayer layer(geometry);
    EXPECT_TRUE(layer.bind({0, s.held}, tensors).ok());
    std::vector<std::int64_t> positions;
    for (std::int64_t t = 0; t < s.tokens; ++t) positions.push_back(model.position(t));
    const float* index_queries = model.index_queries.data() + m * s.tokens * s.index_heads * s.dim;
    const float* queries = model.queries.data() + m * s.tokens * s.heads * s.head_dim;
    std::vector<std::int32_t> row(static_cast<std::size_t>(s.tokens * geometry.row_capacity()));
    std::vector<std::int32_t> counts(static_cast<std::size_t>(s.tokens));
    const Rows rows{row.data(), geometry.row_capacity(), counts.data()};
    const IndexQueries index{
        dense_view(static_cast<const void*>(index_queries), DType::kF32, {s.tokens, s.index_heads, s.dim}),
        {},
        positions};
    EXPECT_TRUE(engine.plan(layer.view(), index, NanPolicy::kRefuse, rows).ok());
    std::vector<float> out(static_cast<std::size_t>(s.tokens * s.heads * s.head_dim));
    const AttendQueries attend{
        dense_view(static_cast<const void*>(queries), DType::kF32, {s.tokens, s.heads, s.head_dim}), positions, {}};
    EXPECT_TRUE(engine
                    .attend(layer.view(), attend, rows,
                            dense_view(static_cast<void*>(out.data()), DType::kF32, {s.tokens, s.heads, s.head_dim}),
                            {})
                    .ok());
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      const auto one = rows.row(t);
      answer.rows.emplace_back(one.begin(), one.end());
    }
    const auto bytes = std::as_bytes(std::span<const float>(out));
    answer.output.insert(answer.output.end(), bytes.begin(), bytes.end());
  }
  return answer;
}

// Rows as TOP_K hands them out: the last cell again where there are fewer.
std::vector<std::byte> filled_rows(const EngineAnswer& answer, std::int64_t width) {
  std::vector<std::int32_t> all;
  for (const auto& row : answer.rows) {
    all.insert(all.end(), row.begin(), row.end());
    all.insert(all.end(), static_cast<std::size_t>(width) - row.size(), row.back());
  }
  const auto bytes = std::as_bytes(std::span<const std::int32_t>(all));
  return {bytes.begin(), bytes.end()};
}

std::unique_ptr<QsaModel> model_of(const QsaShape& shape, std::uint64_t seed) {
  auto random = std::make_shared<Random>(seed);
  return std::make_unique<QsaModel>(shape, [random] { return random->uniform(); });
}

std::vector<QsaShape> shapes() {
  std::vector<QsaShape> all;
  for (std::int64_t held = 148; held < 152; ++held) all.push_back({.held = held});  // every tail
  all.push_back({.held = 200, .tokens = 70});
  all.push_back({.held = 256, .tokens = 2});  // no cell is free
  all.push_back({.held = 155, .tokens = 5, .streams = 3});
  all.push_back({.held = 40, .tokens = 12});  // some see less than the budget
  for (std::int64_t held : {1, 3, 4}) all.push_back({.held = held, .tokens = held, .streams = 2});  // no group, and one
  all.push_back({.held = 1001, .tokens = 1, .cells = 1024, .budget = 256, .group = 8, .index_heads = 2});
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0})
    all.push_back({.held = 151, .tokens = 4, .streams = 2, .type = type});
  return all;
}

std::string described(const QsaShape& s) {
  return std::string(ggml_type_name(s.type)) + ", " + std::to_string(s.held) + " held, " + std::to_string(s.tokens) +
         " tokens of " + std::to_string(s.streams) + " streams";
}

TEST(Qsa, IsTheEngineBitForBitWhateverTheThreads) {
  std::uint64_t seed = 0;
  for (const QsaShape& shape : shapes()) {
    const auto model = model_of(shape, ++seed);
    const EngineAnswer want = by_engine(*model);
    ASSERT_FALSE(want.output.empty());
    for (const int threads : {1, 2, 4}) {
      Context context(threads);
      const std::uint64_t chains = counters().chains, pools = counters().pools;
      EXPECT_TRUE(context.run(*model, 0, shape.tokens) == want.output) << described(shape) << ", " << threads;
      EXPECT_EQ(counters().chains, chains + 1) << described(shape);
      EXPECT_EQ(counters().pools, pools + 1) << described(shape);
    }
  }
}

TEST(Qsa, OfATokenIsTheSameAloneAndInAnyBatch) {
  const auto model = model_of({.held = 190, .tokens = 90}, 77);
  Context context(2);
  const auto together = context.run(*model, 0, 90);
  const std::size_t each = together.size() / 90;
  for (const std::int64_t token : {0, 1, 41, 64, 89}) {
    const auto alone = context.run(*model, token, 1);
    ASSERT_EQ(alone.size(), each);
    EXPECT_EQ(std::memcmp(alone.data(), together.data() + static_cast<std::size_t>(token) * each, each), 0) << token;
  }
}

TEST(Qsa, TheSelectionAloneHasTheEnginesRows) {
  std::uint64_t seed = 200;
  for (const QsaShape& shape : shapes()) {
    const auto model = model_of(shape, ++seed);
    Context context(2);
    const std::uint64_t chains = counters().chains;
    EXPECT_TRUE(context.run(*model, 0, shape.tokens, QsaEnd::kSelection) ==
                filled_rows(by_engine(*model), shape.width()))
        << described(shape);
    EXPECT_EQ(counters().chains, chains + 1);
  }
}

TEST(Qsa, IsComputedNodeByNodeWhileSomebodyLooksOn) {
  std::uint64_t seed = 300;
  for (const QsaShape& shape : shapes()) {
    const auto model = model_of(shape, ++seed);
    const EngineAnswer want = by_engine(*model);
    Context context(2);
    Watcher watcher;
    const std::uint64_t chains = counters().chains;
    const auto got = context.run(*model, 0, shape.tokens, QsaEnd::kAttention, &watcher);
    EXPECT_EQ(counters().chains, chains);
    ASSERT_EQ(watcher.seen.size(), 3u);
    EXPECT_TRUE(watcher.seen[2] == filled_rows(want, shape.width())) << described(shape);
    EXPECT_TRUE(got == want.output) << described(shape);  // the row is the same, so is what is read of it
  }
}

TEST(Qsa, IsComputedNodeByNodeWhereAnIntermediateIsAnOutput) {
  const auto model = model_of({}, 400);
  const auto want = by_engine(*model).output;
  for (ggml_tensor* QsaModel::* shown : {&QsaModel::group_scores, &QsaModel::pooled_keys}) {
    Context context(2);
    const std::uint64_t chains = counters().chains;
    const auto got = context.run(*model, 0, model->shape.tokens, QsaEnd::kAttention, nullptr, shown);
    // Pooled keys are written in any case.
    EXPECT_EQ(counters().chains, chains + (shown == &QsaModel::pooled_keys ? 1 : 0));
    EXPECT_TRUE(got == want);
  }
}

// n mod r = r - 1 is the one tail for which llama.cpp's own selection is exact.
TEST(Qsa, IsNearWhatGgmlComputesWhereItsSelectionIsExact) {
  const auto model = model_of({.held = 151, .tokens = 1}, 500);
  Context ours(2), theirs(2, false);
  const auto got = ours.run(*model, 0, 1), want = theirs.run(*model, 0, 1);
  EXPECT_LT(normalized_error(got, want), 5e-4);
}

// A query that our attention refuses, behind others that it has answered: their output is there already.
TEST(Qsa, IsLeftToGgmlWithEverythingThatItReads) {
  for (const std::int64_t head_dim : {8, 16, 32}) {  // some lay the output over what a node before has read
    const auto model =
        model_of({.held = 250, .tokens = 90, .budget = 32, .heads = 2, .kv_heads = 1, .head_dim = head_dim}, 550);
    const std::int64_t each = model->shape.heads * model->shape.head_dim;
    model->queries[static_cast<std::size_t>(80 * each)] = std::numeric_limits<float>::quiet_NaN();
    Context ours(2), theirs(2, false);
    const std::uint64_t left = counters().left_to_ggml;
    const auto got = ours.run(*model, 0, 90);
    EXPECT_EQ(counters().left_to_ggml, left + 1);
    EXPECT_TRUE(got == theirs.run(*model, 0, 90)) << head_dim;
  }
}

// The memory of its cache may be another context's next, whose flash attention "auto" we must not switch off.
TEST(Qsa, TheCacheOfAContextThatComputedNothingIsForgotten) {
  const auto model = model_of({}, 560);
  {
    QsaContext context(1);
    model->build(0, 1);
    ASSERT_TRUE(context.prepare(*model, QsaEnd::kAttention));
  }
  model->build(0, 1);
  EXPECT_FALSE(flash_gate().opens_for(model->attention));
  flash_gate().forget({cache_behind(model->attention->src[1])});
}

TEST(QsaRow, KeepsTheTailsPlaceAndTakesWholeGroups) {
  EXPECT_EQ(groups_that_fit(35, 4, 0), 8);
  EXPECT_EQ(groups_that_fit(35, 4, 3), 8);
  EXPECT_EQ(groups_that_fit(35, 4, 4), 7);
  EXPECT_EQ(groups_that_fit(35, 4, 40), 0);
}

TEST(QsaRow, OfCellsPrefersTheEarlierGroupAndRepeatsItsLastCell) {
  // Three groups of two in cells 0..5, cell 6 the tail, cell 7 hidden; the width holds one group and a tail.
  const float hidden = -kInfinity;
  const std::vector<float> scores{1, 1, 2, 2, 2, 2, 1e9f, hidden};
  const std::vector<std::int32_t> groups{0, 0, 1, 1, 2, 2, 3, 3};
  QsaScratch scratch;
  std::vector<std::int32_t> row(4, -1);
  qsa_row_of_cells(scores, groups, 4, 2, scratch, row);
  EXPECT_EQ(row, (std::vector<std::int32_t>{2, 3, 6, 6}));
  qsa_row_of_cells(std::vector<float>(8, hidden), groups, 4, 2, scratch, row);
  EXPECT_EQ(row, (std::vector<std::int32_t>{0, 0, 0, 0}));  // nothing is visible: any cell will do
}

TEST(QsaRow, OfGroupsThatStandOutOfOrderAscends) {
  const std::vector<std::int32_t> members{6, 7, 2, 3, 0, 1};
  const std::vector<std::uint16_t> mask{0, 0, 0, 0xfc00, 0, 0, 0, 0};
  QsaScratch scratch;
  scratch.scores = {3.0f, 2.0f, 1.0f};
  scratch.forced = {4};
  std::vector<std::int32_t> row(6, -1);
  ASSERT_EQ(qsa_row_of_groups(members.data(), 2, mask.data(), scratch, row), 4);
  row.resize(4);
  EXPECT_EQ(row, (std::vector<std::int32_t>{2, 4, 6, 7}));
}

}  // namespace
}  // namespace seriatim::plugin
