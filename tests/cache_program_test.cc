// Thousands of random programs against the plain definition; a failing one is shrunk and printed as a few lines.
#include "support/cache_program.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "support/file.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;

// SERIATIM_CACHE_PROGRAMS=100000 in the environment runs more of them, by hand.
int programs_to_run() {
  const char* asked = std::getenv("SERIATIM_CACHE_PROGRAMS");
  return asked == nullptr ? 2000 : std::atoi(asked);
}

Program random_program(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint8_t> bytes(3 + 4 * (20 + random() % 60));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random() >> 32);
  return decode(bytes);
}

TEST(CachePrograms, EqualFreshCachesFedTheSurvivingTokens) {
  const file::Folder folder;
  const std::string path = folder / ".";
  std::size_t operations = 0;
  for (int seed = 0; seed < programs_to_run(); ++seed) {
    const Program program = random_program(static_cast<std::uint64_t>(seed));
    operations += program.operations.size();
    const auto failure = run(program, path);
    if (!failure) continue;
    const Program small = shrink(program, [&](const Program& p) { return run(p, path).has_value(); });
    FAIL() << "program " << seed << ": " << text(*run(small, path));
  }
  EXPECT_GE(operations, static_cast<std::size_t>(20 * programs_to_run()));
}

// The shrinker must be trusted before its output is.
TEST(CachePrograms, AFailingProgramShrinksToWhatMakesItFail) {
  const auto forks_then_truncates = [](const Program& program) {
    bool forked = false;
    for (const Operation& o : program.operations) {
      forked = forked || (o.kind % 17 == 6 && o.a >= 5);
      if (forked && o.kind % 17 == 7) return true;
    }
    return false;
  };
  int shrunk = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Program program = random_program(seed);
    if (!forks_then_truncates(program)) continue;
    const Program small = shrink(program, forks_then_truncates);
    ASSERT_EQ(small.operations.size(), 2u);
    EXPECT_EQ(small.operations[0].kind % 17, 6);
    EXPECT_LE(small.operations[0].a, 8);
    EXPECT_EQ(small.operations[0].b, 0);
    EXPECT_EQ(small.operations[1].kind % 17, 7);
    ++shrunk;
  }
  EXPECT_GT(shrunk, 20);
}

}  // namespace
}  // namespace seriatim
