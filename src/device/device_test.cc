// The whole path on the device against the host's, bit for bit.
#include "support/device.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <thread>

namespace seriatim::testing {
namespace {

constexpr std::array kDTypes{DType::kF32, DType::kBf16, DType::kF16};

TEST(DevicePath, EveryQueryHasTheHostsRowOutputAndLse) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const auto device = open_device();
  ASSERT_NE(device, nullptr);
  for (const DType dtype : kDTypes) {
    for (const std::int64_t r : {1, 2, 3, 4}) {
      const Story story(small_path(r, dtype), 70 * r, 40 + static_cast<std::uint64_t>(r));
      const Answers host = one_call(story);
      EXPECT_GT(sparse_rows(host), 0);
      EXPECT_TRUE(same_answers(device_answers(story, device), host)) << dtype_name(dtype) << ", groups of " << r;
    }
  }
}

// The path over one long sequence: pooled, scored and attended at every count of the contract's edges.
TEST(DevicePath, EveryCountUpTo262144HasTheHostsRowOutputAndLse) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  std::vector<std::int64_t> tokens;
  for (const std::int64_t visible :
       {1, 2, 3, 4, 5, 2047, 2048, 2049, 2050, 2051, 2052, 8191, 8192, 8193, 16'384, 65'536, 131'072, 262'144})
    tokens.push_back(visible - 1);
  for (const std::int64_t r : {3, 4}) {
    GeometryOptions options = small_path(r, DType::kBf16);
    options.budget_tokens = 512 * r;
    const Story story(options, 262'144, 60 + static_cast<std::uint64_t>(r));
    DeviceStory held(story, open_device());
    held.append(story.tokens());
    const auto count = static_cast<std::int64_t>(tokens.size());
    Answers got(story.geometry, count);
    ASSERT_TRUE(held.ask(tokens, got).ok());
    Answers due(story.geometry, count);
    Engine engine = engine_for(story.geometry, story.tokens());
    const Snapshot snapshot = held.snapshot();
    ASSERT_TRUE(ask(snapshot.layer(0), story, tokens, engine, due).ok());
    std::int64_t sparse = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) sparse += due.counts[i] <= tokens[i] ? 1 : 0;
    EXPECT_GE(sparse, 7);
    EXPECT_TRUE(same_answers(got, due)) << "groups of " << r;
  }
}

TEST(DevicePath, WorkGroupsAndALoadedMachineChangeNothing) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const Story story(small_path(4, DType::kBf16), 300, 91);
  const Answers host = one_call(story);
  std::atomic<bool> ended = false;
  std::jthread load([&] {
    while (!ended.load()) std::atomic_thread_fence(std::memory_order_seq_cst);
  });
  std::int64_t runs = 0;
  for (const std::int64_t work_group : {1, 7, 64, 256}) {
    const auto device = open_device(work_group);
    ASSERT_NE(device, nullptr);
    DeviceStory held(story, device);
    held.append(story.tokens());
    for (int repetition = 0; repetition < 25; ++repetition, ++runs) {
      Answers answers(story.geometry, story.tokens());
      for (std::int64_t first = 0; first < story.tokens(); first += 60)
        ASSERT_TRUE(held.ask(every_token(first, 60), answers, first).ok());
      ASSERT_TRUE(same_answers(answers, host)) << "work-groups of " << work_group;
    }
  }
  ended = true;
  EXPECT_EQ(runs, 100);
}

// Two heads' dots of one group leave f32 on either side, and their sum is NaN.
TEST(DevicePath, NanScoresAreRefusedByQueryAndGroupOrExcluded) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  GeometryOptions options = small_path(1);
  options.pooling = Pooling::kNone;
  options.relu = false;
  Story story(options, 40, 5);
  const std::int64_t dim = story.geometry.index_dim();
  for (std::int64_t i = 0; i < dim; ++i) story.index_keys.set(9 * dim + i, 3e38f);
  for (std::int64_t i = 0; i < story.index_queries.elements(); ++i)
    story.index_queries.set(i, i / dim % story.geometry.index_heads() == 1 ? -3.0f : 3.0f);
  DeviceStory held(story, open_device());
  held.append(story.tokens());
  Answers refused(story.geometry, 2);
  const std::vector<std::int64_t> tokens{6, 30};
  EXPECT_TRUE(fails_with(held.ask(tokens, refused), Code::kNotANumber, "scores", 1, 9));
  EXPECT_TRUE(refused.rows_untouched());
  EXPECT_TRUE(refused.outputs_untouched());

  Answers got(story.geometry, 2);
  ASSERT_TRUE(held.ask(tokens, got, 0, NanPolicy::kExclude).ok());
  Answers due(story.geometry, 2);
  Engine engine = engine_for(story.geometry, story.tokens());
  const Asked asked(story, tokens);
  const Snapshot snapshot = held.snapshot();
  ASSERT_TRUE(engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kExclude, due.rows_from(0)).ok());
  ASSERT_TRUE(
      engine.attend(snapshot.layer(0), asked.for_attend(), due.rows_from(0), due.output.writable(), due.lse.writable())
          .ok());
  EXPECT_TRUE(same_answers(got, due));
}

TEST(DevicePath, OverflowIsReportedWithTheFirstHeadAndAllOthersAreRight) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  Story story(small_path(), 60, 17);
  const std::int64_t head_floats = story.geometry.head_dim();
  const std::int64_t query_floats = story.geometry.query_heads() * head_floats;
  for (std::int64_t i = 0; i < head_floats; ++i) story.queries.set(41 * query_floats + 2 * head_floats + i, 3.3e38f);
  const std::vector<std::int64_t> tokens{40, 41};
  DeviceStory held(story, open_device());
  held.append(story.tokens());
  Answers got(story.geometry, 2);
  EXPECT_TRUE(fails_with(held.ask(tokens, got), Code::kOverflow, "output", 1, 2));
  Answers due(story.geometry, 2);
  Engine engine = engine_for(story.geometry, story.tokens());
  const Snapshot snapshot = held.snapshot();
  EXPECT_TRUE(fails_with(ask(snapshot.layer(0), story, tokens, engine, due), Code::kOverflow, "output", 1, 2));
  EXPECT_TRUE(same_answers(got, due));
}

TEST(DevicePath, AnOutputThatPassesItsDTypeIsAnOverflowAndOneThatFitsIsNot) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  Story story(small_path(), 60, 19);
  const std::int64_t value_floats = story.geometry.kv_heads() * story.geometry.value_dim();
  for (std::int64_t i = 0; i < story.values.elements(); ++i) {
    if (i % value_floats >= story.geometry.value_dim())
      story.values.set(i, 7e4f);  // kv head 1: past f16, not past bf16
  }
  const std::vector<std::int64_t> tokens{20, 50};
  const Asked asked(story, tokens);
  DeviceStory held(story, open_device());
  held.append(story.tokens());
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, story.tokens());
  for (const DType dtype : kDTypes) {
    Answers rows(story.geometry, 2);
    HostTensor got(dtype, {2, story.geometry.query_heads(), story.geometry.value_dim()});
    HostTensor due(dtype, {2, story.geometry.query_heads(), story.geometry.value_dim()});
    ASSERT_TRUE(held.engine().plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse, rows.rows_from(0)).ok());
    const Status on_device =
        held.engine().attend(snapshot.layer(0), asked.for_attend(), rows.rows_from(0), got.writable(), {});
    const Status on_host = engine.attend(snapshot.layer(0), asked.for_attend(), rows.rows_from(0), due.writable(), {});
    EXPECT_EQ(on_device.ok(), dtype != DType::kF16) << dtype_name(dtype);
    EXPECT_EQ(on_device.code(), on_host.code());
    EXPECT_EQ(on_device.place().index, on_host.place().index);
    EXPECT_TRUE(same_bits(got.bytes(), due.bytes())) << dtype_name(dtype);
  }
}

TEST(DevicePath, RowsThatOthersMadeAreAttended) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const Story story(small_path(), 60, 18);
  DeviceStory held(story, open_device());
  held.append(story.tokens());
  const std::vector<std::int64_t> tokens{50};
  const Asked asked(story, tokens);
  std::vector<std::int32_t> row{0, 3, 4, 17, 49};
  std::int32_t count = 5;
  const Rows rows{row.data(), 5, &count};
  Answers got(story.geometry, 1);
  const Snapshot snapshot = held.snapshot();
  const LayerView layer = snapshot.layer(0);
  ASSERT_TRUE(held.engine().attend(layer, asked.for_attend(), rows, got.output.writable(), got.lse.writable()).ok());
  Answers due(story.geometry, 1);
  Engine engine = engine_for(story.geometry, story.tokens());
  ASSERT_TRUE(engine.attend(layer, asked.for_attend(), rows, due.output.writable(), due.lse.writable()).ok());
  EXPECT_TRUE(same_bits(got.output.bytes(), due.output.bytes()));
  EXPECT_TRUE(same_bits(got.lse.bytes(), due.lse.bytes()));
  std::swap(row[1], row[2]);
  EXPECT_TRUE(
      fails_with(held.engine().attend(layer, asked.for_attend(), rows, got.output.writable(), got.lse.writable()),
                 Code::kNotChronological, "row", 0, 2));
  std::vector<std::int32_t> wide(static_cast<std::size_t>(story.geometry.row_capacity()) + 1);
  std::iota(wide.begin(), wide.end(), 0);
  auto entries = static_cast<std::int32_t>(wide.size());
  EXPECT_TRUE(fails_with(held.engine().attend(layer, asked.for_attend(), Rows{wide.data(), entries, &entries},
                                              got.output.writable(), got.lse.writable()),
                         Code::kCapacity, "rows", 0));
}

}  // namespace
}  // namespace seriatim::testing
