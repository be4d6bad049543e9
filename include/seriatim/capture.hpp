// Captures: one layer's work as another implementation did it, read from a safetensors file.
//
// docs/capture.md has the format, `capture/1`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "seriatim/file.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

// One sparse attention layer's input and, where recorded, its answer. Views point into the file's memory.
struct Capture {
  SafetensorsFile file;
  Geometry geometry;
  std::int64_t anchor = 0;
  std::string source;
  std::vector<float> index_norm_weight;       // [index_dim]
  std::vector<std::int64_t> query_positions;  // [Q], ascending, each in anchor .. anchor + T - 1
  ConstTensor index_keys;                     // [T, index_dim]
  ConstTensor keys;                           // [T, kv_heads, head_dim]
  ConstTensor values;                         // [T, kv_heads, value_dim]; empty: the leading dims of keys
  ConstTensor index_queries;                  // [Q, index_heads, index_dim]
  ConstTensor index_head_weights;             // [Q, index_heads] or empty
  std::vector<float> sinks;                   // [query_heads] or empty
  ConstTensor queries;                        // [Q, query_heads, head_dim]
  ConstTensor expected_rows;                  // [Q, row_capacity] i32, or empty
  ConstTensor expected_output;                // [Q, query_heads, value_dim] f32, or empty

  Capture(SafetensorsFile opened, const Geometry& admitted) : file(std::move(opened)), geometry(admitted) {}

  std::int64_t tokens() const { return keys.shape[0]; }

  // Errors  Io, Corrupt, Unsupported: as SafetensorsFile::open, a missing tensor or metadata key, another version, a
  //         shape or dtype that does not fit the geometry (argument = the tensor), a geometry that is not admissible.
  static Result<Capture> open(const std::string& path);
  // The same from memory, which must outlive the capture.
  static Result<Capture> parse(std::span<const std::byte> bytes);
};

}  // namespace seriatim
