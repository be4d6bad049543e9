// Attending a batch: each query as alone, errors that name the query, nothing written on any of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "seriatim/attend.hpp"
#include "seriatim/borrow.hpp"
#include "seriatim/oracle.hpp"
#include "support/mapped_memory.hpp"
#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Rows of queries 20, 60 and 99 are planned; a test may change anything before it attends.
struct AttendCall {
  explicit AttendCall(const Story& story)
      : held(story, 100),
        snapshot(held.snapshot()),
        layer(snapshot.layer(0)),
        engine(engine_for(story.geometry, 100)),
        asked(story, std::vector<std::int64_t>{20, 60, 99}),
        queries(asked.for_attend()),
        answers(story.geometry, 3),
        rows(answers.rows_from(0)),
        output(answers.output.writable()),
        lse(answers.lse.writable()) {
    EXPECT_TRUE(engine.plan(layer, asked.for_plan(), NanPolicy::kRefuse, rows).ok());
  }
  Status run() { return engine.attend(layer, queries, rows, output, lse); }

  HeldStory held;
  Snapshot snapshot;
  LayerView layer;
  Engine engine;
  Asked asked;
  AttendQueries queries;
  Answers answers;
  Rows rows;
  Tensor output;
  Tensor lse;
};

Story some_story() {
  Story story(small_path(), 100, 161, 1000);
  story.sinks = {0.0f, 1.0f, -1.0f, 2.0f};
  return story;
}

TEST(AttendQueries, EqualsAttendRowForEachOfThem) {
  const Story story = some_story();
  AttendCall call(story);
  ASSERT_TRUE(call.run().ok());
  const std::int64_t tokens[] = {20, 60, 99};
  std::vector<float> scratch(static_cast<std::size_t>(attend_scratch_floats(story.geometry)));
  for (std::int64_t q = 0; q < 3; ++q) {
    HostTensor output(DType::kF32, {4, 6});
    std::vector<float> lse(4);
    ASSERT_TRUE(attend_row(call.layer, {1000, tokens[q] + 1}, row_of(story.queries.view(), tokens[q]), call.rows.row(q),
                           story.sinks, scratch, output.writable(), lse)
                    .ok());
    EXPECT_TRUE(varies(output.bytes()));
    EXPECT_EQ(std::memcmp(call.answers.output.view().at(q), output.bytes().data(), output.bytes().size()), 0) << q;
    EXPECT_EQ(std::memcmp(call.answers.lse.view().at(q), lse.data(), 16), 0) << q;
  }
}

TEST(AttendQueries, DependsOnNothingPastARowsCount) {
  const Story story = some_story();
  AttendCall clean(story);
  ASSERT_TRUE(clean.run().ok());
  AttendCall call(story);
  std::int64_t changed = 0;
  for (std::int64_t q = 0; q < 3; ++q) {
    for (std::int64_t i = call.rows.counts[q]; i < call.rows.stride; ++i, ++changed) {
      call.rows.positions[q * call.rows.stride + i] = i % 2 == 0 ? std::numeric_limits<std::int32_t>::max() : 1001;
    }
  }
  ASSERT_GT(changed, 10);
  ASSERT_TRUE(call.run().ok());
  EXPECT_TRUE(same_bits(call.answers.output.bytes(), clean.answers.output.bytes()));
}

TEST(AttendQueries, RoundsHalfOutputsOnceAndMayLeaveOutTheLogSumExp) {
  const Story story = some_story();
  AttendCall exact(story);
  ASSERT_TRUE(exact.run().ok());
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    AttendCall call(story);
    HostTensor rounded(dtype, {3, 4, 6});
    HostTensor once(dtype, {3, 4, 6});
    for (std::int64_t i = 0; i < once.elements(); ++i) once.set(i, exact.answers.output.get(i));
    call.output = rounded.writable();
    call.lse = {};
    ASSERT_TRUE(call.run().ok());
    EXPECT_TRUE(same_bits(rounded.bytes(), once.bytes()));
  }
}

// What adding biases to the logits means, by one more dim: the query holds 1 there and each key its bias.
TEST(AttendQueries, BiasesAreAddedToTheScaledLogits) {
  for (const Kernels kernels : Kernels::available()) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      GeometryOptions options = small_path(4, dtype);
      options.softmax_scale = 1.0f;
      const Geometry plain = *Geometry::admit(options);
      options.head_dim += 1;
      const Geometry wide = *Geometry::admit(options);
      constexpr std::int64_t kTokens = 300;
      Random random(7);
      const std::int64_t heads = plain.query_heads(), kv_heads = plain.kv_heads(), dim = plain.head_dim();
      const HostTensor query = random_tensor(random, DType::kF32, {2, heads, dim});
      const HostTensor keys = random_tensor(random, dtype, {kTokens, kv_heads, dim});
      const HostTensor values = random_tensor(random, dtype, {kTokens, kv_heads, plain.value_dim()});
      HostTensor wide_query(DType::kF32, {2, heads, dim + 1});
      HostTensor wide_keys(dtype, {kTokens, kv_heads, dim + 1});
      std::vector<std::int32_t> positions;
      std::vector<float> biases;
      for (std::int32_t p = 0; p < kTokens; p += 1 + p % 2) positions.push_back(p);
      const auto width = static_cast<std::int64_t>(positions.size());
      positions.resize(positions.size() * 2);
      std::copy_n(positions.begin(), width, positions.begin() + width);
      for (std::int64_t i = 0; i < 2 * width; ++i)
        biases.push_back(0.25f * static_cast<float>((i % width * 7) % 13) - 1.0f);
      for (std::int64_t row = 0; row < 2 * heads; ++row) {
        for (std::int64_t i = 0; i < dim; ++i) wide_query.set(row * (dim + 1) + i, query.get(row * dim + i));
        wide_query.set(row * (dim + 1) + dim, 1.0f);
      }
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const auto place = std::lower_bound(positions.begin(), positions.begin() + width, t) - positions.begin();
        for (std::int64_t h = 0; h < kv_heads; ++h) {
          const std::int64_t row = t * kv_heads + h;
          for (std::int64_t i = 0; i < dim; ++i) wide_keys.set(row * (dim + 1) + i, keys.get(row * dim + i));
          wide_keys.set(row * (dim + 1) + dim, biases[static_cast<std::size_t>(std::min(place, width - 1))]);
        }
      }
      const std::int32_t counts[] = {static_cast<std::int32_t>(width), static_cast<std::int32_t>(width)};
      ConstRows rows(positions.data(), width, counts);
      const std::int64_t at[] = {kTokens - 1, kTokens - 1};
      const auto attend = [&](const Geometry& geometry, const HostTensor& q, const HostTensor& k) {
        BorrowedLayer layer(geometry);
        BorrowedTensors tensors;
        tensors.keys = k.view();
        tensors.values = values.view();
        EXPECT_TRUE(layer.bind({0, kTokens}, tensors).ok());
        HostTensor output(DType::kF32, {2, heads, plain.value_dim()});
        Engine engine = *Engine::host(serial_executor(), kernels);
        EXPECT_TRUE(engine.attend(layer.view(), {q.view(), at, {}}, rows, output.writable(), {}).ok());
        return output;
      };
      const HostTensor want = attend(wide, wide_query, wide_keys);
      const HostTensor without = attend(plain, query, keys);
      rows.biases = biases.data();
      const HostTensor got = attend(plain, query, keys);
      EXPECT_TRUE(same_bits(got.bytes(), want.bytes())) << kernels.name();
      EXPECT_FALSE(same_bits(got.bytes(), without.bytes()));
    }
  }
}

TEST(AttendQueries, ABiasThatIsNotFiniteIsRefusedByQueryAndEntry) {
  const Story story = some_story();
  AttendCall call(story);
  std::vector<float> biases(static_cast<std::size_t>(3 * call.rows.stride));
  biases[static_cast<std::size_t>(call.rows.stride + 2)] = -std::numeric_limits<float>::infinity();
  ConstRows rows(call.rows);
  rows.biases = biases.data();
  const Status status = call.engine.attend(call.layer, call.queries, rows, call.output, call.lse);
  EXPECT_EQ(status.code(), Code::kNotFinite);
  EXPECT_EQ(status.place().row, 1);
  EXPECT_EQ(status.place().index, 2);
}

TEST(AttendQueries, ALayerWithoutAnIndexAttendsRowsOfOneThatHasIt) {
  const Story story = some_story();
  const Story other(small_path(), 100, 162, 1000);  // another layer's keys and values
  CacheOptions options;
  options.layers = {{story.norm_weight, true}, {{}, false}};
  options.capacity_tokens = 1024;
  const auto cache = *Cache::create(story.geometry, options);
  const SequenceId sequence = *cache->add(1000);
  auto transaction = *cache->begin();
  ASSERT_TRUE(transaction.append(sequence, 0, story.batch(0, 100)).ok());
  TokenBatch unindexed = other.batch(0, 100);
  unindexed.index_keys = {};
  ASSERT_TRUE(transaction.append(sequence, 1, unindexed).ok());
  ASSERT_TRUE(transaction.commit().ok());
  const Snapshot snapshot = *cache->snapshot(sequence);
  Engine engine = engine_for(story.geometry, 100);
  Answers answers(story.geometry, 3);
  const Asked asked(story, std::vector<std::int64_t>{20, 60, 99});
  EXPECT_TRUE(fails_with(engine.plan(snapshot.layer(1), asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0)),
                         Code::kInvalidArgument, "layer"));
  EXPECT_TRUE(answers.rows_untouched());
  ASSERT_TRUE(engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0)).ok());
  ASSERT_TRUE(engine
                  .attend(snapshot.layer(1), asked.for_attend(), answers.rows_from(0), answers.output.writable(),
                          answers.lse.writable())
                  .ok());
  std::vector<double> exact(24);
  std::vector<double> lse(4);
  for (std::int64_t q = 0; q < 3; ++q) {
    std::vector<std::int64_t> row;
    for (const std::int32_t position : answers.row(q)) row.push_back(position - 1000);
    const std::int64_t tokens[] = {20, 60, 99};
    ASSERT_TRUE(attend_f64(story.geometry, row_of(story.queries.view(), tokens[q]),
                           {other.keys.view(), other.values.view()}, row, story.sinks, exact, lse)
                    .ok());
    for (std::int64_t i = 0; i < 24; ++i)
      EXPECT_NEAR(static_cast<double>(answers.output.get(q * 24 + i)), exact[static_cast<std::size_t>(i)], 1e-5);
  }
}

TEST(AttendQueries, RefusesWhatDoesNotFitNamesTheQueryAndWritesNothing) {
  const Story story = some_story();
  const auto spoil = [&](std::string_view argument, auto&& change, Code code = Code::kInvalidArgument,
                         std::int64_t row = -2, std::int64_t index = -2) {
    AttendCall call(story);
    change(call);
    EXPECT_TRUE(fails_with(call.run(), code, argument, row, index));
    EXPECT_TRUE(call.answers.outputs_untouched());
  };
  std::vector<std::int64_t> positions{1020, 1060, 1099};
  std::vector<float> sinks = story.sinks;
  spoil("queries", [](AttendCall& c) { c.queries.queries.dtype = DType::kF16; });
  spoil("queries", [](AttendCall& c) { c.queries.queries.rank = 2; });
  spoil("queries", [](AttendCall& c) { c.queries.queries.shape[1] = 2; });
  spoil("queries", [](AttendCall& c) { c.queries.queries.stride_bytes[0] = -128; });
  spoil("output", [](AttendCall& c) { c.output.dtype = DType::kI64; });
  spoil("output", [](AttendCall& c) { c.output.shape[0] = 2; });
  spoil("output", [](AttendCall& c) { c.output.shape[2] = 8; });
  spoil("output", [](AttendCall& c) { c.output.data = nullptr; });
  spoil("lse", [](AttendCall& c) { c.lse.dtype = DType::kBf16; });
  spoil("lse", [](AttendCall& c) { c.lse.shape[1] = 3; });
  spoil("lse", [](AttendCall& c) { c.lse.data = nullptr; });  // axes without memory: not one that was left out
  spoil("lse", [](AttendCall& c) { c.lse.data = c.output.at(2, 3, 5); });  // the output's last element
  spoil("positions", [](AttendCall& c) { c.queries.positions = c.queries.positions.first(2); });
  spoil(
      "positions",
      [&](AttendCall& c) {
        c.queries.positions = positions;
        positions[1] = 1100;
      },
      Code::kInvalidArgument, 1);
  spoil("sinks", [](AttendCall& c) { c.queries.sinks = c.queries.sinks.first(3); });
  spoil(
      "sinks",
      [&](AttendCall& c) {
        c.queries.sinks = sinks;
        sinks[2] = kNaN;
      },
      Code::kNotFinite, -2, 2);
  spoil("rows", [](AttendCall& c) { c.rows.positions = nullptr; });
  spoil("rows", [](AttendCall& c) { c.rows.counts = nullptr; });
  spoil("rows", [](AttendCall& c) { c.rows.counts[1] = -1; }, Code::kInvalidArgument, 1);
  spoil(
      "rows", [](AttendCall& c) { c.rows.counts[1] = static_cast<std::int32_t>(c.rows.stride) + 1; },
      Code::kInvalidArgument, 1);
  spoil(
      "row", [](AttendCall& c) { c.rows.counts[0] += 1; }, Code::kInvalidArgument, 0,
      21);  // padding taken for an entry
  spoil(
      "row",
      [](AttendCall& c) {
        std::swap(c.rows.positions[2 * c.rows.stride + 4], c.rows.positions[2 * c.rows.stride + 5]);
      },
      Code::kNotChronological, 2, 5);
  spoil("row", [](AttendCall& c) { c.rows.positions[c.rows.stride + 9] = 1061; }, Code::kInvalidArgument, 1, 9);
}

TEST(AttendQueries, RefusesAQueryThatIsNotFiniteWhereverItStands) {
  for (const std::int64_t token : {20, 60, 99}) {
    Story story = some_story();
    story.queries.set(token * 32 + 17, std::numeric_limits<float>::infinity());
    AttendCall call(story);
    EXPECT_TRUE(fails_with(call.run(), Code::kNotFinite, "queries", token == 20 ? 0 : token == 60 ? 1 : 2, 17));
    EXPECT_TRUE(call.answers.outputs_untouched());
  }
}

TEST(AttendQueries, RefusesAGeometryThatNeedsMoreScratchThanWasReserved) {
  const Story story = some_story();
  AttendCall call(story);
  GeometryOptions narrow = small_path();
  narrow.head_dim = 2;
  narrow.value_dim = 2;
  call.engine = engine_for(*Geometry::admit(narrow), 100);
  EXPECT_TRUE(fails_with(call.run(), Code::kCapacity, "engine"));
  EXPECT_TRUE(call.answers.outputs_untouched());
}

// Kind of vllm#52109 and MSLK#257.
TEST(AttendQueries, TakesStridesPast32Bits) {
  const Story story = some_story();
  AttendCall plain(story);
  ASSERT_TRUE(plain.run().ok());
  AttendCall call(story);
  const std::int64_t far = (std::int64_t{1} << 31) + 128;
  MappedMemory queries(2 * far + 4096);
  MappedMemory outputs(2 * far + 4096);
  MappedMemory lses(2 * far + 4096);
  if (queries.data() == nullptr || outputs.data() == nullptr || lses.data() == nullptr)
    GTEST_SKIP() << "no such address space";
  for (std::int64_t q = 0; q < 3; ++q) std::memcpy(queries.data() + q * far, call.queries.queries.at(q), 4 * 8 * 4);
  call.queries.queries.data = queries.data();
  call.output.data = outputs.data();
  call.lse.data = lses.data();
  for (auto* stride : {&call.queries.queries.stride_bytes[0], &call.output.stride_bytes[0], &call.lse.stride_bytes[0]})
    *stride = far;
  ASSERT_TRUE(call.run().ok());
  for (std::int64_t q = 0; q < 3; ++q) {
    EXPECT_EQ(std::memcmp(outputs.data() + q * far, plain.answers.output.view().at(q), 4 * 6 * 4), 0) << q;
    EXPECT_EQ(std::memcmp(lses.data() + q * far, plain.answers.lse.view().at(q), 4 * 4), 0) << q;
  }
}

}  // namespace
}  // namespace seriatim
