#include "attend/attend_admit.hpp"

#include <cmath>
#include <cstring>

#include "base/admit.hpp"
#include "base/format.hpp"
#include "base/half.hpp"
#include "base/magnitude.hpp"
#include "seriatim/row.hpp"

namespace seriatim {
namespace {

// An all-ones exponent means infinity or NaN. The loop has no exit, so that it becomes vector code.
// False where elements are strided too: the slow look decides then.
bool surely_finite(const std::byte* row, std::int64_t elements, DType dtype, std::int64_t stride_bytes) {
  return stride_bytes == dtype_bytes(dtype) &&
         std::isfinite(row_kernels(default_kernels()).largest(row, elements, dtype));
}

Status admit_query(const Geometry& geometry, const ConstTensor& query, std::int64_t row_number) {
  const DType dtype = query_dtype(geometry, query);
  if (Status s = admit_view("queries", query, dtype, {geometry.query_heads(), geometry.head_dim()}); !s.ok()) return s;
  for (std::int64_t h = 0; h < geometry.query_heads(); ++h) {
    if (surely_finite(query.at(h), geometry.head_dim(), query.dtype, query.stride_bytes[1])) continue;
    for (std::int64_t i = 0; i < geometry.head_dim(); ++i) {
      const float value = load_element(query.at(h, i), query.dtype);
      if (!std::isfinite(value)) {
        return attend_fault(Code::kNotFinite, "queries", formatted("element {} of head {} is {}", i, h, value),
                            {row_number, h * geometry.head_dim() + i});
      }
    }
  }
  return {};
}

// What check_ascending demands, without saying where it fails; no exit from the loop, so that it becomes vector code.
bool is_ascending(VisibleRun run, std::span<const std::int32_t> row) {
  if (row.empty()) return true;
  if (row.front() < run.anchor || row.back() - run.anchor >= run.tokens) return false;
  std::uint32_t found = 0;
  for (std::size_t i = 1; i < row.size(); ++i) found |= static_cast<std::uint32_t>(row[i] <= row[i - 1]);
  return found == 0;
}

}  // namespace

Status attend_fault(Code code, std::string_view argument, std::string_view what, Place place) {
  const auto where = place.row < 0 ? std::string() : formatted(" (query {})", place.row);
  return Status::error(code, argument, formatted("{}: {}{}", argument, what, where), place);
}

DType query_dtype(const Geometry& geometry, const ConstTensor& queries) {
  return queries.dtype == DType::kF32 ? DType::kF32 : geometry.kv_dtype();
}

Status admit_sinks(const Geometry& geometry, std::span<const float> sinks) {
  if (sinks.empty()) return {};
  if (static_cast<std::int64_t>(sinks.size()) != geometry.query_heads()) {
    return attend_fault(Code::kInvalidArgument, "sinks",
                        formatted("{} entries for {} heads", sinks.size(), geometry.query_heads()), {});
  }
  for (std::size_t h = 0; h < sinks.size(); ++h) {
    if (!std::isfinite(sinks[h])) {
      return attend_fault(Code::kNotFinite, "sinks", formatted("head {} is {}", h, sinks[h]),
                          {-1, static_cast<std::int64_t>(h)});
    }
  }
  return {};
}

Status admit_attend(const LayerView& layer, VisibleRun run, const ConstTensor& query, std::span<const std::int32_t> row,
                    std::int64_t row_number) {
  const Geometry& geometry = *layer.geometry;
  if (layer.key_offset_bytes < 0)
    return attend_fault(Code::kInvalidArgument, "layer", "holds no keys and values", {row_number, -1});
  if (Status s = geometry.check_run(run, row_number); !s.ok()) return s;
  if (run.tokens > 0 &&
      (run.anchor < layer.run.anchor || run.anchor + run.tokens > layer.run.anchor + layer.run.tokens)) {
    return attend_fault(Code::kInvalidArgument, "visible",
                        formatted("{}..{} is not held by the layer", run.anchor, run.anchor + run.tokens - 1),
                        {row_number, -1});
  }
  if (Status s = admit_query(geometry, query, row_number); !s.ok()) return s;
  return is_ascending(run, row) ? Status() : check_ascending(run, row, row_number);
}

}  // namespace seriatim
