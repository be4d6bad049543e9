#include "seriatim/geometry.hpp"

#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

static_assert(SERIATIM_POOLING_NONE == static_cast<int>(Pooling::kNone));
static_assert(SERIATIM_POOLING_UNIT_MAX == static_cast<int>(Pooling::kUnitMax));
static_assert(SERIATIM_TAIL_GROUP == static_cast<int>(Tail::kGroup));
static_assert(SERIATIM_SCALE_AFTER_SUM == static_cast<int>(ScaleAt::kAfterSum));
static_assert(SERIATIM_SCALE_BEFORE_RELU == static_cast<int>(ScaleAt::kBeforeRelu));
static_assert(SERIATIM_SCALE_AFTER_RELU == static_cast<int>(ScaleAt::kAfterRelu));
static_assert(SERIATIM_SCALE_NOWHERE == static_cast<int>(ScaleAt::kNowhere));

// What both structs hold under one name and in one type.
template <class From, class To>
void copy_sizes(const From& from, To& to) {
  to.group_tokens = from.group_tokens;
  to.budget_tokens = from.budget_tokens;
  to.query_heads = from.query_heads;
  to.kv_heads = from.kv_heads;
  to.head_dim = from.head_dim;
  to.value_dim = from.value_dim;
  to.index_heads = from.index_heads;
  to.index_dim = from.index_dim;
  to.index_rotary_dim = from.index_rotary_dim;
  to.rope_theta = from.rope_theta;
  to.norm_eps = from.norm_eps;
  to.forced_first = from.forced_first;
  to.forced_newest = from.forced_newest;
  to.selections = from.selections;
}

void fill_numbers(const GeometryOptions& from, seriatim_geometry_options& to) {
  copy_sizes(from, to);
  to.values_alias_keys = from.values_alias_keys ? 1 : 0;
  to.tail = static_cast<std::int32_t>(from.tail);
  to.forced_outside = from.forced_outside ? 1 : 0;
  to.pooling = static_cast<std::int32_t>(from.pooling);
  to.relu = from.relu ? 1 : 0;
  to.scale_at = static_cast<std::int32_t>(from.scale_at);
  to.kv_dtype = static_cast<std::int32_t>(from.kv_dtype);
  to.index_dtype = static_cast<std::int32_t>(from.index_dtype);
}

Status take_choices(const seriatim_geometry_options& from, GeometryOptions& to) {
  if (Status s = take_flag("values_alias_keys", from.values_alias_keys, to.values_alias_keys); !s.ok()) return s;
  if (Status s = take_flag("relu", from.relu, to.relu); !s.ok()) return s;
  if (Status s = take_flag("forced_outside", from.forced_outside, to.forced_outside); !s.ok()) return s;
  if (Status s = check_choice("tail", from.tail, SERIATIM_TAIL_GROUP); !s.ok()) return s;
  if (Status s = check_choice("pooling", from.pooling, SERIATIM_POOLING_UNIT_MAX); !s.ok()) return s;
  if (Status s = check_choice("scale_at", from.scale_at, SERIATIM_SCALE_NOWHERE); !s.ok()) return s;
  if (Status s = check_choice("kv_dtype", from.kv_dtype, SERIATIM_I64); !s.ok()) return s;
  if (Status s = check_choice("index_dtype", from.index_dtype, SERIATIM_I64); !s.ok()) return s;
  to.tail = static_cast<Tail>(from.tail);
  to.pooling = static_cast<Pooling>(from.pooling);
  to.scale_at = static_cast<ScaleAt>(from.scale_at);
  to.kv_dtype = static_cast<DType>(from.kv_dtype);
  to.index_dtype = static_cast<DType>(from.index_dtype);
  return {};
}

Status take_options(const seriatim_geometry_options& from, GeometryOptions& to) {
  if (Status s = take_choices(from, to); !s.ok()) return s;
  std::span<const float> inv_freq;
  std::span<const std::uint8_t> rope_axes;
  if (Status s = take_array("inv_freq", from.inv_freq, from.inv_freq_count, inv_freq); !s.ok()) return s;
  if (Status s = take_array("rope_axes", from.rope_axes, from.rope_axes_count, rope_axes); !s.ok()) return s;
  // Past any admissible number of pairs: refused before it is copied.
  if (from.inv_freq_count > Geometry::kMaxExtent) return invalid("inv_freq", "more entries than there can be pairs");
  if (from.rope_axes_count > Geometry::kMaxExtent) return invalid("rope_axes", "more entries than there can be pairs");
  copy_sizes(from, to);
  if (from.softmax_scale != 0.0f) to.softmax_scale = from.softmax_scale;
  to.inv_freq.assign(inv_freq.begin(), inv_freq.end());
  to.rope_axes.assign(rope_axes.begin(), rope_axes.end());
  return {};
}

// What an admitted geometry says of itself.
seriatim_geometry_options describe(const Geometry& g) {
  seriatim_geometry_options options{};
  fill_numbers(g.options(), options);
  options.softmax_scale = g.softmax_scale();
  options.inv_freq = g.inv_freq().data();
  options.inv_freq_count = static_cast<std::int64_t>(g.inv_freq().size());
  options.rope_axes = g.rope_axes().data();
  options.rope_axes_count = static_cast<std::int64_t>(g.rope_axes().size());
  return options;
}

}  // namespace

void seriatim_geometry_options_init(seriatim_geometry_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
  fill_numbers(GeometryOptions(), *options);
}

seriatim_status seriatim_geometry_create(const seriatim_geometry_options* options, seriatim_geometry** geometry,
                                         seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}}); !s.ok()) return s;
    seriatim_geometry_options taken;
    seriatim_geometry_options_init(&taken);
    if (Status s = take_struct("options", options, taken); !s.ok()) return s;
    GeometryOptions wanted;
    if (Status s = take_options(taken, wanted); !s.ok()) return s;
    auto admitted = Geometry::admit(std::move(wanted));
    if (!admitted.ok()) return admitted.status();
    *geometry = new seriatim_geometry{*std::move(admitted)};
    return {};
  });
}

seriatim_status seriatim_geometry_get(const seriatim_geometry* geometry, seriatim_geometry_options* options,
                                      seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}}); !s.ok()) return s;
    if (Status s = check_output_bytes("options", options); !s.ok()) return s;
    give_struct(options, describe(geometry->geometry));
    return {};
  });
}

seriatim_status seriatim_geometry_row_shape(const seriatim_geometry* geometry, std::int64_t visible_tokens,
                                            seriatim_row_shape* shape, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}, {"shape", shape}}); !s.ok()) return s;
    const Geometry& g = geometry->geometry;
    if (Status s = g.check_run({0, visible_tokens}); !s.ok()) return s;
    *shape = {g.groups(visible_tokens), g.tail_tokens(visible_tokens), g.row_width(visible_tokens), g.row_capacity(),
              g.budget_groups()};
    return {};
  });
}

void seriatim_geometry_destroy(seriatim_geometry* geometry) { delete geometry; }
