// expand_row without its checks, for callers that have made them.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/geometry.hpp"

namespace seriatim {

// Takes   groups strictly ascending and below geometry.groups(n), row_groups() of them at most; row of row_capacity()
//         or more
// Gives   as expand_row
std::int64_t emit_row(const Geometry& geometry, VisibleRun run, std::span<const std::int32_t> groups,
                      std::span<std::int32_t> row);

// The row that holds every visible token. Takes n of at most row_capacity().
std::int64_t emit_dense_row(VisibleRun run, std::span<std::int32_t> row);

}  // namespace seriatim
