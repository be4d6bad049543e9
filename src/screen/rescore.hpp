// Canonical scores of some groups: their keys are gathered into dense panels, where the score kernels give them the
// bits that they have in their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "score/score_kernels.hpp"

namespace seriatim {

inline constexpr std::int64_t kGatheredPanels = 4;

struct Rescore {
  const Geometry* geometry = nullptr;
  const ScoreKernels* kernels = nullptr;
  const float* query = nullptr;         // one, packed by the kernels
  const float* head_weights = nullptr;  // [index_heads], or null
  const PooledKeys* pooled = nullptr;
  std::byte* gathered = nullptr;  // [kGatheredPanels][score_edge_bytes], 64-byte aligned
};

// Gives   scores [groups]
void rescore(const Rescore& task, std::span<const std::int32_t> groups, float* scores);

}  // namespace seriatim
