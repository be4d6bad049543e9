#include <gtest/gtest.h>

#include <limits>

#include "support/lent.hpp"

namespace seriatim {
namespace {

using namespace testing;
using Form = LentLayout::Form;

constexpr std::int64_t kTokens = 70;
constexpr LentLayout kPool{Form::kPool, "th", 16, 5};  // pages 0 .. 4
constexpr LentLayout kArray{Form::kArray, "th", 0, 5};
constexpr LentLayout kAddresses{Form::kAddresses, "ht", 16, 5};

class BorrowRefuses : public ::testing::Test {
 protected:
  // What bind() says of tensors that `change` has spoilt. The view stays what it was.
  template <typename Change>
  void expect(const LentLayout& layout, Change&& change, std::string_view argument, std::int64_t index = -1,
              Code code = Code::kInvalidArgument) {
    LentStory lent(story_, kTokens, layout);
    BorrowedLayer layer(story_.geometry);
    ASSERT_TRUE(layer.bind(lent.run(), lent.tensors()).ok());
    const Answers before = ask_all(layer.view(), story_);
    BorrowedTensors tensors = lent.tensors();
    VisibleRun run = lent.run();
    change(tensors, run);
    EXPECT_TRUE(fails_with(layer.bind(run, tensors), code, argument, -1, index));
    EXPECT_TRUE(same_answers(ask_all(layer.view(), story_), before)) << argument;
  }
  // The same for both forms of `values` and `keys`.
  template <typename Change>
  void expect_of_both(const LentLayout& layout, Change&& change, std::int64_t index = -1,
                      Code code = Code::kInvalidArgument) {
    expect(layout, [&](BorrowedTensors& t, VisibleRun&) { change(t.keys); }, "keys", index, code);
    expect(layout, [&](BorrowedTensors& t, VisibleRun&) { change(t.values); }, "values", index, code);
  }

  const Story story_{small_path(), kTokens, 51, 100};
};

TEST_F(BorrowRefuses, TensorsOfAnotherShapeOrDtype) {
  for (const LentLayout& layout : {kArray, kPool, kAddresses}) {
    const std::size_t heads = layout.form == Form::kPool ? 2 : 1;
    expect_of_both(layout, [](ConstTensor& t) { t.dtype = DType::kBf16; });
    expect_of_both(layout, [](ConstTensor& t) { --t.rank; });
    expect_of_both(layout, [&](ConstTensor& t) { ++t.shape[heads]; });
    expect_of_both(layout, [&](ConstTensor& t) { t.shape[heads + 1] = 5; });
  }
}

TEST_F(BorrowRefuses, StridesThatAreNone) {
  for (const LentLayout& layout : {kArray, kPool, kAddresses}) {
    const std::size_t dim = layout.form == Form::kPool ? 3 : 2;
    expect_of_both(layout, [&](ConstTensor& t) { t.stride_bytes[dim - 1] = -64; });
    expect_of_both(layout, [&](ConstTensor& t) { t.stride_bytes[dim - 1] += 2; });
    expect_of_both(layout, [&](ConstTensor& t) { t.stride_bytes[dim] = 8; }, static_cast<std::int64_t>(dim));
  }
}

TEST_F(BorrowRefuses, VectorsThatShareMemoryByAxis) {
  // Tokens of a head, heads of a token, pages of a pool.
  expect_of_both(kArray, [](ConstTensor& t) { t.stride_bytes[0] = 4; }, 0);
  expect_of_both(kArray, [](ConstTensor& t) { t.stride_bytes[1] = 0; }, 1);
  expect_of_both(kPool, [](ConstTensor& t) { t.stride_bytes[0] -= 4; }, 0);
  expect_of_both(kPool, [](ConstTensor& t) { t.stride_bytes[0] = 0; }, 0);
  expect_of_both(kAddresses, [](ConstTensor& t) { t.stride_bytes[0] -= 4; }, 0);
}

TEST_F(BorrowRefuses, TooFewTokensPagesOrPanels) {
  expect_of_both(kArray, [](ConstTensor& t) { t.shape[0] = 5 + kTokens - 1; }, 5 + kTokens - 1);
  expect(kPool, [](BorrowedTensors& t, VisibleRun&) { t.block_table.shape[0] = 4; }, "block_table", 4);
  expect(kAddresses, [](BorrowedTensors& t, VisibleRun&) { t.key_pages = t.key_pages.first(4); }, "key_pages", 4);
  expect(kAddresses, [](BorrowedTensors& t, VisibleRun&) { t.value_pages = t.value_pages.first(4); }, "value_pages", 4);
  expect(kAddresses, [](BorrowedTensors& t, VisibleRun&) { t.value_pages = {}; }, "value_pages", 0);
  expect(kArray, [](BorrowedTensors& t, VisibleRun&) { t.panels.shape[0] = 1; }, "panels", 1);
  expect(kArray, [](BorrowedTensors& t, VisibleRun&) { t.first_group = 16; }, "panels", 2);
}

TEST_F(BorrowRefuses, ATableThatNamesAPageTwiceOrNone) {
  LentStory lent(story_, kTokens, kPool);
  BorrowedLayer layer(story_.geometry);
  const std::vector<std::int32_t> right = lent.entries();
  const std::int64_t pool = lent.tensors().keys.shape[0];
  for (const std::int64_t page : {std::int64_t{-1}, pool, std::int64_t{1} << 30}) {
    lent.entries() = right;
    lent.entries()[2] = static_cast<std::int32_t>(page);
    lent.tensors().block_table.data = reinterpret_cast<const std::byte*>(lent.entries().data());
    EXPECT_TRUE(fails_with(layer.bind(lent.run(), lent.tensors()), Code::kInvalidArgument, "block_table", -1, 2));
  }
  lent.entries() = right;
  lent.entries()[4] = right[1];
  lent.tensors().block_table.data = reinterpret_cast<const std::byte*>(lent.entries().data());
  EXPECT_TRUE(fails_with(layer.bind(lent.run(), lent.tensors()), Code::kInvalidArgument, "block_table", -1, 4));
  // What was refused leaves no page marked as named.
  lent.entries() = right;
  lent.tensors().block_table.data = reinterpret_cast<const std::byte*>(lent.entries().data());
  EXPECT_TRUE(layer.bind(lent.run(), lent.tensors()).ok());
  EXPECT_TRUE(layer.bind(lent.run(), lent.tensors()).ok());
}

TEST_F(BorrowRefuses, PagesOfValuesThatThePoolLacks) {
  LentStory lent(story_, kTokens, kPool);
  BorrowedLayer layer(story_.geometry);
  const auto& entries = lent.entries();
  const auto last = static_cast<std::int64_t>(*std::max_element(entries.begin(), entries.end()));
  const auto at = std::max_element(entries.begin(), entries.end()) - entries.begin();
  lent.tensors().values.shape[0] = last;
  EXPECT_TRUE(fails_with(layer.bind(lent.run(), lent.tensors()), Code::kInvalidArgument, "block_table", -1, at));
}

TEST_F(BorrowRefuses, ANullPage) {
  std::vector<const std::byte*> pages;
  const auto without = [&](std::span<const std::byte* const> from) {
    pages.assign(from.begin(), from.end());
    pages[3] = nullptr;
    return std::span<const std::byte* const>(pages);
  };
  expect(kAddresses, [&](BorrowedTensors& t, VisibleRun&) { t.key_pages = without(t.key_pages); }, "key_pages", 3);
  expect(
      kAddresses, [&](BorrowedTensors& t, VisibleRun&) { t.value_pages = without(t.value_pages); }, "value_pages", 3);
}

TEST_F(BorrowRefuses, WhatIsMissingOrTooMuch) {
  const std::int32_t entries[] = {0, 1, 2, 3, 4};
  expect(kArray, [](BorrowedTensors& t, VisibleRun&) { t.keys = {}; }, "values");
  expect(kArray, [](BorrowedTensors& t, VisibleRun&) { t.values = {}; }, "values");
  expect(kArray, [](BorrowedTensors& t, VisibleRun&) { t.keys.data = nullptr; }, "keys");
  expect(kPool, [](BorrowedTensors& t, VisibleRun&) { t.keys = t.values = {}; }, "block_table");
  expect(kAddresses, [](BorrowedTensors& t, VisibleRun&) { t.keys = t.values = {}; }, "key_pages");
  expect(
      kAddresses, [&](BorrowedTensors& t, VisibleRun&) { t.block_table = dense_view(entries, DType::kI32, {5}); },
      "block_table");
  expect(kPool, [](BorrowedTensors& t, VisibleRun&) { t.block_table.dtype = DType::kF32; }, "block_table");
  expect(kPool, [](BorrowedTensors& t, VisibleRun&) { t.values.shape[1] = 8; }, "values");
  expect(kPool, [](BorrowedTensors& t, VisibleRun&) { t.keys.shape[1] = t.values.shape[1] = 0; }, "keys");
}

TEST_F(BorrowRefuses, RunsAndSizesThatCannotBe) {
  expect(kArray, [](BorrowedTensors&, VisibleRun& run) { run.anchor = -1; }, "anchor");
  expect(kArray, [](BorrowedTensors&, VisibleRun& run) { run.tokens = Geometry::kPositions; }, "visible");
  expect(kArray, [](BorrowedTensors& t, VisibleRun&) { t.first_slot = -1; }, "first_slot");
  expect(
      kArray, [](BorrowedTensors& t, VisibleRun&) { t.first_slot = std::numeric_limits<std::int64_t>::max(); },
      "first_slot", -1, Code::kOverflow);
  expect_of_both(kArray, [](ConstTensor& t) { t.stride_bytes[0] = std::int64_t{1} << 61; }, -1, Code::kOverflow);
  expect(kArray, [](BorrowedTensors& t, VisibleRun&) { t.first_group = -1; }, "first_group");
  expect(kArray, [](BorrowedTensors& t, VisibleRun&) { t.panels_max_abs = -1.0f; }, "panels_max_abs");
  expect(
      kArray, [](BorrowedTensors& t, VisibleRun&) { t.panels_max_abs = std::numeric_limits<float>::quiet_NaN(); },
      "panels_max_abs");
  expect(kArray, [](BorrowedTensors& t, VisibleRun&) { t.panels.stride_bytes[1] *= 2; }, "panels", 1);
}

TEST_F(BorrowRefuses, AnIndexOfAnotherRunOrShape) {
  const HeldStory held(story_, kTokens);
  const Snapshot snapshot = held.snapshot();
  LayerView index = snapshot.layer(0);
  const auto with_index = [&](BorrowedTensors& t, VisibleRun&) {
    t.panels = {};
    t.index = &index;
  };
  expect(kArray, [&](BorrowedTensors& t, VisibleRun&) { t.index = &index; }, "index");
  index.run.tokens = kTokens - 1;
  expect(kArray, with_index, "index");
  index.run = {101, kTokens};
  expect(kArray, with_index, "index");
  index = snapshot.layer(0);
  index.indexed = false;
  expect(kArray, with_index, "index");
  const Geometry other = *Geometry::admit(small_path(2));
  index = snapshot.layer(0);
  index.geometry = &other;
  expect(kArray, with_index, "index");
}

TEST(BorrowRefusesLatent, ValuesThatAliasTheKeys) {
  GeometryOptions options = small_path();
  options.values_alias_keys = true;
  const Story story(options, 20, 53);
  LentStory lent(story, 20, {Form::kAddresses, "th", 4});
  BorrowedLayer layer(story.geometry);
  ASSERT_TRUE(layer.bind(lent.run(), lent.tensors()).ok());
  BorrowedTensors more = lent.tensors();
  more.values = more.keys;
  EXPECT_TRUE(fails_with(layer.bind(lent.run(), more), Code::kInvalidArgument, "values"));
  more = lent.tensors();
  more.value_pages = more.key_pages;
  EXPECT_TRUE(fails_with(layer.bind(lent.run(), more), Code::kInvalidArgument, "value_pages"));
}

}  // namespace
}  // namespace seriatim
