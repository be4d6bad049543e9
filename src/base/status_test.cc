#include "seriatim/status.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace seriatim {
namespace {

TEST(Status, SuccessSaysNothing) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.argument(), "");
  EXPECT_EQ(status.place().row, -1);
  EXPECT_EQ(status.place().index, -1);
}

TEST(Status, FailureSaysWhatWhereAndWhy) {
  const Status status = Status::error(Code::kNotANumber, "scores", "scores: group 7 of row 3 is NaN", {3, 7});
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kNotANumber);
  EXPECT_EQ(status.argument(), "scores");
  EXPECT_EQ(status.message(), "scores: group 7 of row 3 is NaN");
  EXPECT_EQ(status.place().row, 3);
  EXPECT_EQ(status.place().index, 7);
}

TEST(Status, KeepsItsOwnCopyOfTheWords) {
  std::string argument = "keys";
  std::string message = "keys: rank 2 where 3 is needed";
  const Status status = Status::error(Code::kInvalidArgument, argument, message);
  argument.assign("xxxx");
  message.assign(message.size(), 'x');
  EXPECT_EQ(status.argument(), "keys");
  EXPECT_EQ(status.message(), "keys: rank 2 where 3 is needed");
}

TEST(Status, CopiesOutliveTheOriginalAndMovesCarryItOver) {
  Status copy;
  Status moved;
  {
    Status original = Status::error(Code::kCapacity, "workspace", "workspace: too small", {1, 2});
    copy = original;
    moved = std::move(original);
  }
  for (const Status& status : {copy, moved}) {
    EXPECT_EQ(status.code(), Code::kCapacity);
    EXPECT_EQ(status.message(), "workspace: too small");
    EXPECT_EQ(status.place().index, 2);
  }
  copy = Status{};
  EXPECT_TRUE(copy.ok());
  EXPECT_EQ(copy.message(), "");
  EXPECT_EQ(moved.message(), "workspace: too small");
}

TEST(Status, LongWordsAreCutAndNeverOverrun) {
  for (const std::size_t extra : {0u, 1u, 1000u}) {
    const std::string argument(64 + extra, 'a');
    const std::string message(256 + extra, 'm');
    const Status status = Status::error(Code::kIo, argument, message);
    EXPECT_EQ(status.argument(), std::string(64, 'a'));
    EXPECT_EQ(status.message(), std::string(256, 'm'));
  }
  const Status exact = Status::error(Code::kIo, std::string(63, 'a'), std::string(255, 'm'));
  EXPECT_EQ(exact.argument().size(), 63u);
  EXPECT_EQ(exact.message().size(), 255u);
}

TEST(Status, EmptyWordsAreAFailureAllTheSame) {
  const Status status = Status::error(Code::kOverflow, "", "");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kOverflow);
}

TEST(Status, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (std::int32_t code = 0; code <= static_cast<std::int32_t>(Code::kPeerLost); ++code) {
    if (code == 13) continue;  // the C ABI's own
    names.insert(code_name(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), 14u);
  EXPECT_EQ(names.count("Unknown"), 0u);
  EXPECT_EQ(code_name(Code::kNotChronological), "NotChronological");
  EXPECT_EQ(code_name(static_cast<Code>(999)), "Unknown");
}

TEST(Result, HoldsAValueOrTheReasonWhyThereIsNone) {
  Result<std::string> value(std::string("row"));
  ASSERT_TRUE(value.ok());
  EXPECT_TRUE(value.status().ok());
  EXPECT_EQ(*value, "row");
  EXPECT_EQ(value->size(), 3u);
  EXPECT_EQ(std::move(value).value(), "row");

  const Result<std::string> none(Status::error(Code::kNotFound, "name", "name: not there"));
  EXPECT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(), "name: not there");
}

}  // namespace
}  // namespace seriatim
