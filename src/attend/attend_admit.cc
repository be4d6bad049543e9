#include "attend/attend_admit.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/admit.hpp"
#include "base/half.hpp"
#include "seriatim/row.hpp"

namespace seriatim {
namespace {

Status admit_query(const Geometry& geometry, const ConstTensor& query, std::int64_t row_number) {
  if (Status s = admit_view("queries", query, geometry.kv_dtype(), {geometry.query_heads(), geometry.head_dim()}); !s.ok()) return s;
  for (std::int64_t h = 0; h < geometry.query_heads(); ++h) {
    for (std::int64_t i = 0; i < geometry.head_dim(); ++i) {
      const float value = load_element(query.at(h, i), query.dtype);
      if (!std::isfinite(value)) {
        return attend_fault(Code::kNotFinite, "queries", fmt::format("element {} of head {} is {}", i, h, value),
                            {row_number, h * geometry.head_dim() + i});
      }
    }
  }
  return {};
}

}  // namespace

Status attend_fault(Code code, std::string_view argument, std::string_view what, Place place) {
  const auto where = place.row < 0 ? std::string() : fmt::format(" (query {})", place.row);
  return Status::error(code, argument, fmt::format("{}: {}{}", argument, what, where), place);
}

Status admit_sinks(const Geometry& geometry, std::span<const float> sinks) {
  if (sinks.empty()) return {};
  if (static_cast<std::int64_t>(sinks.size()) != geometry.query_heads()) {
    return attend_fault(Code::kInvalidArgument, "sinks", fmt::format("{} entries for {} heads", sinks.size(), geometry.query_heads()), {});
  }
  for (std::size_t h = 0; h < sinks.size(); ++h) {
    if (!std::isfinite(sinks[h])) {
      return attend_fault(Code::kNotFinite, "sinks", fmt::format("head {} is {}", h, sinks[h]), {-1, static_cast<std::int64_t>(h)});
    }
  }
  return {};
}

Status admit_attend(const LayerView& layer, VisibleRun run, const ConstTensor& query, std::span<const std::int32_t> row,
                    std::int64_t row_number) {
  const Geometry& geometry = *layer.geometry;
  if (Status s = geometry.check_run(run, row_number); !s.ok()) return s;
  if (run.tokens > 0 && (run.anchor < layer.run.anchor || run.anchor + run.tokens > layer.run.anchor + layer.run.tokens)) {
    return attend_fault(Code::kInvalidArgument, "visible",
                        fmt::format("{}..{} is not held by the layer", run.anchor, run.anchor + run.tokens - 1), {row_number, -1});
  }
  if (Status s = admit_query(geometry, query, row_number); !s.ok()) return s;
  return check_ascending(run, row, row_number);
}

}  // namespace seriatim
