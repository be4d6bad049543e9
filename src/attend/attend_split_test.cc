// The order of reduction: splits of 128 entries by place in the row, each a chain, folded in order; sinks first.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/exp.hpp"
#include "base/log.hpp"
#include "support/attend.hpp"

namespace seriatim {
namespace {

using namespace testing;

struct Folded {
  float max = 0.0f;
  float den = 0.0f;
  float sum = 0.0f;
};

// The contract's text for one split of one head with one value dim.
Folded split_of(std::span<const float> logits, std::span<const float> values) {
  Folded split{logits[0], 0.0f, 0.0f};
  for (const float logit : logits) split.max = std::fmax(split.max, logit);
  for (std::size_t j = 0; j < logits.size(); ++j) {
    const float p = exp32(logits[j] - split.max);
    split.den = split.den + p;
    split.sum = std::fma(p, values[j], split.sum);
  }
  return split;
}

Folded fold(const Folded& before, const Folded& split) {
  const float max = std::fmax(before.max, split.max);
  const float a = exp32(before.max - max);
  const float b = exp32(split.max - max);
  return {max, std::fma(before.den, a, split.den * b), std::fma(before.sum, a, split.sum * b)};
}

struct Case {
  std::size_t entries;
  std::vector<std::size_t> cuts;  // splits' lengths
};

// One head of one dim, query 1 and scale 1: the logits are the keys.
GeometryOptions one_by_one() {
  GeometryOptions options = small_attention();
  options.query_heads = 1;
  options.kv_heads = 1;
  options.head_dim = 1;
  options.softmax_scale = 1.0f;
  return options;
}

class Numbers {
 public:
  Numbers(std::size_t entries, std::uint64_t seed) {
    Random random(seed);
    for (std::size_t j = 0; j < entries; ++j) {
      logits.push_back(3.0f * random.normal());
      values.push_back(random.normal());
    }
  }
  Attended attend(const std::vector<float>& sinks = {}) const {
    AttendCase attend(one_by_one(), static_cast<std::int64_t>(logits.size()), 1);
    attend.query.set(0, 1.0f);
    for (std::size_t j = 0; j < logits.size(); ++j) {
      attend.keys.set(static_cast<std::int64_t>(j), logits[j]);
      attend.values.set(static_cast<std::int64_t>(j), values[j]);
    }
    attend.sinks = sinks;
    return attend.run();
  }
  Folded piece(std::size_t first, std::size_t count) const {
    return split_of(std::span(logits).subspan(first, count), std::span(values).subspan(first, count));
  }

  std::vector<float> logits;
  std::vector<float> values;
};

void expect_result(const Attended& got, const Folded& want, std::size_t entries) {
  ASSERT_TRUE(got.status.ok()) << got.status.message();
  EXPECT_EQ(std::bit_cast<std::uint32_t>(got.output.get(0)), std::bit_cast<std::uint32_t>(want.sum / want.den))
      << entries;
  EXPECT_EQ(std::bit_cast<std::uint32_t>(got.lse[0]), std::bit_cast<std::uint32_t>(want.max + log32(want.den)))
      << entries;
}

TEST(AttendSplits, AreCutAfterEvery128EntriesAndFoldedInOrder) {
  const std::vector<Case> cases{{1, {1}},          {127, {127}},      {128, {128}},         {129, {128, 1}},
                                {255, {128, 127}}, {256, {128, 128}}, {257, {128, 128, 1}}, {400, {128, 128, 128, 16}}};
  int unlike_one_chain = 0;
  for (const Case& c : cases) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Numbers numbers(c.entries, seed);
      Folded total = numbers.piece(0, c.cuts[0]);
      std::size_t first = c.cuts[0];
      for (std::size_t s = 1; s < c.cuts.size(); ++s) {
        total = fold(total, numbers.piece(first, c.cuts[s]));
        first += c.cuts[s];
      }
      ASSERT_EQ(first, c.entries);
      expect_result(numbers.attend(), total, c.entries);
      const Folded chain = numbers.piece(0, c.entries);
      unlike_one_chain += total.sum / total.den != chain.sum / chain.den ? 1 : 0;
    }
  }
  EXPECT_GT(unlike_one_chain, 10) << "the cuts show in the bits, or this test says nothing";
}

TEST(AttendSplits, CountEntriesOfTheRowNotPositions) {
  AttendCase attend(small_attention(), 1000, 31);
  attend.keep_only([](std::int64_t t) { return t % 5 == 0; });
  ASSERT_EQ(attend.row.size(), 200u);
  EXPECT_TRUE(same_result(attend.run(), attend.oracle()));
}

TEST(AttendSplits, TheLargestLogitMayStandInAnySplit) {
  for (const std::size_t at : {std::size_t{0}, std::size_t{127}, std::size_t{128}, std::size_t{256}}) {
    Numbers numbers(257, 5);
    numbers.logits[at] = 60.0f;
    expect_result(numbers.attend(), fold(fold(numbers.piece(0, 128), numbers.piece(128, 128)), numbers.piece(256, 1)),
                  at);
  }
}

TEST(AttendSinks, AreAFirstSplitOfTheirOwn) {
  for (const std::size_t entries : {std::size_t{1}, std::size_t{128}, std::size_t{129}}) {
    for (const float sink : {-4.0f, 0.0f, 2.5f, 70.0f}) {
      const Numbers numbers(entries, 6);
      Folded total = fold({sink, 1.0f, 0.0f}, numbers.piece(0, std::min<std::size_t>(entries, 128)));
      if (entries > 128) total = fold(total, numbers.piece(128, entries - 128));
      expect_result(numbers.attend({sink}), total, entries);
    }
  }
}

TEST(AttendSinks, BelongToTheirHeadAndEqualTheOracle) {
  AttendCase attend(small_attention(), 300, 32);
  const Attended without = attend.run();
  attend.sinks = {1.0f, -1e30f, 3.0f, -1e30f};
  const Attended with = attend.run();
  EXPECT_TRUE(same_result(with, attend.oracle()));
  for (std::int64_t head = 0; head < 4; ++head) {
    const bool same = static_cast<bool>(same_bits(head_bytes(with.output, head), head_bytes(without.output, head)));
    EXPECT_EQ(same, head % 2 == 1) << "a sink far below every logit changes nothing; head " << head;
  }
}

TEST(AttendSinks, AloneGiveZerosAndThemselves) {
  AttendCase attend(small_attention(), 3, 33);
  attend.row.clear();
  attend.sinks = {1.0f, -2.0f, 0.0f, 1e30f};
  const Attended result = attend.run();
  ASSERT_TRUE(result.status.ok());
  EXPECT_FALSE(varies(result.output.bytes()));
  EXPECT_EQ(result.output.get(0), 0.0f);
  EXPECT_EQ(result.lse, attend.sinks);
}

}  // namespace
}  // namespace seriatim
