// For tests of selection and rows: score distributions, a planner without boilerplate, and the row told in another way
// than the library tells it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "seriatim/geometry.hpp"
#include "seriatim/row.hpp"
#include "seriatim/select.hpp"
#include "support/random.hpp"

namespace seriatim::test {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using testing::Random;

inline std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

enum class Spread { kUniform, kAllEqual, kMostlyZero, kRising, kFalling, kInfinities };
inline constexpr Spread kSpreads[] = {Spread::kUniform, Spread::kAllEqual, Spread::kMostlyZero,
                                      Spread::kRising,  Spread::kFalling,  Spread::kInfinities};

inline float draw(Spread spread, std::int64_t group, Random& random) {
  const float uniform = random.uniform();
  switch (spread) {
    case Spread::kUniform:
      return uniform;
    case Spread::kAllEqual:
      return 0.5f;
    case Spread::kMostlyZero:
      return uniform > 0.8f ? uniform : (uniform < 0.0f ? -0.0f : 0.0f);
    case Spread::kRising:
      return static_cast<float>(group);
    case Spread::kFalling:
      return -static_cast<float>(group);
    case Spread::kInfinities:
      return uniform > 0.5f ? kInfinity : (uniform < -0.5f ? -kInfinity : uniform);
  }
  return 0.0f;
}

inline std::vector<float> scores_of(Spread spread, std::int64_t groups, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> scores;
  for (std::int64_t g = 0; g < groups; ++g) scores.push_back(draw(spread, g, random));
  return scores;
}

// A geometry of which only the row matters.
inline Geometry row_geometry(std::int64_t group_tokens, std::int64_t budget_tokens) {
  GeometryOptions options;
  options.group_tokens = group_tokens;
  options.budget_tokens = budget_tokens;
  auto geometry = Geometry::admit(options);
  EXPECT_TRUE(geometry.ok()) << geometry.status().message();
  return geometry.value();
}

inline Geometry qsa() { return row_geometry(4, 2048); }

struct Planned {
  Status status;
  std::int64_t count = -1;
  std::vector<std::int32_t> storage;  // the whole row, padding included

  std::vector<std::int32_t> row() const {
    return {storage.begin(), storage.begin() + std::max<std::int64_t>(count, 0)};
  }
};

// Plans with scratch and storage of exactly the size that is asked for, filled with `garbage` beforehand.
inline Planned plan(const Geometry& geometry, VisibleRun run, std::span<const float> scores,
                    NanPolicy nan = NanPolicy::kRefuse, std::int32_t garbage = 0x5a5a5a5a, std::int64_t query = -1) {
  std::vector<std::int32_t> scratch(
      static_cast<std::size_t>(plan_row_scratch_entries(geometry, std::max<std::int64_t>(run.tokens, 0))), garbage);
  Planned planned;
  planned.storage.assign(static_cast<std::size_t>(geometry.row_capacity()), garbage);
  auto count = plan_row(geometry, run, scores, nan, scratch, planned.storage, query);
  planned.status = count.status();
  if (count.ok()) planned.count = *count;
  return planned;
}

// A score as an integer that orders alike; both zeros are 0. No float is compared.
inline std::int64_t order_of(float score) {
  const std::uint32_t bits = bits_of(score);
  const auto magnitude = static_cast<std::int64_t>(bits & 0x7fffffffu);
  return (bits >> 31) != 0 ? -magnitude : magnitude;
}

// All groups, best first.
inline std::vector<std::int64_t> ranking(std::span<const float> scores) {
  std::vector<std::int64_t> groups(scores.size());
  std::iota(groups.begin(), groups.end(), std::int64_t{0});
  std::stable_sort(groups.begin(), groups.end(), [&](std::int64_t a, std::int64_t b) {
    return order_of(scores[static_cast<std::size_t>(a)]) > order_of(scores[static_cast<std::size_t>(b)]);
  });
  return groups;
}

// The row by walking over every visible token and asking whether it is read.
inline std::vector<std::int32_t> row_by_walking(std::int64_t group_tokens, std::int64_t budget_tokens, VisibleRun run,
                                                std::span<const std::int64_t> best_first) {
  std::vector<bool> wins(best_first.size(), false);
  const std::size_t kept = std::min(best_first.size(), static_cast<std::size_t>(budget_tokens / group_tokens));
  for (std::size_t i = 0; i < kept; ++i) wins[static_cast<std::size_t>(best_first[i])] = true;
  std::vector<std::int32_t> row;
  for (std::int64_t token = 0; token < run.tokens; ++token) {
    const auto group = static_cast<std::size_t>(token / group_tokens);
    if (group >= wins.size() || wins[group]) row.push_back(static_cast<std::int32_t>(run.anchor + token));
  }
  return row;
}

inline std::vector<std::int32_t> dense_row(VisibleRun run) {
  std::vector<std::int32_t> row(static_cast<std::size_t>(run.tokens));
  std::iota(row.begin(), row.end(), static_cast<std::int32_t>(run.anchor));
  return row;
}

// A refusal says what kind it is, names the argument first, says where, and contains `words`.
inline void expect_refused(const Status& status, Code code, std::string_view argument, Place place,
                           std::string_view words) {
  EXPECT_EQ(code_name(status.code()), code_name(code)) << status.message();
  EXPECT_EQ(status.argument(), argument) << status.message();
  EXPECT_EQ(status.message().substr(0, argument.size()), argument) << status.message();
  EXPECT_NE(status.message().find(words), std::string_view::npos) << status.message() << " lacks: " << words;
  EXPECT_EQ(status.place().row, place.row) << status.message();
  EXPECT_EQ(status.place().index, place.index) << status.message();
}

// Memory that remembers what it held, to show that a refusal wrote nothing.
template <typename T>
class Witness {
 public:
  explicit Witness(std::size_t entries, T fill) : values(entries, fill), before_(values) {}
  bool untouched() const { return std::memcmp(values.data(), before_.data(), values.size() * sizeof(T)) == 0; }
  std::vector<T> values;

 private:
  std::vector<T> before_;
};

}  // namespace seriatim::test
