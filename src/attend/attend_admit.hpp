// What attention asks of one query, its row and the sinks before anything is computed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "seriatim/cache.hpp"
#include "seriatim/status.hpp"

namespace seriatim {

// An error that names its argument and, where there is one, its query.
Status attend_fault(Code code, std::string_view argument, std::string_view what, Place place);

// The dtype that queries must have: their own if it is f32, else that of the keys and values.
DType query_dtype(const Geometry& geometry, const ConstTensor& queries);

// Errors  InvalidArgument: another length than query_heads. NotFinite: index = head.
Status admit_sinks(const Geometry& geometry, std::span<const float> sinks);

// Errors  as attend_row, for `run`, `query` and `row`.
Status admit_attend(const LayerView& layer, VisibleRun run, const ConstTensor& query, std::span<const std::int32_t> row,
                    std::int64_t row_number);

}  // namespace seriatim
