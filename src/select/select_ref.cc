#include "select/select_ref.hpp"

#include <algorithm>

namespace seriatim {

std::int64_t select_ref(std::span<const float> scores, std::int64_t keep, std::span<std::int32_t> candidates) {
  const auto better = [scores](std::int32_t a, std::int32_t b) {
    const float score_a = scores[static_cast<std::size_t>(a)];
    const float score_b = scores[static_cast<std::size_t>(b)];
    return score_a > score_b || (score_a == score_b && a < b);  // -0 == +0: position decides
  };
  const std::int64_t chosen = std::min(keep, static_cast<std::int64_t>(candidates.size()));
  const auto cut = candidates.begin() + chosen;
  std::nth_element(candidates.begin(), cut, candidates.end(), better);
  std::sort(candidates.begin(), cut);
  return chosen;
}

}  // namespace seriatim
