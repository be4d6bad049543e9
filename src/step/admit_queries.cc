#include "step/admit_queries.hpp"

#include "base/format.hpp"

namespace seriatim {

Status admit_positions(const LayerView& layer, std::span<const std::int64_t> positions, std::int64_t queries,
                       std::int64_t max_visible_tokens) {
  if (static_cast<std::int64_t>(positions.size()) != queries) {
    return Status::error(Code::kInvalidArgument, "positions",
                         formatted("positions: {} for {} queries", positions.size(), queries));
  }
  for (std::int64_t q = 0; q < queries; ++q) {
    const std::int64_t position = positions[static_cast<std::size_t>(q)];
    if (position < layer.run.anchor || position - layer.run.anchor >= layer.run.tokens) {
      return Status::error(Code::kInvalidArgument, "positions",
                           formatted("positions: {} of query {} is outside the {} tokens from {} that the layer holds",
                                     position, q, layer.run.tokens, layer.run.anchor),
                           {q, -1});
    }
    if (position - layer.run.anchor + 1 > max_visible_tokens) {
      return Status::error(Code::kCapacity, "workspace",
                           formatted("workspace: query {} sees {} tokens, the workspace was made for {}", q,
                                     position - layer.run.anchor + 1, max_visible_tokens),
                           {q, -1});
    }
  }
  return {};
}

}  // namespace seriatim
