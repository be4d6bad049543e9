#include "file/bytes.hpp"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "file/dense.hpp"

namespace seriatim::file {
namespace {

TEST(Printable, WritesWhatATerminalObeysAsEscapesAndCutsBetweenCharacters) {
  EXPECT_EQ(printable("plain \xC3\xBC"), "plain \xC3\xBC");
  EXPECT_EQ(printable(std::string("a\n\x1B[31m\0\x7F", 9)), "a\\n\\x1b[31m\\x00\\x7f");
  EXPECT_EQ(printable("\t\r \xC2\x9B \x9B \xE2\x80\xAE \xE2\x80\xA8 \xC0\x80 \xED\xA0\x80 \xF0\x9F\x98\x80"),
            "\\t\\r \\u009b \\x9b \\u202e \\u2028 \\xc0\\x80 \\xed\\xa0\\x80 \xF0\x9F\x98\x80");
  EXPECT_EQ(printable("cut off: \xE2\x82"), "cut off: \\xe2\\x82");
  EXPECT_EQ(printable(std::string(48, 'x')), std::string(48, 'x'));
  EXPECT_EQ(printable(std::string(49, 'x')), std::string(48, 'x') + "...");
  EXPECT_EQ(printable(std::string(47, 'x') + "\xC3\xBC"), std::string(47, 'x') + "...");
  EXPECT_EQ(printable(std::string(46, 'x') + "\xC3\xBCy"), std::string(46, 'x') + "\xC3\xBC...");
}

TEST(DenseBytes, IsCheckedPast64Bits) {
  using Shape = std::vector<std::int64_t>;
  constexpr std::int64_t kHalf = std::int64_t{1} << 31;
  EXPECT_EQ(dense_bytes(Shape{}, 32), 4);
  EXPECT_EQ(dense_bytes(Shape{3, 0, 5}, 32), 0);
  EXPECT_EQ(dense_bytes(Shape{kHalf, kHalf / 4}, 32), std::int64_t{1} << 62);
  EXPECT_EQ(dense_bytes(Shape{kHalf, kHalf / 2}, 32), std::nullopt);
  EXPECT_EQ(dense_bytes(Shape{kHalf, kHalf, 2}, 32), std::nullopt);
  EXPECT_EQ(dense_bytes(Shape{0, kHalf, kHalf, 2}, 32), std::nullopt);
  EXPECT_EQ(dense_bytes(Shape{-1}, 32), std::nullopt);
  EXPECT_EQ(dense_bytes(Shape{3}, 4), std::nullopt);
  EXPECT_EQ(dense_bytes(Shape{4}, 6), 3);
}

// All elements of a view in order, and in how many runs they came.
std::pair<std::vector<std::int32_t>, int> gather(const ConstTensor& view) {
  std::vector<std::int32_t> out;
  int runs = 0;
  EXPECT_TRUE(for_each_run(view, [&](std::span<const std::byte> run) {
                ++runs;
                for (std::size_t at = 0; at < run.size(); at += 4) std::memcpy(&out.emplace_back(), run.data() + at, 4);
                return Status{};
              }).ok());
  return {out, runs};
}

TEST(ForEachRun, GivesRowMajorOrderInTheLongestRuns) {
  std::array<std::int32_t, 24> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i);
  const auto& data = numbers;
  ConstTensor view = dense_view(data.data(), DType::kI32, {2, 3, 4});
  const auto whole = gather(view);
  EXPECT_EQ(whole.first, std::vector<std::int32_t>(data.begin(), data.end()));
  EXPECT_EQ(whole.second, 1);

  view.shape = {2, 3, 2, 1};  // the leading half of each innermost row
  EXPECT_EQ(gather(view), (std::pair{std::vector<std::int32_t>{0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21}, 6}));

  view = dense_view(data.data(), DType::kI32, {4, 2});
  view.stride_bytes = {4, 16, 0, 0};  // a transposed matrix
  EXPECT_EQ(gather(view), (std::pair{std::vector<std::int32_t>{0, 4, 1, 5, 2, 6, 3, 7}, 8}));

  view.stride_bytes = {0, 4, 0, 0};  // one row repeated
  EXPECT_EQ(gather(view), (std::pair{std::vector<std::int32_t>{0, 1, 0, 1, 0, 1, 0, 1}, 4}));

  view = dense_view(data.data(), DType::kI32, {0, 3});
  EXPECT_EQ(gather(view).second, 0);
}

TEST(ForEachRun, StopsAtTheFirstFailure) {
  const std::array<std::int32_t, 4> data{};
  ConstTensor view = dense_view(data.data(), DType::kI32, {2, 1});
  view.stride_bytes[0] = 8;
  int calls = 0;
  const Status status = for_each_run(view, [&](std::span<const std::byte>) {
    ++calls;
    return Status::error(Code::kIo, "file", "full");
  });
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace seriatim::file
