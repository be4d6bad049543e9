#include "base/admit.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "base/half.hpp"
#include "support/rows.hpp"

namespace seriatim {
namespace {

using test::expect_refused;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

class AdmitView : public ::testing::Test {
 protected:
  std::array<float, 12> memory_{};
  ConstTensor view_ = dense_view(static_cast<const void*>(memory_.data()), DType::kF32, {3, 4});

  Status admit() const { return admit_view("keys", view_, DType::kF32, {-1, 4}); }
  void refuse(std::string_view words, Code code = Code::kInvalidArgument) const {
    expect_refused(admit(), code, "keys", {}, words);
  }
};

TEST_F(AdmitView, WhatFitsPasses) {
  EXPECT_TRUE(admit().ok());
  Tensor writable = dense_view(static_cast<void*>(memory_.data()), DType::kF32, {3, 4});
  EXPECT_TRUE(admit_view("keys", writable, DType::kF32, {3, 4}).ok());
}

TEST_F(AdmitView, AnotherDTypeIsRefusedByBothNames) {
  view_.dtype = DType::kBf16;
  refuse("bf16 where f32");
}

TEST_F(AdmitView, AnotherRankIsRefused) {
  for (const int rank : {-1, 0, 1, 3, 4, 5}) {
    view_.rank = rank;
    refuse("rank " + std::to_string(rank) + " where 2");
  }
}

TEST_F(AdmitView, AnotherExtentIsRefusedByAxis) {
  view_.shape[1] = 5;
  refuse("axis 1 has extent 5 where 4");
  view_.shape = {-1, 4, 1, 1};
  refuse("axis 0 has extent -1");
}

TEST_F(AdmitView, ExtentsPastTheRankMustBeOne) {
  for (const std::int64_t extent : {0, 2, -1}) {
    view_.shape = {3, 4, 1, extent};
    refuse("axis 3 has extent " + std::to_string(extent));
  }
}

TEST_F(AdmitView, NegativeAndCrookedStridesAreRefusedByAxis) {
  view_.stride_bytes[0] = -16;
  refuse("axis 0 has a stride of -16 bytes");
  view_.stride_bytes[0] = 18;
  refuse("axis 0 has a stride of 18 bytes");
  view_.stride_bytes = {16, 3, 0, 0};
  refuse("axis 1 has a stride of 3 bytes");
}

TEST_F(AdmitView, StridesMayBeWiderThanTheRowsOrZero) {
  view_.stride_bytes[0] = 20;
  EXPECT_TRUE(admit().ok());
  view_.stride_bytes = {0, 0, 0, 0};
  EXPECT_TRUE(admit().ok());
}

TEST_F(AdmitView, NoDataIsRefusedUnlessNothingIsThere) {
  view_.data = nullptr;
  refuse("no data");
  view_.shape[0] = 0;
  EXPECT_TRUE(admit().ok());
}

TEST_F(AdmitView, ReachesPastTwoToTheThirtyTwoAreAdmittedAndPastTwoToTheSixtyThreeRefused) {
  for (const std::int64_t stride : {std::int64_t{1} << 31, std::int64_t{1} << 32, std::int64_t{1} << 60}) {
    view_.stride_bytes[0] = stride;
    EXPECT_TRUE(admit().ok()) << stride;
  }
  view_.stride_bytes[0] = std::int64_t{1} << 62;  // twice that is 2^63
  refuse("passes 64-bit sizes", Code::kOverflow);
  view_.shape[0] = (std::int64_t{1} << 32) + 1;
  view_.stride_bytes[0] = std::int64_t{1} << 31;
  refuse("passes 64-bit sizes", Code::kOverflow);
  view_.shape[0] = kMax;  // so many elements cannot be counted, even if they lie on one another
  view_.stride_bytes[0] = 0;
  refuse("passes 64-bit sizes", Code::kOverflow);
}

TEST_F(AdmitView, TheSumOfTwoReachesIsCheckedToo) {
  view_.shape[0] = 2;
  view_.stride_bytes = {kMax - 3, 4, 0, 0};
  refuse("axis 1", Code::kOverflow);
}

TEST(AdmitOutput, MayNotOverlapItself) {
  std::array<float, 64> memory{};
  Tensor view = dense_view(static_cast<void*>(memory.data()), DType::kF32, {2, 3, 4});
  EXPECT_TRUE(admit_view("output", view, DType::kF32, {2, 3, 4}).ok());
  view.stride_bytes = {16, 32, 4, 0};  // axes in another order of memory are no overlap
  EXPECT_TRUE(admit_view("output", view, DType::kF32, {2, 3, 4}).ok());
  for (const std::array<std::int64_t, 4>& strides :
       {std::array<std::int64_t, 4>{0, 16, 4, 0}, {48, 0, 4, 0}, {48, 12, 4, 0}, {44, 16, 4, 0}, {48, 16, 0, 0}}) {
    view.stride_bytes = strides;
    expect_refused(admit_view("output", view, DType::kF32, {2, 3, 4}), Code::kInvalidArgument, "output", {},
                   "share memory");
    EXPECT_TRUE(admit_view("keys", seriatim::as_const(view), DType::kF32, {2, 3, 4}).ok())
        << "what is only read may overlap";
  }
  view.shape = {1, 3, 4, 1};
  view.stride_bytes = {0, 16, 4, 0};  // an axis of one element takes no step
  EXPECT_TRUE(admit_view("output", view, DType::kF32, {1, 3, 4}).ok());
}

TEST(AdmitFinite, NamesTheFirstElementByItsRowAndItsPlaceInTheRow) {
  std::array<float, 24> memory{};
  const ConstTensor view = dense_view(static_cast<const void*>(memory.data()), DType::kF32, {2, 3, 4});
  EXPECT_TRUE(admit_finite("values", view).ok());
  for (const float bad : {test::kInfinity, -test::kInfinity, test::kNaN, -test::kNaN}) {
    memory.fill(1.0f);
    memory[23] = bad;
    expect_refused(admit_finite("values", view), Code::kNotFinite, "values", {1, 11}, "element 11 of row 1");
    memory[6] = bad;
    expect_refused(admit_finite("values", view), Code::kNotFinite, "values", {0, 6}, "element 6 of row 0");
  }
}

TEST(AdmitFinite, ReadsTheStridesAndNothingBetweenThem) {
  std::array<float, 8> memory{};
  memory.fill(test::kNaN);
  ConstTensor view = dense_view(static_cast<const void*>(memory.data()), DType::kF32, {2, 2});
  view.stride_bytes = {16, 8, 0, 0};
  for (const std::size_t at : {0u, 2u, 4u, 6u}) memory[at] = 1.0f;
  EXPECT_TRUE(admit_finite("values", view).ok());
  memory[6] = test::kInfinity;
  expect_refused(admit_finite("values", view), Code::kNotFinite, "values", {1, 1}, "element 1 of row 1 is inf");
}

TEST(AdmitFinite, KnowsTheHalvesInfinitiesAndNaNs) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    for (const float bad : {test::kInfinity, test::kNaN}) {
      std::array<std::uint16_t, 4> memory{};
      store_element(reinterpret_cast<std::byte*>(&memory[2]), dtype, bad);
      const ConstTensor view = dense_view(static_cast<const void*>(memory.data()), dtype, {3});
      expect_refused(admit_finite("weights", view), Code::kNotFinite, "weights", {2, 0}, "row 2");
    }
  }
}

}  // namespace
}  // namespace seriatim
