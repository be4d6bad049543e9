// Score: index queries x pooled keys -> one f32 score per group.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/executor.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

// Scores every key for one selection of a query: a key is a group's, or a unit's with pooling `unit_max`.
// Takes   query [heads_per_selection, index_dim] in index_dtype, finished (normed and rotated); with one selection
//         these are all index heads
//         head_weights [heads_per_selection] f32 or empty: no weights. Signed; they multiply relu(dot).
//         pooled: the visible keys
// Gives   scores [pooled.groups] f32: (sum over heads, in head order, of relu(dot(q_h, key))) / f32(sqrt(index_dim)),
//         or as the geometry's options say. An overflow shows as a NaN or infinite score; nothing is judged here.
// Errors  InvalidArgument: shapes, strides, dtypes, sizes. OutOfMemory. Scores are untouched then.
// Memory  the query in f32 and one panel, freed at the end; plan() takes none.
// Threads  any number at once on different outputs. Source  contract section 3, step 4.
Status score_groups(const Geometry& geometry, ConstTensor query, ConstTensor head_weights, const PooledKeys& pooled,
                    std::span<float> scores);

// The scores of groups from those of their units, as pooling `unit_max` has them: the best of each, NaN if one is.
// Takes   unit_scores: of the visible units
// Gives   scores [geometry.groups(units)]
// Errors  InvalidArgument: another size. Memory  none. Source  contract section 10, rule 2.
Status best_of_units(const Geometry& geometry, std::span<const float> unit_scores, std::span<float> scores);

}  // namespace seriatim
