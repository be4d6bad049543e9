// The comparison of one row with the captured one.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/replay.hpp"

namespace seriatim {

// The captured row up to its first -1.
std::span<const std::int32_t> live_part(std::span<const std::int32_t> padded);

// Takes   ours: canonical; expected: as captured, without padding; scores of the query's complete groups
RowVerdict judge_row(const Geometry& geometry, VisibleRun run, std::span<const std::int32_t> ours,
                     std::span<const std::int32_t> expected, std::span<const float> scores, double margin);

}  // namespace seriatim
