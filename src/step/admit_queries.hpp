// What plan() and attend() both ask of the queries' positions.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/cache.hpp"

namespace seriatim {

// The visible run of a query at `position`.
inline VisibleRun visible_run(const LayerView& layer, std::int64_t position) {
  return {layer.run.anchor, position - layer.run.anchor + 1};
}

// Errors  InvalidArgument: another count than `queries`, or a position the layer does not hold (row = query). Capacity:
//         a query that sees more than `max_visible_tokens`.
Status admit_positions(const LayerView& layer, std::span<const std::int64_t> positions, std::int64_t queries,
                       std::int64_t max_visible_tokens);

}  // namespace seriatim
