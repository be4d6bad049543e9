#include "seriatim/index.hpp"

#include "base/admit.hpp"
#include "base/aligned_buffer.hpp"
#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"
#include "seriatim/score.hpp"
#include "seriatim_rule.h"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

// Without pooling there is no norm, so no weight is asked for.
Status take_norm_weight(const Geometry& geometry, const seriatim_tensor* given, ConstTensor& taken) {
  if (geometry.finished_keys()) return {};
  return take_tensor("index_norm_weight", given, taken);
}

Status score_dense(const Geometry& geometry, const ConstTensor& queries, const ConstTensor& head_weights,
                   const ConstTensor& pooled, std::span<float> scores) {
  if (Status s = admit_view("pooled", pooled, geometry.index_dtype(), {-1, geometry.index_dim()}); !s.ok()) return s;
  // Checked before the panels are taken: strides of 0 would let a small array claim any number of groups.
  if (static_cast<std::int64_t>(scores.size()) != pooled.shape[0] || pooled.shape[0] > Geometry::kPositions) {
    return invalid("scores", "not as many entries as there are pooled keys, or too many");
  }
  const AlignedBuffer<std::byte> panels(panel_bytes(geometry, pooled.shape[0]));
  if (Status s = pack_pooled_keys(geometry, pooled, panels.data()); !s.ok()) return s;
  const std::byte* page = panels.data();
  PooledKeys keys;
  keys.pages = &page;
  keys.groups = pooled.shape[0];
  keys.page_groups = (keys.groups / PooledKeys::kPanelGroups + 1) * PooledKeys::kPanelGroups;  // one page holds all
  keys.dim = geometry.index_dim();
  keys.dtype = geometry.index_dtype();
  return score_groups(geometry, queries, head_weights, keys, scores);
}

}  // namespace

seriatim_status seriatim_pool_keys(const seriatim_geometry* geometry, const seriatim_tensor* index_norm_weight,
                                   const seriatim_tensor* index_keys, std::int64_t first_position,
                                   const std::int32_t* coordinates, const seriatim_tensor* pooled,
                                   seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}}); !s.ok()) return s;
    ConstTensor weight;
    ConstTensor raw;
    Tensor out;
    if (Status s = take_norm_weight(geometry->geometry, index_norm_weight, weight); !s.ok()) return s;
    if (Status s = take_tensor("index_keys", index_keys, raw); !s.ok()) return s;
    if (Status s = take_tensor("pooled", pooled, out); !s.ok()) return s;
    return pool_keys(geometry->geometry, weight, raw, first_position, take_coordinates(coordinates), out);
  });
}

seriatim_status seriatim_prepare_index_queries(const seriatim_geometry* geometry,
                                               const seriatim_tensor* index_norm_weight,
                                               const seriatim_tensor* index_queries, const std::int64_t* positions,
                                               std::int64_t query_count, const std::int32_t* coordinates,
                                               const seriatim_tensor* prepared, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}}); !s.ok()) return s;
    ConstTensor weight;
    ConstTensor raw;
    Tensor out;
    if (Status s = take_norm_weight(geometry->geometry, index_norm_weight, weight); !s.ok()) return s;
    if (Status s = take_tensor("index_queries", index_queries, raw); !s.ok()) return s;
    if (Status s = check_array("positions", positions, query_count, sizeof *positions); !s.ok()) return s;
    if (Status s = take_tensor("prepared", prepared, out); !s.ok()) return s;
    if (raw.rank > 0 && raw.shape[0] != query_count)
      return invalid("positions", "not as many as there are index queries");
    return prepare_index_queries(geometry->geometry, weight, raw, positions, take_coordinates(coordinates), out);
  });
}

seriatim_status seriatim_score_groups(const seriatim_geometry* geometry, const seriatim_tensor* index_queries,
                                      const seriatim_tensor* index_head_weights, const seriatim_tensor* pooled,
                                      float* scores, std::int64_t score_count, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}}); !s.ok()) return s;
    ConstTensor queries;
    ConstTensor weights;
    ConstTensor keys;
    std::span<float> out;
    if (Status s = take_tensor("index_queries", index_queries, queries); !s.ok()) return s;
    if (Status s = take_tensor_or_null("index_head_weights", index_head_weights, weights); !s.ok()) return s;
    if (Status s = take_tensor("pooled", pooled, keys); !s.ok()) return s;
    if (Status s = take_array("scores", scores, score_count, out); !s.ok()) return s;
    return score_dense(geometry->geometry, queries, weights, keys, out);
  });
}
