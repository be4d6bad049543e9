// The path from scores to row allocates nothing beyond what the caller's workspace holds. This binary counts every
// allocation it makes.
#include <gtest/gtest.h>

#include "seriatim/kernels.hpp"
#include "support/heap.hpp"
#include "support/rows.hpp"

namespace seriatim {
namespace {

TEST(RowAllocations, TheCounterCounts) {
  const std::int64_t before = testing::heap_use().calls;
  auto* memory = new std::vector<float>(100);
  EXPECT_GE(testing::heap_use().calls - before, 2);
  delete memory;
}

TEST(RowAllocations, FromScoresToRowThereIsNone) {
  const Geometry geometry = test::qsa();
  (void)default_kernels();  // chosen once in a process
  for (const std::int64_t n : {0, 3, 2051, 2052, 8191, 262144}) {
    for (const NanPolicy nan : {NanPolicy::kRefuse, NanPolicy::kExclude}) {
      const auto scores = test::scores_of(test::Spread::kMostlyZero, n / 4, 1);
      std::vector<std::int32_t> scratch(static_cast<std::size_t>(plan_row_scratch_entries(geometry, n)));
      std::vector<std::int32_t> row(2051);
      const std::int64_t before = testing::heap_use().calls;
      const auto count = plan_row(geometry, {0, n}, scores, nan, scratch, row);
      const bool canonical =
          count.ok() && check_row(geometry, {0, n}, std::span(row).first(static_cast<std::size_t>(*count))).ok();
      EXPECT_EQ(testing::heap_use().calls - before, 0) << n;
      EXPECT_TRUE(canonical) << n;
    }
  }
}

}  // namespace
}  // namespace seriatim
