#include "agreement/kernel_access.hpp"

#include <algorithm>
#include <cctype>

#include "attend/attend_kernels.hpp"
#include "base/format.hpp"
#include "score/score_kernels.hpp"
#include "select/select_kernels.hpp"
#include "step/engine.hpp"

namespace seriatim::agreement {
namespace {

// A panel's alignment, which the kernels count on.
struct alignas(64) Line {
  std::byte bytes[64];
};

std::string lower(std::string_view name) {
  std::string lowered(name);
  for (char& c : lowered) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lowered;
}

}  // namespace

std::vector<std::vector<float>> score_all(Kernels kernels, const LayerView& layer, ConstTensor index_queries,
                                          ConstTensor head_weights, std::span<const std::int64_t> positions) {
  const std::int64_t furthest = *std::max_element(positions.begin(), positions.end());
  const PooledKeys pooled = layer.pooled_up_to(furthest);
  const Panels panels(pooled);
  const ScoreKernels& family = score_kernels(kernels);

  std::vector<float> packed(
      static_cast<std::size_t>(index_queries.shape[0] * index_queries.shape[1] * index_queries.shape[2]));
  family.pack(index_queries, packed.data());
  std::vector<Line> edge(static_cast<std::size_t>((score_edge_bytes(*layer.geometry) + 63) / 64));
  const std::int64_t stride = Panels::kLanes * panels.count();
  std::vector<float> scores(positions.size() * static_cast<std::size_t>(stride));
  family.score({layer.geometry, index_queries.shape[0], packed.data(),
                head_weights.empty() ? nullptr : reinterpret_cast<const float*>(head_weights.data), &pooled, 0,
                panels.count(), edge.data()->bytes, scores.data(), stride});

  std::vector<std::vector<float>> all;
  for (std::size_t q = 0; q < positions.size(); ++q) {
    const float* first = scores.data() + static_cast<std::int64_t>(q) * stride + panels.lead();
    all.emplace_back(first, first + layer.pooled_up_to(positions[q]).groups);
  }
  return all;
}

Status check_kernels(Kernels kernels) {
  const std::string wanted = kernels.name();
  const auto check = [&](std::string_view room, std::string_view runs) -> Status {
    if (lower(runs) == wanted) return {};
    return Status::error(Code::kCorrupt, room, formatted("{}: {} was forced and {} runs", room, wanted, runs));
  };
  if (Status s = check("score", score_kernels(kernels).name); !s.ok()) return s;
  if (Status s = check("select", select_kernels(kernels).name); !s.ok()) return s;
  return check("attend", attend_kernels(kernels).name);
}

}  // namespace seriatim::agreement
