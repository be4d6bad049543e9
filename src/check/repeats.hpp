// Rows of equal input that differ.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "seriatim/check.hpp"

namespace seriatim {

// What of a row is remembered: digests of its input and of its entries up to the padding.
struct RowDigest {
  std::uint64_t input = 0;
  std::uint64_t entries = 0;
};
RowDigest digest_row(std::int64_t visible, std::span<const float> scores, std::span<const std::int64_t> entries);

// Where the digests of two rows say equal input, the first row of that input is compared with each later one, entry by
// entry and score by score.
// Gives   findings, by row; `judged` rows that have a partner
Status find_repeats(const Selection& selection, std::span<const RowDigest> digests, std::vector<Finding>& findings,
                    std::int64_t& judged);

}  // namespace seriatim
