#include "base/sincos.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "support/random.hpp"
#include "tables/sincos_table.hpp"

namespace seriatim {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// FNV-1a over 32-bit words, as in tools/make_math_tables.py.
class Hash {
 public:
  void add(SinCos result) {
    add_word(bits_of(result.sin));
    add_word(bits_of(result.cos));
  }
  std::uint64_t value() const { return state_; }

 private:
  void add_word(std::uint32_t word) { state_ = (state_ ^ word) * 0x100000001b3u; }
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

// As in tools/make_math_tables.py: any sign and significand, 2^-20 <= |angle| < 2^32.
float sampled_angle(std::uint64_t index) {
  const std::uint64_t z = testing::Random(index * 0x9e3779b97f4a7c15u).next();
  const auto biased = 107u + static_cast<std::uint32_t>((z >> 32) & 0xffffu) % 52u;
  return float_of((static_cast<std::uint32_t>(z) & 0x807fffffu) | (biased << 23));
}

TEST(SinCos, EveryIntegerAngleBelow2To20HasTheBitsOfMpfr) {
  std::uint32_t angle = 0;
  for (const std::uint64_t expected : sincos_table::kIntegerAngles) {
    const std::uint32_t first = angle;
    Hash hash;
    for (; angle < first + sincos_table::kChunk; ++angle) hash.add(sincos32(static_cast<float>(angle)));
    ASSERT_EQ(hash.value(), expected) << "within angles " << first << " to " << angle - 1;
  }
  EXPECT_EQ(angle, 1u << 20);
}

TEST(SinCos, SampledAnglesHaveTheBitsOfMpfr) {
  std::uint64_t index = 0;
  for (const std::uint64_t expected : sincos_table::kSampledAngles) {
    const std::uint64_t first = index;
    Hash hash;
    for (; index < first + sincos_table::kChunk; ++index) hash.add(sincos32(sampled_angle(index)));
    ASSERT_EQ(hash.value(), expected) << "within samples " << first << " to " << index - 1;
  }
  EXPECT_EQ(index, 1u << 18);
}

TEST(SinCos, TheAnglesNearestToAMidpointHaveTheBitsOfMpfr) {
  ASSERT_GE(sincos_table::kHardAngles.size(), 256u);
  for (const sincos_table::Case& hard : sincos_table::kHardAngles) {
    const SinCos got = sincos32(float_of(hard.angle));
    EXPECT_EQ(bits_of(got.sin), hard.sin) << std::hexfloat << float_of(hard.angle);
    EXPECT_EQ(bits_of(got.cos), hard.cos) << std::hexfloat << float_of(hard.angle);
  }
}

// In double alone some of the hard angles come out wrong, so the table above does ask for more than a double holds.
TEST(SinCos, TheHardAnglesDefeatPlainDouble) {
  int misrounded = 0;
  for (const sincos_table::Case& hard : sincos_table::kHardAngles) {
    const auto angle = static_cast<double>(float_of(hard.angle));
    misrounded += bits_of(static_cast<float>(std::sin(angle))) != hard.sin ? 1 : 0;
    misrounded += bits_of(static_cast<float>(std::cos(angle))) != hard.cos ? 1 : 0;
  }
  EXPECT_GT(misrounded, 0);
}

TEST(SinCos, NegativeAnglesMirror) {
  for (std::uint64_t index = 0; index < 50'000; ++index) {
    const float angle = sampled_angle(index);
    const SinCos plus = sincos32(angle);
    const SinCos minus = sincos32(-angle);
    ASSERT_EQ(bits_of(minus.sin), bits_of(-plus.sin)) << std::hexfloat << angle;
    ASSERT_EQ(bits_of(minus.cos), bits_of(plus.cos)) << std::hexfloat << angle;
  }
}

TEST(SinCos, ZeroAndTinyAnglesKeepTheirSignAndBits) {
  for (const std::uint32_t angle : {0x00000000u, 0x80000000u, 0x00000001u, 0x80000001u, 0x007fffffu, 0x2f000000u}) {
    const SinCos got = sincos32(float_of(angle));
    EXPECT_EQ(bits_of(got.sin), angle);
    EXPECT_EQ(bits_of(got.cos), bits_of(1.0f));
  }
}

TEST(SinCos, InfinityAndNaNGiveNaN) {
  for (const std::uint32_t angle : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffffffffu, 0x7f800001u}) {
    const SinCos got = sincos32(float_of(angle));
    EXPECT_EQ(bits_of(got.sin), 0x7fc00000u);
    EXPECT_EQ(bits_of(got.cos), 0x7fc00000u);
  }
}

// Counts how a result compares with long double; within 2^-34 of a midpoint long double does not decide.
struct Tally {
  std::uint64_t equal = 0;
  std::uint64_t undecided = 0;
  std::uint64_t different = 0;

  void add(float got, long double fine) {
    int exponent = 0;
    const long double units = std::ldexp(std::fabs(std::frexp(fine, &exponent)), 24);
    const bool near_midpoint = std::fabs(units - std::floor(units) - 0.5L) < 0x1p-34L;
    if (bits_of(got) == bits_of(static_cast<float>(fine))) {
      ++equal;
    } else if (near_midpoint) {
      ++undecided;
    } else {
      ++different;
    }
  }
};

// Every finite f32 when SERIATIM_EXHAUSTIVE is set (minutes), every 10,007th otherwise.
TEST(SinCos, AnglesOfEveryMagnitudeAgreeWithLongDouble) {
  if (LDBL_MANT_DIG < 64) GTEST_SKIP() << "long double is no finer than double here";
  const std::uint64_t stride = std::getenv("SERIATIM_EXHAUSTIVE") != nullptr ? 1 : 10'007;
  Tally tally;
  for (std::uint64_t bits = 1; bits < 0x7f800000u; bits += stride) {
    const float angle = float_of(static_cast<std::uint32_t>(bits));
    const SinCos got = sincos32(angle);
    tally.add(got.sin, std::sin(static_cast<long double>(angle)));
    tally.add(got.cos, std::cos(static_cast<long double>(angle)));
  }
  EXPECT_EQ(tally.different, 0u);
  EXPECT_EQ(tally.undecided, 0u);
  EXPECT_GT(tally.equal, 4'000'000'000u / stride);
}

}  // namespace
}  // namespace seriatim
