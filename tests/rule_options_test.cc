// Tails, forced groups, best units and row sets (contract sections 9 to 13), alone and together, against plain walking;
// and captures of Transformers' minimax_m3_vl, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "seriatim/attend.hpp"
#include "seriatim/capture.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/file.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/score.hpp"
#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr std::int64_t kTokens = 150;

struct Rule {
  Pooling pooling;
  Tail tail;
  std::int64_t group_tokens;
  std::int64_t first, newest;
  bool outside;
  std::int64_t selections;
  DType dtype = DType::kF32;
};

GeometryOptions options_of(const Rule& rule) {
  GeometryOptions options = small_path(rule.group_tokens, rule.dtype);
  options.budget_tokens = 5 * rule.group_tokens;
  options.kv_heads = 4;
  options.query_heads = 8;
  options.index_heads = 4;
  options.pooling = rule.pooling;
  options.tail = rule.tail;
  options.forced_first = rule.first;
  options.forced_newest = rule.newest;
  options.forced_outside = rule.outside;
  options.selections = rule.selections;
  return options;
}

std::string name_of(const Rule& rule) {
  return std::string(pooling_name(rule.pooling)) + ", tail " + std::string(tail_name(rule.tail)) + ", r " +
         std::to_string(rule.group_tokens) + ", first " + std::to_string(rule.first) + ", newest " +
         std::to_string(rule.newest) + (rule.outside ? " outside, " : " inside, ") + std::to_string(rule.selections) +
         " selections, " + std::string(dtype_name(rule.dtype));
}

// Every concept alone and in pairs; what cannot be (a partial group without a key that is not forced) is left out.
std::vector<Rule> rules() {
  std::vector<Rule> all;
  for (const Pooling pooling : {Pooling::kMean, Pooling::kUnitMax}) {
    for (const Tail tail : {Tail::kRaw, Tail::kGroup}) {
      for (const auto& [first, newest, outside] :
           {std::tuple{0, 0, false}, {0, 1, false}, {2, 1, false}, {1, 0, true}, {1, 2, true}, {3, 2, false}}) {
        for (const std::int64_t selections : {1, 2, 4}) {
          if (pooling == Pooling::kMean && tail == Tail::kGroup && newest == 0) continue;
          const DType dtype = selections == 2 ? DType::kBf16 : DType::kF32;
          all.push_back({pooling, tail, selections == 4 ? 3 : 4, first, newest, outside, selections, dtype});
        }
      }
    }
  }
  all.push_back({Pooling::kUnitMax, Tail::kGroup, 16, 0, 1, false, 4, DType::kF32});
  all.push_back({Pooling::kUnitMax, Tail::kGroup, 21, 0, 1, false, 1, DType::kF16});
  all.push_back({Pooling::kUnitMax, Tail::kGroup, 1, 1, 1, true, 2, DType::kF32});
  return all;
}

// The scores of one selection's groups, from those of keys by the score room, maxima by walking.
std::vector<float> scores_of(const Story& story, const LayerView& layer, std::int64_t token, std::int64_t selection) {
  const Geometry& g = story.geometry;
  const std::int64_t heads = g.heads_per_selection();
  ConstTensor query = row_of(story.index_queries.view(), token);
  query.data = query.at(selection * heads);
  query.shape[0] = heads;
  const PooledKeys keys = layer.pooled_up_to(story.anchor + token);
  std::vector<float> scores(static_cast<std::size_t>(keys.groups));
  EXPECT_TRUE(score_groups(g, query, {}, keys, scores).ok());
  std::vector<float> groups(static_cast<std::size_t>(g.groups(token + 1)), -INFINITY);
  const auto group_keys = static_cast<std::size_t>(g.pooling() == Pooling::kUnitMax ? g.group_tokens() : 1);
  for (std::size_t i = 0; i < scores.size() && i / group_keys < groups.size(); ++i)
    groups[i / group_keys] = std::max(groups[i / group_keys], scores[i]);
  return groups;
}

// Contract section 11 by walking.
std::vector<std::int32_t> row_by_walking(const Geometry& g, std::int64_t anchor, std::int64_t tokens,
                                         const std::vector<float>& scores) {
  const auto groups = static_cast<std::int64_t>(scores.size());
  std::set<std::int64_t> chosen;
  for (std::int64_t i = 0; i < groups; ++i) {
    if (i < g.forced_first() || i >= groups - g.forced_newest()) chosen.insert(i);
  }
  const std::size_t most = static_cast<std::size_t>(g.budget_groups()) + (g.forced_outside() ? chosen.size() : 0);
  while (chosen.size() < std::min(most, scores.size())) {
    std::int64_t best = -1;
    for (std::int64_t i = 0; i < groups; ++i) {
      if (chosen.count(i) == 0 &&
          (best < 0 || scores[static_cast<std::size_t>(i)] > scores[static_cast<std::size_t>(best)]))
        best = i;
    }
    chosen.insert(best);
  }
  std::vector<std::int32_t> row;
  const std::int64_t r = g.group_tokens();
  for (std::int64_t t = 0; t < tokens; ++t) {
    const bool raw = g.tail() == Tail::kRaw && t >= tokens / r * r;
    if (raw || chosen.count(t / r) > 0) row.push_back(static_cast<std::int32_t>(anchor + t));
  }
  return row;
}

// Rows and outputs of all tokens of a story by an engine; positions [Q][S].
struct Answered {
  std::vector<std::int32_t> rows, counts;
  HostTensor output, lse;
};

Answered ask_all(const Story& story, const LayerView& layer, Engine& engine, std::int64_t first, std::int64_t count) {
  const Geometry& g = story.geometry;
  const auto rows = static_cast<std::size_t>(count * g.selections());
  Answered all{std::vector<std::int32_t>(rows * static_cast<std::size_t>(g.row_capacity()), -9),
               std::vector<std::int32_t>(rows, -9), HostTensor(DType::kF32, {count, g.query_heads(), g.value_dim()}),
               HostTensor(DType::kF32, {count, g.query_heads()})};
  const std::vector<std::int64_t> tokens = every_token(first, count);
  const Asked asked(story, tokens);
  const Rows to{all.rows.data(), g.row_capacity(), all.counts.data()};
  const Status planned = engine.plan(layer, asked.for_plan(), NanPolicy::kRefuse, to);
  EXPECT_TRUE(planned.ok()) << planned.message();
  const Status attended = engine.attend(layer, asked.for_attend(), to, all.output.writable(), all.lse.writable());
  EXPECT_TRUE(attended.ok()) << attended.message();
  return all;
}

std::span<const std::int32_t> row_of(const Answered& all, const Geometry& g, std::int64_t row) {
  return std::span(all.rows).subspan(static_cast<std::size_t>(row * g.row_capacity()),
                                     static_cast<std::size_t>(all.counts[static_cast<std::size_t>(row)]));
}

TEST(RuleOptions, RowsAreThoseOfWalkingAndPassTheRowsChecker) {
  std::int64_t sparse = 0;
  for (const Rule& rule : rules()) {
    SCOPED_TRACE(name_of(rule));
    const Story story(options_of(rule), kTokens, 41, 7);
    HeldStory held(story, kTokens);
    const Snapshot snapshot = held.snapshot();
    Engine engine = engine_for(story.geometry, kTokens);
    const Answered all = ask_all(story, snapshot.layer(0), engine, 0, kTokens);
    for (std::int64_t row = 0; row < kTokens * rule.selections; ++row) {
      const std::int64_t token = row / rule.selections;
      const auto scores = scores_of(story, snapshot.layer(0), token, row % rule.selections);
      const auto want = row_by_walking(story.geometry, story.anchor, token + 1, scores);
      ASSERT_TRUE(same_bytes<std::int32_t>(row_of(all, story.geometry, row), want)) << "token " << token;
      const Status checked = check_row(story.geometry, {story.anchor, token + 1}, want);
      ASSERT_TRUE(checked.ok()) << checked.message();
      sparse += std::ssize(want) < token + 1 ? 1 : 0;
      if (token + 1 > story.geometry.row_capacity()) continue;
      ASSERT_EQ(std::ssize(want), token + 1) << "dense parity";
    }
  }
  EXPECT_GT(sparse, 10000);
}

TEST(RuleOptions, KernelsThreadsChunksDecodeAndAnEvictedPrefixChangeNoBit) {
  for (const Rule& rule : rules()) {
    if (rule.first == 3) continue;
    SCOPED_TRACE(name_of(rule));
    const Story story(options_of(rule), kTokens, 42);
    HeldStory held(story, kTokens);
    const Snapshot snapshot = held.snapshot();
    auto plain = Engine::host(serial_executor(), Kernels::reference());
    ASSERT_TRUE(plain.ok());
    const Answered want = ask_all(story, snapshot.layer(0), *plain, 0, kTokens);
    const auto pool = make_executor(3);
    for (Executor* executor : {&serial_executor(), static_cast<Executor*>(pool.get())}) {
      auto engine = Engine::host(*executor);
      ASSERT_TRUE(engine.ok());
      const Answered got = ask_all(story, snapshot.layer(0), *engine, 0, kTokens);
      EXPECT_TRUE(same_bits(got.rows, want.rows));
      EXPECT_TRUE(same_bits(got.output.bytes(), want.output.bytes()));
      EXPECT_TRUE(same_bits(got.lse.bytes(), want.lse.bytes()));
      for (const std::int64_t token : {0, 1, 77, 149}) {  // decode
        const Answered one = ask_all(story, snapshot.layer(0), *engine, token, 1);
        for (std::int64_t s = 0; s < rule.selections; ++s) {
          EXPECT_TRUE(same_bytes<std::int32_t>(row_of(one, story.geometry, s),
                                               row_of(want, story.geometry, token * rule.selections + s)));
        }
        EXPECT_EQ(std::memcmp(one.output.bytes().data(), want.output.view().at(token), one.output.bytes().size()), 0);
      }
    }
  }
}

// A selection is a layer by itself: its index heads, its query heads and its kv heads.
TEST(RuleOptions, ARowSetIsOnePlanAndOneAttendASelection) {
  const Rule rule{Pooling::kUnitMax, Tail::kGroup, 4, 0, 1, false, 2, DType::kF32};
  const Story story(options_of(rule), kTokens, 43);
  HeldStory held(story, kTokens);
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, kTokens);
  const Answered all = ask_all(story, snapshot.layer(0), engine, 0, kTokens);
  for (std::int64_t s = 0; s < 2; ++s) {
    GeometryOptions one = options_of(rule);
    one.selections = 1;
    one.index_heads = 2;
    one.query_heads = 4;
    one.kv_heads = 2;
    Story part(one, kTokens, 43);
    const auto take = [&](const HostTensor& from, HostTensor& to, std::int64_t heads) {
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const ConstTensor wide = from.view();
        std::memcpy(to.writable().at(t), wide.at(t, s * heads),
                    static_cast<std::size_t>(heads * wide.shape[2] * dtype_bytes(wide.dtype)));
      }
    };
    take(story.keys, part.keys, 2);
    take(story.values, part.values, 2);
    take(story.queries, part.queries, 4);
    take(story.index_queries, part.index_queries, 2);
    part.index_keys = story.index_keys;
    HeldStory held_part(part, kTokens);
    const Snapshot alone = held_part.snapshot();
    Engine other = engine_for(part.geometry, kTokens);
    const Answered got = ask_all(part, alone.layer(0), other, 0, kTokens);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      ASSERT_TRUE(same_bytes<std::int32_t>(row_of(got, part.geometry, t), row_of(all, story.geometry, 2 * t + s)));
      const std::int64_t bytes = 4 * story.geometry.value_dim() * 4;
      EXPECT_EQ(std::memcmp(got.output.view().at(t), all.output.view().at(t, 4 * s), static_cast<std::size_t>(bytes)),
                0);
      EXPECT_EQ(std::memcmp(got.lse.view().at(t), all.lse.view().at(t, 4 * s), 16), 0);
    }
  }
}

TEST(RuleOptions, HalvesFoldToTheWholeWithRowsOfDifferentWidths) {
  const Rule rule{Pooling::kUnitMax, Tail::kGroup, 4, 0, 1, false, 4, DType::kF32};
  GeometryOptions options = options_of(rule);
  options.budget_tokens = 400;
  const Story story(options, 700, 44);
  HeldStory held(story, 700);
  const Snapshot snapshot = held.snapshot();
  const Geometry& g = story.geometry;
  Engine engine = engine_for(g, 700);
  Answered all = ask_all(story, snapshot.layer(0), engine, 696, 4);
  all.counts[1] = 100;  // any ascending row may be attended
  all.counts[2] = 0;
  const std::vector<std::int64_t> tokens = every_token(696, 4);
  const Asked asked(story, tokens);
  const ConstRows rows{all.rows.data(), g.row_capacity(), all.counts.data()};
  ASSERT_TRUE(
      engine.attend(snapshot.layer(0), asked.for_attend(), rows, all.output.writable(), all.lse.writable()).ok());
  std::vector<float> partials(static_cast<std::size_t>(4 * 4 * attend_partial_floats(g)));
  const LayerView layer = snapshot.layer(0);
  ASSERT_TRUE(engine.attend_partials({&layer, asked.for_attend()}, rows, 0, 4, partials).ok());
  HostTensor output(DType::kF32, {4, g.query_heads(), g.value_dim()});
  HostTensor lse(DType::kF32, {4, g.query_heads()});
  ASSERT_TRUE(engine.fold_partials(g, partials, 4, {}, output.writable(), lse.writable()).ok());
  EXPECT_TRUE(same_bits(output.bytes(), all.output.bytes()));
  EXPECT_TRUE(same_bits(lse.bytes(), all.lse.bytes()));
}

TEST(RuleOptions, ANanScoreNamesItsGroupItsUnitAndItsSelectionUnlessItsGroupIsForced) {
  const Rule rule{Pooling::kUnitMax, Tail::kGroup, 4, 1, 1, false, 2, DType::kF32};
  GeometryOptions options = options_of(rule);
  options.relu = false;
  Story story(options, 64, 45);
  // Of the two heads of selection 1 one gives +inf, the other -inf.
  const std::int64_t dim = story.geometry.index_dim();
  story.index_queries.set((50 * 4 + 2) * dim, 1e30f);
  story.index_queries.set((50 * 4 + 3) * dim, -1e30f);
  const auto poison = [&](std::int64_t token) {
    for (std::int64_t i = 0; i < dim; ++i) story.index_keys.set(token * dim + i, i == 0 ? 3e38f : 0.0f);
  };
  const auto plan = [&] {
    HeldStory held(story, 64);
    const Snapshot snapshot = held.snapshot();
    Engine engine = engine_for(story.geometry, 64);
    const std::vector<std::int64_t> tokens = every_token(48, 4);
    const Asked asked(story, tokens);
    std::vector<std::int32_t> rows(static_cast<std::size_t>(8 * story.geometry.row_capacity()), -9);
    std::vector<std::int32_t> counts(8, -9);
    const Status status = engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse,
                                      {rows.data(), story.geometry.row_capacity(), counts.data()});
    EXPECT_EQ(status.ok(), std::count(rows.begin(), rows.end(), -9) < std::ssize(rows)) << "written on an error";
    return status;
  };
  poison(2);   // of the first group
  poison(50);  // of the newest one
  EXPECT_TRUE(plan().ok()) << plan().message();
  poison(21);
  const Status refused = plan();
  EXPECT_EQ(refused.code(), Code::kNotANumber);
  EXPECT_EQ(refused.place().row, 2);
  EXPECT_EQ(refused.place().index, 5);
  EXPECT_NE(refused.message().find("unit 21 in group 5 of query 2, selection 1"), std::string_view::npos)
      << refused.message();
}

// minimax_m3_vl: rows are Transformers' own; outputs are the bits of one call a selection.
TEST(RuleOptions, CapturesOfMinimaxM3GiveItsRowsAndTheBitsOfOneCallASelection) {
  for (const char* name : {"m3_f32", "m3_bf16", "m3_own_numbers_bf16"}) {
    SCOPED_TRACE(name);
    const std::string path = std::string(SERIATIM_FIXTURES_DIR) + "/families/" + name + ".safetensors";
    const auto capture = Capture::open(path);
    ASSERT_TRUE(capture.ok()) << capture.status().message();
    const auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file.ok());
    const Geometry& g = capture->geometry;
    auto cache = Cache::create(g, {.layers = {{}}, .capacity_tokens = capture->tokens()});
    ASSERT_TRUE(cache.ok()) << cache.status().message();
    const SequenceId sequence = *(*cache)->add(capture->anchor);
    auto transaction = (*cache)->begin();
    TokenBatch batch;
    batch.keys = capture->keys;
    batch.values = capture->values;
    batch.index_keys = capture->index_keys;
    ASSERT_TRUE(transaction->append(sequence, 0, batch).ok());
    ASSERT_TRUE(transaction->commit().ok());
    const auto snapshot = (*cache)->snapshot(sequence);
    const auto queries = static_cast<std::int64_t>(capture->query_positions.size());
    const auto pool = make_executor(2);
    for (const Kernels& kernels : {Kernels::reference(), default_kernels()}) {
      auto engine = Engine::host(*pool, kernels);
      std::vector<std::int32_t> rows(static_cast<std::size_t>(queries * g.selections() * g.row_capacity()));
      std::vector<std::int32_t> counts(static_cast<std::size_t>(queries * g.selections()));
      HostTensor output(DType::kF32, {queries, g.query_heads(), g.value_dim()});
      HostTensor lse(DType::kF32, {queries, g.query_heads()});
      const Rows to{rows.data(), g.row_capacity(), counts.data()};
      const Status planned = engine->plan(snapshot->layer(0), {capture->index_queries, {}, capture->query_positions},
                                          NanPolicy::kRefuse, to);
      ASSERT_TRUE(planned.ok()) << planned.message();
      ASSERT_TRUE(engine
                      ->attend(snapshot->layer(0), {capture->queries, capture->query_positions, {}}, to,
                               output.writable(), lse.writable())
                      .ok());
      const auto same = [&](const char* tensor, std::span<const std::byte> bytes) {
        const auto want = file->find(tensor);
        ASSERT_TRUE(want.ok()) << tensor;
        EXPECT_EQ(std::memcmp(want->data, bytes.data(), bytes.size()), 0) << tensor;
      };
      same("expected_rows", bytes_of(rows));
      same("canonical_output", output.bytes());
      same("canonical_lse", lse.bytes());
    }
  }
}

}  // namespace
}  // namespace seriatim
