// One call, chunks of any size and one-token decode give the same rows and the same bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

struct Shape {
  std::int64_t group_tokens;
  DType dtype;
};

class Chunking : public ::testing::TestWithParam<Shape> {
 protected:
  Story story() const {
    GeometryOptions options = small_path(GetParam().group_tokens, GetParam().dtype);
    Story story(options, 193, 81 + static_cast<std::uint64_t>(GetParam().group_tokens), 5);
    story.sinks = {0.5f, -1.0f, 2.0f, 0.0f};
    return story;
  }
};

// Appends `chunk` tokens at a time and asks for each chunk before the next, on the staged or on the published state.
Answers in_chunks(const Story& story, std::int64_t chunk, bool staged) {
  HeldStory held(story, 0, 16 * story.geometry.group_tokens());
  Answers answers(story.geometry, story.tokens());
  Engine engine = engine_for(story.geometry, story.tokens());
  while (held.held() < story.tokens()) {
    const std::int64_t first = held.held();
    const auto tokens = every_token(first, std::min(chunk, story.tokens() - first));
    Status status;
    if (staged) {
      auto transaction = held.cache().begin();
      held.stage(*transaction, static_cast<std::int64_t>(tokens.size()));
      const auto layer = transaction->layer(held.sequence(), 0);
      EXPECT_TRUE(layer.ok()) << layer.status().message();
      status = ask(*layer, story, tokens, engine, answers, first);
      EXPECT_TRUE(transaction->commit().ok());
    } else {
      held.append(static_cast<std::int64_t>(tokens.size()));
      const Snapshot snapshot = held.snapshot();
      status = ask(snapshot.layer(0), story, tokens, engine, answers, first);
    }
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) break;
  }
  return answers;
}

// Kind of sglang#36497 and pypto-lib#592: prefill in chunks chose other tokens than one call.
TEST_P(Chunking, ChunksOfAnySizeEqualOneCall) {
  const Story whole = story();
  const Answers expected = one_call(whole);
  ASSERT_GT(sparse_rows(expected), 100);
  for (const std::int64_t chunk : {2, 3, 5, 64}) {
    EXPECT_TRUE(same_answers(in_chunks(whole, chunk, false), expected)) << "chunks of " << chunk;
    EXPECT_TRUE(same_answers(in_chunks(whole, chunk, true), expected)) << "staged chunks of " << chunk;
  }
}

TEST_P(Chunking, DecodeTokenByTokenEqualsOneCall) {
  const Story whole = story();
  const Answers expected = one_call(whole);
  ASSERT_GT(sparse_rows(expected), 100);
  EXPECT_TRUE(same_answers(in_chunks(whole, 1, false), expected));
  EXPECT_TRUE(same_answers(in_chunks(whole, 1, true), expected)) << "asked before the commit";
}

INSTANTIATE_TEST_SUITE_P(Groups, Chunking,
                         ::testing::Values(Shape{1, DType::kF32}, Shape{2, DType::kF32}, Shape{3, DType::kF32},
                                           Shape{4, DType::kF32}, Shape{7, DType::kF32}, Shape{1, DType::kBf16},
                                           Shape{2, DType::kBf16}, Shape{3, DType::kBf16}, Shape{4, DType::kBf16},
                                           Shape{7, DType::kBf16}, Shape{4, DType::kF16}),
                         [](const auto& shape) {
                           return std::string(dtype_name(shape.param.dtype)) + "_of_" +
                                  std::to_string(shape.param.group_tokens);
                         });

TEST(ChunkingOfOptions, FinishedIndexKeysAndAliasedValuesChunkAlike) {
  GeometryOptions options = small_path(1);
  options.pooling = Pooling::kNone;
  options.values_alias_keys = true;
  options.scale_at = ScaleAt::kBeforeRelu;
  Story story(options, 120, 82);
  Random random(83);
  story.head_weights = random_tensor(random, DType::kF32, {120, 3});
  const Answers expected = one_call(story);
  ASSERT_GT(sparse_rows(expected), 100);
  for (const std::int64_t chunk : {1, 5}) EXPECT_TRUE(same_answers(in_chunks(story, chunk, true), expected)) << chunk;
}

TEST(ChunkingOfOptions, OneBitOfOneInputShowsInTheAnswers) {
  // Shows that the comparisons above see anything at all.
  Story story(small_path(), 193, 84);
  const Answers expected = one_call(story);
  EXPECT_TRUE(same_answers(one_call(story), expected));
  Story changed = story;
  changed.values.set(0, std::nextafter(changed.values.get(0), 10.0f));
  EXPECT_FALSE(same_answers(one_call(changed), expected));
}

}  // namespace
}  // namespace seriatim
