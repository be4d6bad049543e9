// The definition of selection: the K best of a total order, handed out in ascending position.
#pragma once

#include <cstdint>
#include <span>

namespace seriatim {

// `candidates` holds the group numbers that may be chosen (no NaN among their scores) and is reordered: its first
// min(keep, size) entries become the chosen groups, ascending. Gives how many.
std::int64_t select_ref(std::span<const float> scores, std::int64_t keep, std::span<std::int32_t> candidates);

}  // namespace seriatim
