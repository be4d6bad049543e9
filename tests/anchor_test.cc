// Where a sequence starts moves its rows and nothing else.
#include <gtest/gtest.h>

#include <cstring>

#include "seriatim/score.hpp"
#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr std::int64_t kAnchors[] = {0, 1, 3, 1'000'003};

// `answers` with every row moved to anchor 0.
Answers moved_back(Answers answers, std::int64_t anchor) {
  for (std::int32_t& entry : answers.rows) {
    if (entry >= 0) entry -= static_cast<std::int32_t>(anchor);
  }
  return answers;
}

// Kind of unslothai/llama.cpp#114: groups counted from position 0 instead of from the sequence's first token.
TEST(Anchor, WithoutRotationShiftsRowsAndNothingElse) {
  for (const std::int64_t group_tokens : {1, 3, 4}) {
    GeometryOptions options = small_path(group_tokens);
    options.index_rotary_dim = 0;
    const Answers expected = one_call(Story(options, 150, 91, 0));
    ASSERT_GT(sparse_rows(expected), 50);
    for (const std::int64_t anchor : kAnchors) {
      const Answers answers = one_call(Story(options, 150, 91, anchor));
      ASSERT_EQ(answers.row(0).size(), 1u);
      EXPECT_EQ(answers.row(0)[0], anchor);
      EXPECT_TRUE(same_answers(moved_back(answers, anchor), expected))
          << "groups of " << group_tokens << ", anchor " << anchor;
    }
  }
}

// Rotation by coordinates that the caller gives: they, not the anchor, say where a key is rotated to.
TEST(Anchor, WithCoordinatesGivenShiftsRowsAndNothingElse) {
  GeometryOptions options = small_path();
  options.rope_axes = {0, 2};
  const auto at = [&](std::int64_t anchor) {
    Story story(small_path(), 150, 92, 0);
    Story placed(options, 0, 92, anchor);
    placed.keys = story.keys;
    placed.values = story.values;
    placed.index_keys = story.index_keys;
    placed.queries = story.queries;
    placed.raw_index_queries = story.raw_index_queries;
    for (std::int32_t t = 0; t < 150; ++t) placed.coordinates.push_back({t / 3, t, 2 * t});
    placed.prepare();
    return one_call(placed);
  };
  const Answers expected = at(0);
  ASSERT_GT(sparse_rows(expected), 50);
  for (const std::int64_t anchor : kAnchors)
    EXPECT_TRUE(same_answers(moved_back(at(anchor), anchor), expected)) << anchor;
}

// Rotation by position: keys and queries are rotated to their logical positions, so the scores' roundings, and with
// them the sets, may differ from anchor to anchor. What must hold is the definition at each anchor: groups from the
// anchor, each rotated to the position of its own first token.
TEST(Anchor, RotatesGroupsToThePositionOfTheirFirstToken) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const std::int64_t anchor : kAnchors) {
      const Story story(small_path(4, dtype), 150, 93, anchor);
      const Geometry& geometry = story.geometry;
      HostTensor pooled(dtype, {37, 8});
      ASSERT_TRUE(pool_keys(geometry, story.norms(), story.index_keys.view(), anchor, nullptr, pooled.writable()).ok());
      HeldStory held(story, 150);
      const Snapshot snapshot = held.snapshot();
      const LayerView layer = snapshot.layer(0);
      ASSERT_EQ(layer.pooled.groups, 37);
      HostTensor kept(dtype, {37, 8});
      const auto element = static_cast<std::size_t>(dtype_bytes(dtype));
      for (std::int64_t g = 0; g < 37; ++g) {
        for (std::int64_t i = 0; i < 8; ++i) {
          std::memcpy(kept.writable().at(g, i), layer.pooled.group(g) + i * row_bytes(dtype, PooledKeys::kPanelGroups),
                      element);
        }
      }
      EXPECT_TRUE(same_bits(kept.bytes(), pooled.bytes())) << anchor;

      std::vector<std::byte> panels(static_cast<std::size_t>(panel_bytes(geometry, 37)));
      ASSERT_TRUE(pack_pooled_keys(geometry, pooled.view(), panels.data()).ok());
      const std::byte* pages[] = {panels.data()};
      const Answers answers = one_call(story);
      for (std::int64_t t = 0; t < 150; ++t) {
        const std::int64_t groups = (t + 1) / 4;
        std::vector<float> scores(static_cast<std::size_t>(groups));
        PooledKeys visible{.pages = pages, .page_groups = 48, .groups = groups, .dim = 8, .dtype = dtype};
        ASSERT_TRUE(score_groups(geometry, row_of(story.index_queries.view(), t), {}, visible, scores).ok());
        std::vector<std::int32_t> scratch(static_cast<std::size_t>(plan_row_scratch_entries(geometry, t + 1)));
        std::vector<std::int32_t> row(static_cast<std::size_t>(geometry.row_capacity()));
        const auto count = plan_row(geometry, {anchor, t + 1}, scores, NanPolicy::kRefuse, scratch, row);
        ASSERT_TRUE(count.ok());
        EXPECT_TRUE(
            same_bytes(answers.row(t), std::span<const std::int32_t>(row).first(static_cast<std::size_t>(*count))))
            << "token " << t;
      }
    }
  }
}

TEST(Anchor, GivenScoresShiftRowsExactly) {
  const Geometry geometry = *Geometry::admit(small_path());
  Random random(94);
  std::vector<float> scores(37);
  for (float& score : scores) score = random.normal();
  std::vector<std::int32_t> scratch(static_cast<std::size_t>(plan_row_scratch_entries(geometry, 150)));
  std::vector<std::int32_t> at_zero(static_cast<std::size_t>(geometry.row_capacity()));
  const std::int64_t count = *plan_row(geometry, {0, 150}, scores, NanPolicy::kRefuse, scratch, at_zero);
  ASSERT_EQ(count, 34);
  for (const std::int64_t anchor : kAnchors) {
    std::vector<std::int32_t> row(at_zero.size());
    ASSERT_EQ(*plan_row(geometry, {anchor, 150}, scores, NanPolicy::kRefuse, scratch, row), count);
    for (std::size_t i = 0; i < 34; ++i) EXPECT_EQ(row[i], at_zero[i] + anchor);
    EXPECT_EQ(row[34], kRowPadding);
  }
}

TEST(Anchor, TheLastPositionsThereAreWorkLikeAnyOther) {
  GeometryOptions options = small_path();
  options.index_rotary_dim = 0;
  const std::int64_t anchor = Geometry::kPositions - 150;
  const Answers answers = one_call(Story(options, 150, 91, anchor));
  EXPECT_EQ(answers.row(148).back(), Geometry::kPositions - 2) << "the raw tail";
  EXPECT_TRUE(same_answers(moved_back(answers, anchor), one_call(Story(options, 150, 91, 0))));
}

}  // namespace
}  // namespace seriatim
