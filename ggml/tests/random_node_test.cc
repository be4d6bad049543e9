#include "random_node.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "support/random.hpp"

namespace seriatim::plugin {
namespace {

TEST(RandomNode, IsComputedLeftOrDeclinedAndNothingElseHappens) {
  std::array<int, 3> fates{};
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    seriatim::testing::Random random(seed);
    std::vector<std::uint8_t> bytes(64);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
    ++fates[static_cast<std::size_t>(testing::run_random_node(bytes))];
  }
  for (const int count : fates) EXPECT_GT(count, 10);  // each was met
}

}  // namespace
}  // namespace seriatim::plugin
