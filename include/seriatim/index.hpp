// Index: raw index keys -> pooled keys of closed groups.
//
// A pooled key is one finished vector per group of r tokens: mean, RMS norm, rotation at the group's first position,
// each step rounded as contract section 3 says. It depends on nothing but its own r raw keys, so computing it when the
// group closes, or all again, gives the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "seriatim/geometry.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

// M-RoPE coordinates of one token (time, height, width). Text has all three equal to the position.
using Coordinates = std::array<std::int32_t, 3>;

// Pooled keys as scoring reads them: panels of 16 groups. A panel is [index_dim][16] elements, so that one vector of 16
// lanes holds one dim of 16 groups. A page is a whole number of panels; group g sits at slot first_slot + g.
struct PooledKeys {
  static constexpr std::int64_t kPanelGroups = 16;

  const std::byte* const* pages = nullptr;  // [ceil((first_slot + groups) / page_groups)]
  std::int64_t page_groups = kPanelGroups;  // groups per page, a multiple of kPanelGroups
  std::int64_t offset_bytes = 0;            // from a page's start to its first panel
  std::int64_t first_slot = 0;              // slot of group 0, below page_groups
  std::int64_t groups = 0;
  std::int64_t dim = 0;
  DType dtype = DType::kF32;
  float max_abs = std::numeric_limits<float>::infinity();  // no element is larger in magnitude; infinity: not known

  // The address of dim 0 of group g; dim i is i * kPanelGroups elements on.
  const std::byte* group(std::int64_t g) const {
    const std::int64_t slot = first_slot + g;
    const std::int64_t in_page = slot % page_groups;
    const std::int64_t element = in_page / kPanelGroups * (kPanelGroups * dim) + in_page % kPanelGroups;
    return pages[slot / page_groups] + offset_bytes + element * dtype_bytes(dtype);
  }
};

// Bytes of the panels that hold `groups` pooled keys; absent sizes are impossible for an admitted geometry.
std::int64_t panel_bytes(const Geometry& geometry, std::int64_t groups);

// Pools every complete group of a batch of raw keys.
// Takes   raw [T, index_dim] in index_dtype: consecutive tokens of which the first opens a group
//         norm_weight [index_dim] f32: w of (1 + w); ignored when pooling is `none`
//         first_position: logical position of the first token
//         coordinates: [T] or null for text; required when the geometry names rope_axes, ignored otherwise
// Gives   pooled [floor(T / r), index_dim] in index_dtype
// Errors  InvalidArgument: shapes, strides, dtypes, positions or coordinates. NotFinite: a raw key or weight that is
//         not finite; row = token (or dim of the weight), index = dim. OutOfMemory. Nothing is written on error.
// Memory  some 20 vectors of index_dim floats, freed at the end. Threads  any number at once on different outputs.
// Source  contract section 3, steps 1 to 3.
Status pool_keys(const Geometry& geometry, ConstTensor norm_weight, ConstTensor raw, std::int64_t first_position,
                 const Coordinates* coordinates, Tensor pooled);

// Pools groups as their last token arrives, straight into panels: what a store of keys calls, so it checks and
// allocates nothing. Pooling is `mean`.
// Threads  one call at a time.
class Pooler {
 public:
  // Errors  OutOfMemory.
  static Result<Pooler> create(const Geometry& geometry, Kernels kernels = default_kernels());

  // Takes   norm_weight [index_dim]; raw [groups * r, index_dim] in index_dtype, dense; all finite
  //         groups: neighbours, at least one, all of one panel
  //         first_position: of the first token; at [groups]: coordinates of each group's first token, or null for text
  //         pooled: dim 0 of the first group in its panel; no other lanes than the groups' are touched
  // Gives   the largest magnitude of what was written; infinity if something was not finite, as where the sum of finite
  //         keys overflows.
  float pool(const float* norm_weight, const std::byte* raw, std::int64_t groups, std::int64_t first_position,
             const Coordinates* at, std::byte* pooled);

 private:
  Pooler(const Geometry& geometry, Kernels kernels) : geometry_(geometry), kernels_(kernels) {}

  Geometry geometry_;
  Kernels kernels_;
  std::vector<float> scratch_;
};

// Puts finished pooled keys [G, index_dim] into panels at `panels` (panel_bytes(geometry, G) of them, 64-byte aligned).
// Lanes past the last group are zeroed.
// Errors  InvalidArgument: shape, strides or dtype; no panels. Nothing is written on error.
Status pack_pooled_keys(const Geometry& geometry, ConstTensor pooled, std::byte* panels);

// Norm and rotation (steps 2 and 3) for index queries that arrive raw. Pooling `none` has neither: a copy.
// Takes   raw [Q, index_heads, index_dim] in index_dtype, norm_weight as above, positions [Q] logical, coordinates [Q]
// Gives   prepared, as raw. Errors as pool_keys; row = query, index = position within the query's heads x dims.
Status prepare_index_queries(const Geometry& geometry, ConstTensor norm_weight, ConstTensor raw,
                             const std::int64_t* positions, const Coordinates* coordinates, Tensor prepared);

}  // namespace seriatim
