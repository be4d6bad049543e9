// Problem: everything that one case feeds to the path, as bytes that are the same on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"
#include "seriatim/status.hpp"
#include "support/random.hpp"

namespace seriatim::agreement {

using testing::HostTensor;

struct Problem {
  explicit Problem(const Geometry& admitted) : geometry(admitted) {}

  Geometry geometry;
  std::int64_t anchor = 0;
  DType output_dtype = DType::kF32;
  HostTensor keys;           // [T, kv_heads, head_dim]
  HostTensor values;         // [T, kv_heads, value_dim], no elements where they alias the keys
  HostTensor index_keys;     // [T, index_dim]
  HostTensor queries;        // [Q, query_heads, head_dim]
  HostTensor index_queries;  // [Q, index_heads, index_dim], finished
  HostTensor head_weights;   // [Q, index_heads], or no elements
  std::vector<float> norm_weight;
  std::vector<float> sinks;
  std::vector<Coordinates> coordinates;  // [T], or empty
  std::vector<std::int64_t> positions;   // [Q], ascending

  std::int64_t tokens() const { return keys.view().shape[0]; }
  std::int64_t count() const { return static_cast<std::int64_t>(positions.size()); }
};

// How a generated problem comes to be.
struct Recipe {
  GeometryOptions geometry;
  std::int64_t tokens = 0;
  std::vector<std::int64_t> asked;  // tokens whose queries are asked, ascending
  std::int64_t anchor = 0;
  DType output_dtype = DType::kF32;
  bool head_weights = false;  // signed
  bool sinks = false;
  bool coordinates = false;        // three that differ, for a geometry with rope_axes
  std::int64_t distinct_keys = 0;  // so many different groups of index keys, repeated: exact ties; 0: all differ
  // Powers of two that scale what is drawn.
  int key_shift = 0;
  int query_shift = 1;
  int value_shift = 0;
  int index_shift = 0;
};

Problem generate(const Recipe& recipe, std::uint64_t seed);

// Errors  those of Capture::open.
Result<Problem> from_capture(const std::string& path);

// Digest of every input byte.
std::string inputs_digest(const Problem& problem);

}  // namespace seriatim::agreement
