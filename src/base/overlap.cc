#include "base/overlap.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "base/checked.hpp"
#include "base/format.hpp"

namespace seriatim {
namespace {

// An axis with more than one element.
struct Axis {
  std::int64_t extent = 1;
  std::int64_t stride_bytes = 0;
};

// A view's addresses: those axes by falling stride, and how many bytes they reach over.
struct Reach {
  std::array<Axis, kMaxRank> axes{};
  std::int64_t elements = 1;
  std::int64_t bytes = 0;
  std::uintptr_t begin = 0;

  std::uintptr_t end() const { return begin + static_cast<std::uintptr_t>(bytes); }
};

std::optional<Reach> reach_of(const Tensor& view) {
  Reach reach;
  reach.begin = reinterpret_cast<std::uintptr_t>(view.data);
  reach.bytes = dtype_bytes(view.dtype);
  if (view.data == nullptr || view.rank < 0 || view.rank > kMaxRank) return std::nullopt;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
    const Axis one{view.shape[axis], view.stride_bytes[axis]};
    if (one.extent < 1 || one.stride_bytes < 0) return std::nullopt;
    const auto elements = checked_mul(reach.elements, one.extent);
    const auto span = checked_mul(one.extent - 1, one.stride_bytes);
    const auto bytes = span ? checked_add(reach.bytes, *span) : std::nullopt;
    if (!elements || !bytes) return std::nullopt;
    reach.elements = *elements;
    reach.bytes = *bytes;
    if (one.extent > 1) reach.axes[axis] = one;
  }
  std::sort(reach.axes.begin(), reach.axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride_bytes > b.stride_bytes; });
  return reach;
}

// Whether a byte lies in an element. The strides of a view that may be written step over all that shorter ones reach,
// so that each axis has one candidate.
bool holds(const Reach& reach, std::int64_t element_bytes, std::uintptr_t address) {
  if (address < reach.begin || address >= reach.end()) return false;
  auto offset = static_cast<std::int64_t>(address - reach.begin);
  for (const Axis& axis : reach.axes) {
    if (axis.extent == 1 || axis.stride_bytes == 0) continue;
    offset -= std::min(offset / axis.stride_bytes, axis.extent - 1) * axis.stride_bytes;
  }
  return offset < element_bytes;
}

std::uintptr_t address_of(const Reach& reach, std::int64_t element) {
  std::uintptr_t address = reach.begin;
  for (std::size_t axis = reach.axes.size(); axis-- > 0;) {
    address += static_cast<std::uintptr_t>(element % reach.axes[axis].extent * reach.axes[axis].stride_bytes);
    element /= reach.axes[axis].extent;
  }
  return address;
}

}  // namespace

bool share_memory(const Tensor& a, const Tensor& b) {
  const auto first = reach_of(a);
  const auto second = reach_of(b);
  if (!first || !second || first->begin >= second->end() || second->begin >= first->end()) return false;
  // Seldom reached: the addresses of the smaller one are looked for in the other.
  const bool swapped = first->elements > second->elements;
  const Reach& few = swapped ? *second : *first;
  const Reach& many = swapped ? *first : *second;
  const std::int64_t few_bytes = dtype_bytes((swapped ? b : a).dtype);
  const std::int64_t many_bytes = dtype_bytes((swapped ? a : b).dtype);
  for (std::int64_t i = 0; i < few.elements; ++i) {
    const std::uintptr_t at = address_of(few, i);
    for (std::int64_t byte = 0; byte < few_bytes; ++byte) {
      if (holds(many, many_bytes, at + static_cast<std::uintptr_t>(byte))) return true;
    }
  }
  return false;
}

Status admit_apart(std::string_view name, const Tensor& view, std::string_view other_name, const Tensor& other) {
  if (!share_memory(view, other)) return {};
  return Status::error(Code::kInvalidArgument, name, formatted("{}: it shares memory with {}", name, other_name));
}

}  // namespace seriatim
