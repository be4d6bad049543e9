// What the oracles ask of their arguments. Written here because they share nothing with the modules they check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/admit.hpp"
#include "seriatim/oracle.hpp"

namespace seriatim {

Status oracle_fault(std::string_view argument, std::string_view what);

// Errors  InvalidArgument: `size` is not `wanted` (nor 0, where that means absent).
Status admit_oracle_size(std::string_view argument, std::size_t size, std::int64_t wanted, bool may_be_absent);

// Errors  InvalidArgument: shapes, strides, dtypes, fewer than `least` tokens. NotFinite: query, sinks, and the first
//         `least` keys and values.
Status admit_oracle_tokens(const Geometry& geometry, const ConstTensor& query, const DenseTokens& tokens,
                           std::int64_t least, std::span<const float> sinks);

}  // namespace seriatim
