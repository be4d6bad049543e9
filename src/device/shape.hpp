// The kernels' parameter blocks, as the host fills them. The structs are the kernels' own text.
#pragma once

#include <cstdint>

#include "seriatim/cache.hpp"
#include "seriatim/geometry.hpp"

namespace seriatim::device {

using i64 = std::int64_t;
using i32 = std::int32_t;
using f32 = float;
#include "device/kernels/arguments.h"

ShapeArgs shape_args(const Geometry& geometry);
// All but where the pages are, which is the tables' business.
LayerArgs layer_args(const LayerView& view);

// Zero queries or groups are zero work-groups, which OpenCL does not launch.
constexpr std::int64_t groups_of(std::int64_t items, std::int64_t work_group) {
  return (items + work_group - 1) / work_group;
}

}  // namespace seriatim::device
