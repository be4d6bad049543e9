// The geometries of tests, small unless named otherwise. What a test is about it sets itself.
#pragma once

#include "seriatim/geometry.hpp"

namespace seriatim::testing {

// QSA's, in full.
inline GeometryOptions real_options(DType dtype) {
  GeometryOptions options;
  options.kv_dtype = dtype;
  options.index_dtype = dtype;
  return options;
}

// Small heads; B = 8 groups, so rows are sparse soon.
inline GeometryOptions small_path(std::int64_t group_tokens = 4, DType dtype = DType::kF32) {
  GeometryOptions options;
  options.group_tokens = group_tokens;
  options.budget_tokens = 8 * group_tokens;
  options.query_heads = 4;
  options.kv_heads = 2;
  options.head_dim = 8;
  options.value_dim = 6;
  options.index_heads = 3;
  options.index_dim = 8;
  options.index_rotary_dim = 4;
  options.rope_theta = 1e4;
  options.kv_dtype = dtype;
  options.index_dtype = dtype;
  return options;
}

// For caches: values narrower than keys.
inline GeometryOptions small_options(std::int64_t group_tokens = 4) {
  GeometryOptions options;
  options.group_tokens = group_tokens;
  options.budget_tokens = 8 * group_tokens;
  options.query_heads = 4;
  options.kv_heads = 2;
  options.head_dim = 6;
  options.value_dim = 5;
  options.index_heads = 2;
  options.index_dim = 8;
  options.index_rotary_dim = 4;
  return options;
}

// 4 query heads over 2 kv heads of 8 dims, a budget above any row used here.
inline GeometryOptions small_attention() {
  GeometryOptions options;
  options.group_tokens = 1;
  options.budget_tokens = 4096;
  options.query_heads = 4;
  options.kv_heads = 2;
  options.head_dim = 8;
  options.index_heads = 1;
  options.index_dim = 4;
  options.index_rotary_dim = 0;
  return options;
}

// A small layer with the real theta: r = 4, 24 dims of which 16 rotate.
inline GeometryOptions small_index(DType dtype) {
  GeometryOptions options;
  options.index_heads = 3;
  options.index_dim = 24;
  options.index_rotary_dim = 16;
  options.index_dtype = dtype;
  return options;
}

}  // namespace seriatim::testing
