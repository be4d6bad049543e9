// The whole path on the device against the host's, bit for bit.
#include <gtest/gtest.h>

#include "device/device_testing.hpp"

namespace seriatim::testing {
namespace {

constexpr std::array kDTypes{DType::kF32, DType::kBf16, DType::kF16};

TEST(DevicePath, EveryQueryHasTheHostsRowOutputAndLse) {
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

}  // namespace
}  // namespace seriatim::testing
