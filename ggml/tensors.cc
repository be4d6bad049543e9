#include "tensors.hpp"

#include <cstring>

namespace seriatim::plugin {

void widen_row(ggml_type type, const std::byte* row, std::int64_t elements, float* to) {
  if (type == GGML_TYPE_F32) {
    std::memcpy(to, row, static_cast<std::size_t>(elements) * sizeof(float));
    return;
  }
  ggml_get_type_traits(type)->to_float(row, to, elements);
}

}  // namespace seriatim::plugin
