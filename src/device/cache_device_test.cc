// What the device holds after any operation of the cache gives the host's answers, and only what is new crosses.
#include <gtest/gtest.h>

#include <string>

#include "support/device.hpp"
#include "support/folder.hpp"

namespace seriatim::testing {
namespace {

// Queries of the last tokens of a followed state, on the device and on the host.
::testing::AssertionResult answers_agree(DeviceStory& held, const Story& story, std::int64_t first,
                                         std::int64_t count) {
  const auto tokens = every_token(first, count);
  Answers got(story.geometry, count);
  if (Status s = held.ask(tokens, got); !s.ok()) return ::testing::AssertionFailure() << s.message();
  Answers due(story.geometry, count);
  Engine engine = engine_for(story.geometry, story.tokens());
  const Snapshot snapshot = held.snapshot();
  if (Status s = ask(snapshot.layer(0), story, tokens, engine, due); !s.ok())
    return ::testing::AssertionFailure() << s.message();
  return same_answers(got, due);
}

TEST(DeviceCache, DecodeSendsTheNewTokensAlone) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const Story story(small_path(), 400, 21);
  DeviceStory held(story, open_device());
  held.append(300);
  ASSERT_TRUE(held.follow().ok());
  const std::int64_t all = held.on().take_sent_bytes();
  const Geometry& g = story.geometry;
  const std::int64_t token_bytes = (g.kv_heads() * (g.head_dim() + g.value_dim()) + g.index_dim()) * 4;
  EXPECT_GE(all, 300 * token_bytes);
  for (std::int64_t t = 300; t < 400; ++t) {
    held.append(1);
    ASSERT_TRUE(held.follow().ok());
    EXPECT_LE(held.on().take_sent_bytes(), token_bytes + 32) << t;  // and now and then a page's place
    ASSERT_TRUE(answers_agree(held, story, t, 1)) << t;
  }
}

TEST(DeviceCache, StagedTokensAreSeenBeforeTheCommitAndForgottenByARollback) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const Story story(small_path(3), 120, 22);
  const Answers host = one_call(story);
  DeviceStory held(story, open_device());
  held.append(50);
  for (const bool committed : {false, true}) {
    auto transaction = DeviceStory::must(held.cache().begin());
    ASSERT_TRUE(transaction.append(held.id(), 0, story.batch(50, 40)).ok());
    const LayerView staged = *transaction.layer(held.id(), 0);
    Answers got(story.geometry, 40);
    ASSERT_TRUE(held.ask_over(staged, every_token(50, 40), got).ok());
    for (std::int64_t i = 0; i < 40; ++i) ASSERT_TRUE(same_bits(got.of(i), host.of(50 + i))) << i;
    if (committed) {
      ASSERT_TRUE(transaction.commit().ok());
    } else {
      transaction.rollback();
    }
    ASSERT_TRUE(answers_agree(held, story, 40, 10));
  }
  ASSERT_TRUE(answers_agree(held, story, 80, 10));
}

TEST(DeviceCache, TruncateForkEvictCopyAndRestoreAreFollowed) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  for (const std::int64_t r : {1, 3, 4}) {
    const Story story(small_path(r, DType::kBf16), 700, 23);
    DeviceStory held(story, open_device(), 64, 16 * r);
    held.append(500);
    ASSERT_TRUE(held.cache().truncate(held.id(), 333).ok());
    held.set_held(333);
    held.append(67);
    ASSERT_TRUE(answers_agree(held, story, 350, 50)) << r;

    // A fork takes another way; the first goes on undisturbed.
    const SequenceId fork = *held.cache().fork(held.id());
    held.on().take_sent_bytes();
    const auto fork_agrees = [&](std::int64_t first, std::int64_t count) -> ::testing::AssertionResult {
      const Snapshot now = *held.cache().snapshot(fork);
      Answers got(story.geometry, count);
      Answers due(story.geometry, count);
      Engine engine = engine_for(story.geometry, story.tokens());
      if (Status s = held.ask_over(now.layer(0), every_token(first, count), got); !s.ok())
        return ::testing::AssertionFailure() << s.message();
      if (Status s = ask(now.layer(0), story, every_token(first, count), engine, due); !s.ok())
        return ::testing::AssertionFailure() << s.message();
      return same_answers(got, due);
    };
    ASSERT_TRUE(fork_agrees(350, 50)) << r;
    EXPECT_LT(held.on().take_sent_bytes(), 2000) << "a fork sends page tables alone";
    ASSERT_TRUE(held.cache().truncate(fork, 390).ok());
    auto transaction = DeviceStory::must(held.cache().begin());
    ASSERT_TRUE(transaction.append(fork, 0, story.batch(390, 60)).ok());
    ASSERT_TRUE(transaction.commit().ok());
    ASSERT_TRUE(fork_agrees(400, 50)) << r;
    held.append(40);
    ASSERT_TRUE(answers_agree(held, story, 400, 40)) << r;

    for (const std::int64_t evicted : {2 * r, std::int64_t{1}, 16 * r + 5}) {  // whole groups, and not
      ASSERT_TRUE(held.cache().evict_prefix(held.id(), evicted).ok());
      ASSERT_TRUE(answers_agree(held, story, 400, 40)) << r << ", " << evicted << " evicted";
    }
    held.append(30);
    ASSERT_TRUE(answers_agree(held, story, 440, 30)) << r;

    // A copy of a stretch is a sequence of its own, whose slots the device has not seen.
    const std::int64_t from = held.snapshot().run().anchor + 3;
    const SequenceId copied = *held.cache().add(from);
    const std::int64_t until = from + 200;
    ASSERT_TRUE(held.cache().copy(held.id(), from, until - from, copied).ok());
    Answers got(story.geometry, 40);
    const Snapshot stretch = *held.cache().snapshot(copied);
    ASSERT_TRUE(held.ask_over(stretch.layer(0), every_token(until - 40, 40), got).ok());
    Answers due(story.geometry, 40);
    Engine engine = engine_for(story.geometry, story.tokens());
    ASSERT_TRUE(ask(stretch.layer(0), story, every_token(until - 40, 40), engine, due).ok());
    EXPECT_EQ(stretch.run().anchor, from);
    ASSERT_TRUE(same_answers(got, due)) << r << ", copied";

    const file::Folder folder;
    const std::string path = folder / "cache.safetensors";
    const SequenceId saved[] = {held.id()};
    ASSERT_TRUE(held.cache().save(path, saved).ok());
    const auto restored = held.cache().restore(path);
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    const Snapshot copy = *held.cache().snapshot(restored->front().id);
    Answers of_copy(story.geometry, 30);
    Answers of_held(story.geometry, 30);
    ASSERT_TRUE(held.ask_over(copy.layer(0), every_token(440, 30), of_copy).ok());
    ASSERT_TRUE(held.ask(every_token(440, 30), of_held).ok());
    ASSERT_TRUE(same_answers(of_copy, of_held)) << r << ", restored";
    const auto mapped = held.cache().restore(path, RestoreMode::kMap);
    ASSERT_TRUE(mapped.ok()) << mapped.status().message();
    Answers untouched(story.geometry, 1);
    EXPECT_TRUE(
        fails_with(held.ask_over(held.cache().snapshot(mapped->front().id)->layer(0), every_token(440, 1), untouched),
                   Code::kInvalidArgument, "layer"));
    EXPECT_TRUE(untouched.rows_untouched());
    ASSERT_TRUE(answers_agree(held, story, 440, 30)) << r << ", after a refusal";
  }
}

// One call decodes, prefills and speculates over several sequences, some of them staged; each one's bits are the host's
// alone, and a fault anywhere leaves all as it was.
TEST(DeviceCache, ManyAsksOfOneCallHaveTheHostsBits) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const Story story(small_path(4, DType::kBf16), 300, 24);
  const Answers host = one_call(story);
  DeviceStory held(story, open_device(), 200);
  held.append(260);
  const SequenceId fork = *held.cache().fork(held.id());
  ASSERT_TRUE(held.cache().truncate(fork, 100).ok());
  auto transaction = DeviceStory::must(held.cache().begin());
  ASSERT_TRUE(transaction.append(fork, 0, story.batch(100, 40)).ok());
  const Snapshot published = held.snapshot();
  const LayerView layers[] = {published.layer(0), *transaction.layer(fork, 0), published.layer(0)};
  const std::vector<std::int64_t> tokens[] = {{259}, every_token(100, 40), every_token(120, 60)};
  std::vector<Asked> asked;
  for (const auto& some : tokens) asked.emplace_back(story, some);
  std::vector<PlanAsk> plans;
  std::vector<AttendAsk> attends;
  for (std::size_t a = 0; a < 3; ++a) {
    plans.push_back({&layers[a], asked[a].for_plan()});
    attends.push_back({&layers[a], asked[a].for_attend()});
  }
  Answers got(story.geometry, 101);
  ASSERT_TRUE(held.engine().plan(plans, NanPolicy::kRefuse, got.rows_from(0)).ok());
  ASSERT_TRUE(held.engine().attend(attends, got.rows_from(0), got.output.writable(), got.lse.writable()).ok());
  std::int64_t place = 0;
  for (const auto& some : tokens) {
    for (const std::int64_t token : some) ASSERT_TRUE(same_bits(got.of(place++), host.of(token))) << token;
  }
  EXPECT_EQ(held.engine().done().queries, 101);

  Answers untouched(story.geometry, 101);
  const LayerView borrowed = [&] {
    LayerView view = layers[1];
    view.state = nullptr;
    return view;
  }();
  plans[1].layer = &borrowed;
  const Status status = held.engine().plan(plans, NanPolicy::kRefuse, untouched.rows_from(0));
  EXPECT_TRUE(fails_with(status, Code::kInvalidArgument, "layer"));
  EXPECT_EQ(status.place().ask, 1);
  EXPECT_TRUE(untouched.rows_untouched());
}

TEST(DeviceCache, LettingGoFreesThePagesOfASequenceThatIsGone) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const Story story(small_path(), 200, 25);
  DeviceStory held(story, open_device());
  held.append(200);
  ASSERT_TRUE(held.follow().ok());
  const std::int64_t pages = held.cache().bytes().keys_values;
  ASSERT_GT(pages, 0);
  ASSERT_TRUE(held.cache().remove(held.id()).ok());
  EXPECT_EQ(held.cache().bytes().keys_values, pages) << "the engine holds what it was asked about";
  held.engine().let_go();
  EXPECT_EQ(held.cache().bytes().keys_values, 0);
}

}  // namespace
}  // namespace seriatim::testing
