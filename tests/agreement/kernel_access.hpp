// What the public calls do not show: the scores that plan() computes on its way, and which kernels a engine runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "seriatim/cache.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/status.hpp"
#include "seriatim/step.hpp"

namespace seriatim::agreement {

// Scores of every group that each query sees, all queries in one block.
// Takes   index_queries [Q, index_heads, index_dim], head_weights [Q, index_heads] or empty; dense
std::vector<std::vector<float>> score_all(Kernels kernels, const LayerView& layer, ConstTensor index_queries,
                                          ConstTensor head_weights, std::span<const std::int64_t> positions);

// Errors  Corrupt: the engine runs other kernels than these, or a room's table was compiled for another instruction
//         set than the one that the kernels name (argument = the room).
Status check_kernels(Kernels kernels);

}  // namespace seriatim::agreement
