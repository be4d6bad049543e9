#include "seriatim/borrow.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "support/lent.hpp"
#include "support/random.hpp"

namespace seriatim {
namespace {

using namespace testing;
using Form = LentLayout::Form;

std::string describe(const LentLayout& layout) {
  return "form " + std::to_string(static_cast<int>(layout.form)) + ", order " + std::string(layout.order) +
         ", pages of " + std::to_string(layout.page_tokens) + ", first slot " + std::to_string(layout.first_slot) +
         ", padding " + std::to_string(layout.padding);
}

// A latent layer: one head whose leading dims are the value.
GeometryOptions latent(DType dtype) {
  GeometryOptions options = small_path(1, dtype);
  options.budget_tokens = 24;
  options.kv_heads = 1;
  options.values_alias_keys = true;
  options.pooling = Pooling::kNone;
  return options;
}

std::vector<GeometryOptions> geometries() {
  std::vector<GeometryOptions> all;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    all.push_back(small_path(4, dtype));
    all.push_back(latent(dtype));
  }
  return all;
}

void expect_same(const Story& story, std::int64_t tokens, const LentLayout& layout, const Answers& want,
                 Kernels kernels = default_kernels()) {
  const LentStory lent(story, tokens, layout);
  BorrowedLayer layer(story.geometry);
  const Status bound = layer.bind(lent.run(), lent.tensors());
  ASSERT_TRUE(bound.ok()) << bound.message() << ": " << describe(layout);
  EXPECT_TRUE(same_answers(ask_all(layer.view(), story, kernels), want)) << describe(layout);
}

TEST(Borrow, GivesTheBitsOfACacheInEveryLayoutDtypeAndPageSize) {
  for (const GeometryOptions& options : geometries()) {
    const Story story(options, 300, 31, 1000);
    const HeldStory held(story, 300);
    const Snapshot snapshot = held.snapshot();
    const Answers want = ask_all(snapshot.layer(0), story);
    EXPECT_GT(sparse_rows(want), 200);
    for (const std::string_view order : {"th", "ht"}) {
      for (const std::int64_t first_slot : {0, 37}) {
        for (const std::int64_t padding : {0, 5}) {
          expect_same(story, 300, {Form::kArray, order, 0, first_slot, padding}, want);
          for (const std::int64_t page_tokens : {16, 64, 128, 256}) {
            for (const bool wide : {false, true})
              expect_same(story, 300, {Form::kPool, order, page_tokens, first_slot, padding, wide}, want);
            expect_same(story, 300, {Form::kAddresses, order, page_tokens, first_slot, padding}, want);
          }
        }
      }
    }
  }
}

TEST(Borrow, GivesTheBitsOfACacheOnEveryKernel) {
  std::int64_t compared = 0;
  for (const Kernels& kernels : Kernels::available()) {
    for (const GeometryOptions& options : geometries()) {
      const Story story(options, 150, 33, 7);
      const HeldStory held(story, 150);
      const Snapshot snapshot = held.snapshot();
      const Answers want = ask_all(snapshot.layer(0), story, Kernels::reference());
      expect_same(story, 150, {Form::kPool, "ht", 16, 5}, want, kernels);
      expect_same(story, 150, {Form::kArray, "th", 16, 5, 3}, want, kernels);
      ++compared;
    }
  }
  EXPECT_GE(compared, 6);
}

TEST(Borrow, RandomLayoutsGiveTheBitsOfACache) {
  Random random(35);
  const auto all = geometries();
  for (int round = 0; round < 150; ++round) {
    GeometryOptions options = all[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(all.size())))];
    const std::int64_t tokens = 1 + random.below(120);
    const Story story(options, tokens, random.next(), random.below(5000));
    const HeldStory held(story, tokens);
    const Snapshot snapshot = held.snapshot();
    LentLayout layout;
    layout.form = static_cast<Form>(random.below(3));
    layout.order = random.below(2) == 0 ? "th" : "ht";
    layout.page_tokens = 1 + random.below(40);
    layout.first_slot = random.below(100);
    layout.padding = random.below(7);
    layout.wide_entries = random.below(2) == 0;
    layout.seed = random.next();
    expect_same(story, tokens, layout, ask_all(snapshot.layer(0), story));
  }
}

TEST(Borrow, TakesTheIndexOfAnotherView) {
  const Story story(small_path(), 100, 37, 9);
  const HeldStory held(story, 100);
  const Snapshot snapshot = held.snapshot();
  const LayerView cached = snapshot.layer(0);
  LentStory lent(story, 100, {Form::kPool, "th", 16});
  lent.tensors().panels = {};
  lent.tensors().index = &cached;
  BorrowedLayer layer(story.geometry);
  ASSERT_TRUE(layer.bind(lent.run(), lent.tensors()).ok());
  EXPECT_TRUE(same_answers(ask_all(layer.view(), story), ask_all(cached, story)));
}

// Raw keys go into an index store, keys and values stay where they are.
TEST(Borrow, AnIndexStoreBesideBorrowedKeysDecodesAsACacheDoes) {
  for (const std::int64_t r : {1, 4}) {
    const Story story(small_path(r), 90, 38, 9);
    const Answers want = one_call(story);
    const LentStory lent(story, 90, {Form::kPool, "ht", 16, 3});
    CacheOptions options;
    options.layers[0].index_norm_weight = story.norm_weight;
    options.capacity_tokens = 1024;
    options.index_only = true;
    auto store = std::move(*Cache::create(story.geometry, options));
    const SequenceId sequence = *store->add(story.anchor);
    BorrowedLayer layer(story.geometry);
    Engine engine = engine_for(story.geometry, 90);
    Answers got(story.geometry, 90);
    for (std::int64_t t = 0; t < 90; ++t) {
      auto transaction = store->begin();
      TokenBatch token = story.batch(t, 1);
      token.keys = token.values = {};
      ASSERT_TRUE(transaction->append(sequence, 0, token).ok());
      const LayerView index = *transaction->layer(sequence, 0);
      BorrowedTensors tensors = lent.tensors();
      tensors.panels = {};
      tensors.index = &index;
      ASSERT_TRUE(layer.bind({story.anchor, t + 1}, tensors).ok());
      ASSERT_TRUE(ask(layer.view(), story, std::vector<std::int64_t>{t}, engine, got, t).ok());
      ASSERT_TRUE(transaction->commit().ok());
      if (t % 13 != 12) continue;  // a rejected draft
      ASSERT_TRUE(store->truncate(sequence, t - 2).ok());
      transaction = store->begin();
      token = story.batch(t - 2, 3);
      token.keys = token.values = {};
      ASSERT_TRUE(transaction->append(sequence, 0, token).ok());
      ASSERT_TRUE(transaction->commit().ok());
    }
    EXPECT_TRUE(same_answers(got, want));
  }
}

TEST(Borrow, APanelMayBeginWithGroupsThatAreGone) {
  const Story story(small_path(), 100, 39);
  const LentStory lent(story, 100, {Form::kArray, "th"});
  BorrowedTensors tensors = lent.tensors();
  tensors.first_slot = 20;
  tensors.first_group = 5;
  BorrowedLayer layer(story.geometry);
  ASSERT_TRUE(layer.bind({20, 80}, tensors).ok());
  HeldStory evicted(story, 100);
  ASSERT_TRUE(evicted.cache().evict_prefix(evicted.sequence(), 20).ok());
  const Snapshot left = evicted.snapshot();
  Engine engine = engine_for(story.geometry, 100);
  Answers got(story.geometry, 80);
  Answers want(story.geometry, 80);
  const auto tokens = every_token(20, 80);
  ASSERT_TRUE(ask(layer.view(), story, tokens, engine, got).ok());
  ASSERT_TRUE(ask(left.layer(0), story, tokens, engine, want).ok());
  EXPECT_TRUE(same_answers(got, want));
}

TEST(Borrow, IsBoundAnewAsTokensCome) {
  const Story story(small_path(), 120, 41);
  LentStory lent(story, 120, {Form::kPool, "ht", 16});
  BorrowedLayer layer(story.geometry);
  for (const std::int64_t tokens : {0, 1, 15, 16, 17, 119, 120}) {
    ASSERT_TRUE(layer.bind({0, tokens}, lent.tensors()).ok()) << tokens;
    if (tokens == 0) continue;
    const HeldStory held(story, tokens);
    const Snapshot snapshot = held.snapshot();
    EXPECT_TRUE(same_answers(ask_all(layer.view(), story), ask_all(snapshot.layer(0), story))) << tokens;
  }
}

TEST(Borrow, AMovedLayerKeepsItsView) {
  const Story story(small_path(), 60, 43);
  const LentStory lent(story, 60, {Form::kPool, "th", 16});
  BorrowedLayer layer(story.geometry);
  ASSERT_TRUE(layer.bind(lent.run(), lent.tensors()).ok());
  const Answers want = ask_all(layer.view(), story);
  std::vector<BorrowedLayer> moved;
  moved.push_back(std::move(layer));
  moved.reserve(10);
  EXPECT_TRUE(same_answers(ask_all(moved[0].view(), story), want));
}

TEST(Borrow, ReadsNoEntryOfPagesWithoutTokens) {
  const Story story(small_path(), 40, 45);
  LentStory lent(story, 40, {Form::kPool, "th", 16, 50});  // three pages hold none
  ASSERT_EQ(lent.entries()[0], -1);
  BorrowedLayer layer(story.geometry);
  EXPECT_TRUE(layer.bind(lent.run(), lent.tensors()).ok());
}

TEST(Borrow, ALayerWithoutKeysPlansAndCannotAttend) {
  const Story story(small_path(), 100, 47);
  const HeldStory held(story, 100);
  const Snapshot snapshot = held.snapshot();
  LentStory lent(story, 100, {});
  lent.tensors().keys = lent.tensors().values = {};
  BorrowedLayer layer(story.geometry);
  ASSERT_TRUE(layer.bind(lent.run(), lent.tensors()).ok());
  const std::vector<std::int64_t> tokens{60, 99};
  const Asked asked(story, tokens);
  Answers got(story.geometry, 2);
  Answers want(story.geometry, 2);
  Engine engine = engine_for(story.geometry, 100);
  ASSERT_TRUE(engine.plan(layer.view(), asked.for_plan(), NanPolicy::kRefuse, got.rows_from(0)).ok());
  ASSERT_TRUE(engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse, want.rows_from(0)).ok());
  EXPECT_TRUE(same_bits(got.rows, want.rows));
  const Status status =
      engine.attend(layer.view(), asked.for_attend(), got.rows_from(0), got.output.writable(), got.lse.writable());
  EXPECT_TRUE(fails_with(status, Code::kInvalidArgument, "layer"));
  EXPECT_TRUE(got.outputs_untouched());
}

TEST(Borrow, ALayerWithoutAnIndexAttends) {
  const Story story(small_path(), 30, 49);
  LentStory lent(story, 30, {Form::kAddresses, "ht", 8});
  lent.tensors().panels = {};
  BorrowedLayer layer(story.geometry);
  ASSERT_TRUE(layer.bind(lent.run(), lent.tensors()).ok());
  EXPECT_FALSE(layer.view().indexed);
  const HeldStory held(story, 30);
  const Snapshot snapshot = held.snapshot();
  const std::vector<std::int64_t> tokens{29};
  const Asked asked(story, tokens);
  Answers got(story.geometry, 1);
  Answers want(story.geometry, 1);
  Engine engine = engine_for(story.geometry, 30);
  ASSERT_TRUE(ask(snapshot.layer(0), story, tokens, engine, want).ok());
  ASSERT_TRUE(
      engine.attend(layer.view(), asked.for_attend(), want.rows_from(0), got.output.writable(), got.lse.writable())
          .ok());
  EXPECT_TRUE(same_bits(got.output.bytes(), want.output.bytes()));
}

}  // namespace
}  // namespace seriatim
