#include "screen/rescore.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace seriatim {
namespace {

// One key into a lane of a dense panel. What is 16 elements apart there is so here too.
template <class Stored>
void copy_lane(const std::byte* from, std::int64_t dim, std::byte* to) {
  constexpr std::size_t kStep = Panels::kLanes * sizeof(Stored);
  for (std::int64_t i = 0; i < dim; ++i) {
    Stored element;
    std::memcpy(&element, from + static_cast<std::size_t>(i) * kStep, sizeof element);
    std::memcpy(to + static_cast<std::size_t>(i) * kStep, &element, sizeof element);
  }
}

}  // namespace

void rescore(const Rescore& task, std::span<const std::int32_t> groups, float* scores) {
  constexpr std::int64_t kAtOnce = kGatheredPanels * Panels::kLanes;
  const Geometry& geometry = *task.geometry;
  const std::int64_t bytes = dtype_bytes(task.pooled->dtype);
  const auto all = static_cast<std::int64_t>(groups.size());
  std::array<float, kAtOnce> lanes;
  for (std::int64_t first = 0; first < all; first += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, all - first);
    if (count % Panels::kLanes != 0) {
      std::memset(task.gathered + count / Panels::kLanes * score_edge_bytes(geometry), 0,
                  static_cast<std::size_t>(score_edge_bytes(geometry)));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::byte* from = task.pooled->group(groups[static_cast<std::size_t>(first + i)]);
      std::byte* to = task.gathered + i / Panels::kLanes * score_edge_bytes(geometry) + i % Panels::kLanes * bytes;
      bytes == 4 ? copy_lane<std::uint32_t>(from, geometry.index_dim(), to)
                 : copy_lane<std::uint16_t>(from, geometry.index_dim(), to);
    }
    const std::byte* const page = task.gathered;
    PooledKeys dense = *task.pooled;
    dense.pages = &page;
    dense.page_groups = kAtOnce;
    dense.offset_bytes = 0;
    dense.first_slot = 0;
    dense.groups = (count + Panels::kLanes - 1) / Panels::kLanes * Panels::kLanes;  // zeros past the last
    ScoreBlock block;
    block.geometry = &geometry;
    block.count = 1;
    block.queries = task.query;
    block.head_weights = task.head_weights;
    block.pooled = &dense;
    block.panels = dense.groups / Panels::kLanes;
    block.scores = lanes.data();
    block.stride = kAtOnce;
    task.kernels->score(block);
    std::copy_n(lanes.begin(), count, scores + first);
  }
}

}  // namespace seriatim
