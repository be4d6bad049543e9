#include "base/fma.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "support/random.hpp"

namespace seriatim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// Equal bits, or both NaN: which NaN comes out is nobody's promise.
bool same(float x, float y) { return bits_of(x) == bits_of(y) || (std::isnan(x) && std::isnan(y)); }

struct Triple {
  float a;
  float b;
  float c;
};

class Words {
 public:
  std::uint32_t word() { return static_cast<std::uint32_t>(random_.next() >> 32); }
  std::uint32_t below(std::uint32_t bound) { return word() % bound; }

 private:
  testing::Random random_{20240917};
};

// A float of the given biased exponent whose significand ends in `zeros` zero bits.
float shaped(Words& random, std::uint32_t biased, std::uint32_t zeros) {
  const std::uint32_t fraction = (random.word() & 0x007fffffu) >> zeros << zeros;
  return float_of((random.word() & 0x80000000u) | (biased << 23) | fraction);
}

// Turns through the kinds of triple in which a fused multiply-add goes wrong when it is rounded twice.
Triple draw(Words& random, std::uint64_t turn) {
  switch (turn % 6) {
    case 0:  // any bits at all: infinities, NaNs and subnormals among them
      return {float_of(random.word()), float_of(random.word()), float_of(random.word())};
    case 1: {  // addend near the product
      const float a = shaped(random, 96 + random.below(64), 0);
      const float b = shaped(random, 96 + random.below(64), 0);
      return {a, b, float_of(bits_of(-(a * b)) + random.below(5) - 2)};
    }
    case 2: {  // a product on a midpoint between two floats, tipped by an addend that a double cannot hold beside it
      const float a = shaped(random, 127, 12);
      const float b = shaped(random, 127, 11);
      const float tip = shaped(random, 60 + random.below(45), 0);
      return {float_of(bits_of(a) | 1u << 12), float_of(bits_of(b) | 1u << 11), tip};
    }
    case 3: {  // results among the subnormals
      const std::uint32_t exponents = 103 + random.below(26);
      const std::uint32_t biased = 1 + random.below(102);
      const float a = shaped(random, biased, random.below(24));
      return {a, shaped(random, exponents - biased, random.below(24)), shaped(random, 0, random.below(24))};
    }
    case 4: {  // half a unit of the addend's last place, less a part that a double cannot hold beside the addend
      const float c = shaped(random, 60 + random.below(120), random.below(24));
      const std::uint32_t half_unit = (bits_of(c) >> 23 & 0xffu) - 24;
      const std::uint32_t nudge = random.below(8);
      const float scale = float_of((random.word() & 0x80000000u) | half_unit << 23);
      return {scale + scale * static_cast<float>(nudge) * 0x1p-23f, 1.0f - static_cast<float>(nudge) * 0x1p-23f, c};
    }
    default: {  // near overflow
      const std::uint32_t biased = 128 + random.below(100);
      return {shaped(random, biased, 0), shaped(random, 380 - biased, 0), shaped(random, 250 + random.below(5), 0)};
    }
  }
}

std::uint64_t triples_to_draw() { return std::getenv("SERIATIM_EXHAUSTIVE") != nullptr ? 600'000'000u : 2'000'000u; }

TEST(Fma, SoftwareAgreesWithTheStandardLibraryOnSeededTriples) {
  Words random;
  std::uint64_t finite = 0;
  std::uint64_t subnormal = 0;
  std::uint64_t unlike_two_roundings = 0;
  for (std::uint64_t turn = 0; turn < triples_to_draw(); ++turn) {
    const Triple t = draw(random, turn);
    const float expected = std::fma(t.a, t.b, t.c);
    const float got = fma32_software(t.a, t.b, t.c);
    ASSERT_TRUE(same(got, expected)) << std::hexfloat << t.a << " * " << t.b << " + " << t.c << " gave " << got
                                     << ", not " << expected;
    finite += std::isfinite(expected) ? 1u : 0u;
    subnormal += std::fpclassify(expected) == FP_SUBNORMAL ? 1u : 0u;
    const double rounded_twice = static_cast<double>(t.a) * static_cast<double>(t.b) + static_cast<double>(t.c);
    unlike_two_roundings += same(static_cast<float>(rounded_twice), expected) ? 0u : 1u;
  }
  // The draw reached what it was made for.
  EXPECT_GT(finite, triples_to_draw() / 2);
  EXPECT_GT(subnormal, triples_to_draw() / 20);
  EXPECT_GT(unlike_two_roundings, triples_to_draw() / 100);
}

TEST(Fma, TheCompiledOneAgreesWithSoftware) {
  Words random;
  for (std::uint64_t turn = 0; turn < 500'000; ++turn) {
    const Triple t = draw(random, turn);
    ASSERT_TRUE(same(fma32(t.a, t.b, t.c), fma32_software(t.a, t.b, t.c)))
        << std::hexfloat << t.a << " * " << t.b << " + " << t.c;
  }
}

TEST(Fma, EveryCombinationOfSpecialValuesAgreesWithTheStandardLibrary) {
  std::vector<float> specials{0.0f,
                              1.0f,
                              1.5f,
                              0x1p-149f,
                              0x1p-126f,
                              0x1.fffffep-127f,
                              0x1p-75f,
                              0x1p-74f,
                              0x1p+24f,
                              0x1.fffffep+127f,
                              0x1p+127f,
                              kInfinity,
                              std::numeric_limits<float>::quiet_NaN()};
  const std::size_t positives = specials.size();
  for (std::size_t i = 0; i < positives; ++i) specials.push_back(-specials[i]);
  int compared = 0;
  for (const float a : specials) {
    for (const float b : specials) {
      for (const float c : specials) {
        ASSERT_TRUE(same(fma32_software(a, b, c), std::fma(a, b, c))) << std::hexfloat << a << " " << b << " " << c;
        ASSERT_TRUE(same(fma32(a, b, c), std::fma(a, b, c))) << std::hexfloat << a << " " << b << " " << c;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 26 * 26 * 26);
}

// Worked by hand, so that a standard library with the same fault would not hide one here.
TEST(Fma, HandWorkedCasesRoundOnce) {
  for (float (*fma)(float, float, float) : {fma32, fma32_software}) {
    // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: a tie alone, and the last bit of the addend tips it either way.
    const float x = 1.0f + 0x1p-12f;
    EXPECT_EQ(fma(x, x, 0.0f), 1.0f + 0x1p-11f);
    EXPECT_EQ(fma(x, x, 0x1p-149f), 1.0f + 0x1p-11f + 0x1p-23f);
    EXPECT_EQ(fma(x, x, -0x1p-149f), 1.0f + 0x1p-11f);
    // The exact product minus its own rounding leaves the lost part.
    EXPECT_EQ(fma(x, x, -(1.0f + 0x1p-11f)), 0x1p-24f);
    // 2^-150 is half of the least subnormal: the tie goes to zero, anything more to the subnormal.
    EXPECT_EQ(bits_of(fma(0x1p-75f, 0x1p-75f, 0.0f)), 0u);
    EXPECT_EQ(bits_of(fma(-0x1p-75f, 0x1p-75f, 0.0f)), 0x80000000u);
    EXPECT_EQ(bits_of(fma(0x1.000002p-75f, 0x1p-75f, 0.0f)), 1u);
    // The midpoint past the largest f32 goes to infinity, a hair below it does not.
    EXPECT_EQ(fma(0x1p+103f, 1.0f, 0x1.fffffep+127f), kInfinity);
    EXPECT_EQ(fma(0x1.fffffep+102f, 1.0f, 0x1.fffffep+127f), 0x1.fffffep+127f);
    // Exact cancellation is +0 in round to nearest, and two negative zeros stay negative.
    EXPECT_EQ(bits_of(fma(3.0f, 5.0f, -15.0f)), 0u);
    EXPECT_EQ(bits_of(fma(-0.0f, 5.0f, -0.0f)), 0x80000000u);
  }
}

}  // namespace
}  // namespace seriatim
