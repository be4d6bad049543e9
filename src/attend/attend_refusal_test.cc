// What attention refuses, and that it leaves the outputs alone then.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "support/attend.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

AttendCase some_case() {
  AttendCase attend(small_attention(), 300, 41);
  attend.keep_only([](std::int64_t t) { return t % 2 == 0; });
  attend.move_to(1000);
  return attend;
}

// Kind of vllm-ascend#15173: the same set handed over in another order gave other bytes without a word.
TEST(AttendRefuses, ARowInAnyOtherOrderAndTakesItSorted) {
  AttendCase attend = some_case();
  const Attended canonical = attend.run();
  EXPECT_TRUE(same_result(canonical, attend.oracle()));
  std::reverse(attend.row.begin(), attend.row.end());
  const Attended reversed = attend.run();
  EXPECT_TRUE(fails_with(reversed.status, Code::kNotChronological, "row", -1, 1));
  EXPECT_TRUE(reversed.untouched());
  Random random(42);
  for (int turn = 0; turn < 50; ++turn) {
    random.shuffle(std::span(attend.row));
    const auto fault = std::is_sorted_until(attend.row.begin(), attend.row.end()) - attend.row.begin();
    ASSERT_LT(fault, 150);
    const Attended shuffled = attend.run();
    EXPECT_TRUE(fails_with(shuffled.status, Code::kNotChronological, "row", -1, fault));
    EXPECT_TRUE(shuffled.untouched());
  }
  std::sort(attend.row.begin(), attend.row.end());
  EXPECT_TRUE(same_result(attend.run(), canonical));
}

TEST(AttendRefuses, APositionTwice) {
  AttendCase attend = some_case();
  attend.row[77] = attend.row[76];
  const Attended result = attend.run();
  EXPECT_TRUE(fails_with(result.status, Code::kNotChronological, "row", -1, 77));
  EXPECT_TRUE(result.untouched());
}

// Kind of vllm#54873 and vllm#49896: padding or garbage of a wide row taken for an index.
TEST(AttendRefuses, AnEntryThatIsNoVisiblePosition) {
  const std::int32_t last = 1000 + 299;
  for (const std::int32_t bad :
       {-1, 0, 999, last + 1, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
    AttendCase attend = some_case();
    attend.row.back() = bad;
    const Attended result = attend.run();
    EXPECT_TRUE(fails_with(result.status, Code::kInvalidArgument, "row", -1, 149)) << bad;
    EXPECT_NE(result.status.message().find(std::to_string(bad)), std::string::npos) << result.status.message();
    EXPECT_TRUE(result.untouched());
  }
}

// Kind of TensorRT-LLM#18585: a token of the future is no candidate, whatever the layer holds.
TEST(AttendRefuses, ATokenThatTheLayerHoldsButTheQueryDoesNotSee) {
  AttendCase attend = some_case();
  const PlainLayer layer = attend.layer();
  std::vector<float> scratch(static_cast<std::size_t>(attend_scratch_floats(attend.geometry)));
  Attended result = attend.blank();
  result.status = attend_row(layer.view(), {1000, 298}, attend.query.view(), attend.row, {}, scratch,
                             result.output.writable(), result.lse, 7);
  EXPECT_TRUE(fails_with(result.status, Code::kInvalidArgument, "row", 7, 149));
  EXPECT_TRUE(result.untouched());
}

TEST(AttendRefuses, AVisibleRunThatIsNotTheLayers) {
  const AttendCase attend = some_case();
  const PlainLayer layer = attend.layer();
  std::vector<float> scratch(static_cast<std::size_t>(attend_scratch_floats(attend.geometry)));
  const auto refuse = [&](VisibleRun run, std::string_view argument) {
    Attended result = attend.blank();
    result.status = attend_row(layer.view(), run, attend.query.view(), attend.row, {}, scratch,
                               result.output.writable(), result.lse, 3);
    EXPECT_TRUE(fails_with(result.status, Code::kInvalidArgument, argument, 3)) << run.anchor << ", " << run.tokens;
    EXPECT_TRUE(result.untouched());
  };
  refuse({1000, 301}, "visible");
  refuse({999, 300}, "visible");
  refuse({1001, 300}, "visible");
  refuse({1000, -1}, "visible");
  refuse({-1, 1}, "anchor");
  refuse({1000, std::numeric_limits<std::int64_t>::max()}, "visible");
  refuse({Geometry::kPositions, 1}, "anchor");
}

TEST(AttendRefuses, AQueryThatIsNotFinite) {
  for (const float bad : {kNaN, -kNaN, kInfinity, -kInfinity}) {
    AttendCase attend = some_case();
    attend.query.set(2 * 8 + 5, bad);
    const Attended result = attend.run();
    EXPECT_TRUE(fails_with(result.status, Code::kNotFinite, "queries", -1, 21)) << bad;
    EXPECT_TRUE(result.untouched());
  }
}

TEST(AttendRefuses, ASinkThatIsNotFiniteOrOneTooFew) {
  AttendCase attend = some_case();
  attend.sinks = {0.0f, 1.0f, -kInfinity, 0.0f};
  Attended result = attend.run();
  EXPECT_TRUE(fails_with(result.status, Code::kNotFinite, "sinks", -1, 2));
  EXPECT_TRUE(result.untouched());
  attend.sinks = {0.0f, 1.0f, 2.0f};
  result = attend.run();
  EXPECT_TRUE(fails_with(result.status, Code::kInvalidArgument, "sinks"));
  EXPECT_TRUE(result.untouched());
}

// One call with everything right, of which a test spoils one argument.
struct Arguments {
  explicit Arguments(const AttendCase& attend)
      : layer(attend.layer()),
        result(attend.blank()),
        query(attend.query.view()),
        output(result.output.writable()),
        scratch(static_cast<std::size_t>(attend_scratch_floats(attend.geometry))),
        lse(result.lse),
        run{attend.anchor, attend.tokens()},
        row(attend.row) {}

  void expect_refused(std::string_view argument, Code code = Code::kInvalidArgument) {
    const Status status = attend_row(layer.view(), run, query, row, {}, scratch, output, lse);
    EXPECT_TRUE(fails_with(status, code, argument));
    EXPECT_TRUE(result.untouched());
  }

  PlainLayer layer;
  Attended result;
  ConstTensor query;
  Tensor output;
  std::vector<float> scratch;
  std::span<float> lse;
  VisibleRun run;
  std::vector<std::int32_t> row;
};

TEST(AttendRefuses, ShapesStridesAndDtypesThatDoNotFit) {
  const AttendCase attend = some_case();
  const auto spoil = [&](std::string_view argument, auto&& change, Code code = Code::kInvalidArgument) {
    Arguments arguments(attend);
    change(arguments);
    arguments.expect_refused(argument, code);
  };
  spoil("queries", [](Arguments& a) { a.query.dtype = DType::kBf16; });
  spoil("queries", [](Arguments& a) { a.query.rank = 3; });
  spoil("queries", [](Arguments& a) { a.query.shape[0] = 3; });
  spoil("queries", [](Arguments& a) { a.query.shape[1] = 9; });
  spoil("queries", [](Arguments& a) { a.query.stride_bytes[0] = -32; });
  spoil("queries", [](Arguments& a) { a.query.stride_bytes[1] = 6; });
  spoil("queries", [](Arguments& a) { a.query.data = nullptr; });
  spoil(
      "queries", [](Arguments& a) { a.query.stride_bytes[0] = std::numeric_limits<std::int64_t>::max() / 4 * 4; },
      Code::kOverflow);
  spoil("output", [](Arguments& a) { a.output.dtype = DType::kI32; });
  spoil("output", [](Arguments& a) { a.output.shape[0] = 5; });
  spoil("output", [](Arguments& a) { a.output.shape[1] = 7; });
  spoil("output", [](Arguments& a) { a.output.stride_bytes[1] = -4; });
  spoil("output", [](Arguments& a) { a.output.data = nullptr; });
  spoil("lse", [](Arguments& a) { a.lse = a.lse.first(3); });
  spoil("scratch", [](Arguments& a) { a.scratch.pop_back(); });
}

TEST(AttendRefuses, NothingWhenTheLogSumExpIsNotAskedFor) {
  const AttendCase attend = some_case();
  const Attended with = attend.run();
  const PlainLayer layer = attend.layer();
  std::vector<float> scratch(static_cast<std::size_t>(attend_scratch_floats(attend.geometry)));
  Attended without = attend.blank();
  without.status = attend_row(layer.view(), {1000, 300}, attend.query.view(), attend.row, {}, scratch,
                              without.output.writable(), {});
  ASSERT_TRUE(without.status.ok());
  EXPECT_TRUE(same_bits(without.output.bytes(), with.output.bytes()));
}

}  // namespace
}  // namespace seriatim
