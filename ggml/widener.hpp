// Rows of stored elements as f32: what the kernels know by vector code, the rest by ggml's own functions. The bits are
// the same either way.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "panel.hpp"
#include "tensors.hpp"

namespace seriatim::plugin {

class Widener {
 public:
  // A type that can_be_widened().
  explicit Widener(ggml_type type, Kernels kernels = default_kernels())
      : type_(type), dtype_(plain_dtype(type)), kernels_(panel_kernels(kernels)) {}

  void operator()(const std::byte* row, std::int64_t elements, float* to) const {
    if (dtype_.has_value()) return kernels_.widen(row, *dtype_, elements, to);
    if (type_ == GGML_TYPE_Q8_0) return kernels_.widen_q8_0(row, elements, to);
    widen_row(type_, row, elements, to);
  }

 private:
  ggml_type type_;
  std::optional<DType> dtype_;
  const PanelKernels& kernels_;
};

}  // namespace seriatim::plugin
