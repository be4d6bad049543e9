// Keys of 16 cells or groups as a panel of f32, as the score kernels read them: [dim][16].
#pragma once

#include <cstddef>
#include <cstdint>

#include "seriatim/kernels.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim::plugin {

inline constexpr std::int64_t kPanelKeys = 16;
// Rows of f32 from which panels are turned lie so many floats apart: whole vectors, whatever the dim is.
constexpr std::int64_t panel_row_floats(std::int64_t dim) { return (dim + 15) / 16 * 16; }

// Of type q8_0.
inline constexpr std::int64_t kBlockNumbers = 32;
inline constexpr std::int64_t kBlockBytes = 34;

struct PanelKernels {
  const char* name;
  // A row of stored elements as f32.
  void (*widen)(const std::byte* row, DType dtype, std::int64_t elements, float* to);
  // A row of ggml's blocks of type q8_0: 32 numbers each, an f16 factor and 32 i8.
  void (*widen_q8_0)(const std::byte* row, std::int64_t elements, float* to);
  // 16 rows [16][panel_row_floats(dim)] -> [panel_row_floats(dim)][16]; what pads the rows is turned too.
  void (*turn)(const float* rows, std::int64_t dim, float* panel);
};

const PanelKernels& panel_kernels(Kernels kernels);
const PanelKernels& panel_reference();

}  // namespace seriatim::plugin
