#include "seriatim/tensor.hpp"

namespace seriatim {

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
  }
  return "unknown";
}

namespace {

template <typename Byte>
BasicTensor<Byte> dense(Byte* data, DType dtype, std::initializer_list<std::int64_t> shape) {
  BasicTensor<Byte> view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  int axis = 0;
  for (const std::int64_t extent : shape) view.shape[static_cast<std::size_t>(axis++)] = extent;
  std::int64_t stride_bytes = dtype_bytes(dtype);
  for (int i = view.rank - 1; i >= 0; --i) {
    view.stride_bytes[static_cast<std::size_t>(i)] = stride_bytes;
    stride_bytes *= view.shape[static_cast<std::size_t>(i)];
  }
  return view;
}

}  // namespace

ConstTensor dense_view(const void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
  return dense(static_cast<const std::byte*>(data), dtype, shape);
}

Tensor dense_view(void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
  return dense(static_cast<std::byte*>(data), dtype, shape);
}

}  // namespace seriatim
