#include "seriatim/score.hpp"

#include <fmt/format.h>

#include "base/admit.hpp"
#include "score/score_ref.hpp"

namespace seriatim {

Status score_groups(const Geometry& geometry, ConstTensor query, ConstTensor head_weights, const PooledKeys& pooled,
                    std::span<float> scores) {
  const auto invalid = [](std::string_view argument, std::string_view what) {
    return Status::error(Code::kInvalidArgument, argument, fmt::format("{}: {}", argument, what));
  };
  if (Status s = admit_view("index_queries", query, geometry.index_dtype(), {geometry.index_heads(), geometry.index_dim()}); !s.ok()) return s;
  if (!head_weights.empty()) {
    if (Status s = admit_view("index_head_weights", head_weights, DType::kF32, {geometry.index_heads()}); !s.ok()) return s;
  }
  if (pooled.groups < 0 || pooled.dim != geometry.index_dim() || pooled.dtype != geometry.index_dtype()) {
    return invalid("pooled", fmt::format("{} groups of {} x {} where {} x {} is needed", pooled.groups, pooled.dim,
                                         dtype_name(pooled.dtype), geometry.index_dim(), dtype_name(geometry.index_dtype())));
  }
  if (pooled.groups > 0 && (pooled.pages == nullptr || pooled.page_groups < PooledKeys::kPanelGroups ||
                            pooled.page_groups % PooledKeys::kPanelGroups != 0 || pooled.first_slot < 0 ||
                            pooled.first_slot >= pooled.page_groups)) {
    return invalid("pooled", "pages are not a whole number of panels");
  }
  if (static_cast<std::int64_t>(scores.size()) != pooled.groups) {
    return invalid("scores", fmt::format("{} entries for {} groups", scores.size(), pooled.groups));
  }
  score_ref(geometry, query, head_weights, pooled, scores);
  return {};
}

}  // namespace seriatim
