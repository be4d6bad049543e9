// Binds Geometry: keyword options with QSA's defaults in, read-only properties out.
#include "seriatim/geometry.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <charconv>
#include <cmath>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "bind.hpp"
#include "docs.hpp"
#include "engine.hpp"
#include "errors.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

namespace {

template <typename Number>
Number named(std::optional<Number> (*number)(std::string_view), std::span<const std::string_view> names,
             const std::string& name, const char* argument) {
  if (const auto found = number(name)) return *found;
  std::string known;
  for (const std::string_view one : names) known += (known.empty() ? "" : ", ") + std::string(one);
  refuse(argument, "'" + name + "' is none of " + known);
}

std::string quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

void construct(Geometry* self, std::int64_t group_tokens, std::int64_t budget_tokens, std::int64_t query_heads,
               std::int64_t kv_heads, std::int64_t head_dim, std::int64_t value_dim, bool values_alias_keys,
               std::optional<double> softmax_scale, std::int64_t index_heads, std::int64_t index_dim,
               std::int64_t index_rotary_dim, double rope_theta, nb::handle inv_freq, nb::handle rope_axes,
               double norm_eps, const std::string& pooling, bool relu, const std::string& scale_at, nb::handle kv_dtype,
               nb::handle index_dtype) {
  GeometryOptions o;
  o.group_tokens = group_tokens;
  o.budget_tokens = budget_tokens;
  o.query_heads = query_heads;
  o.kv_heads = kv_heads;
  o.head_dim = head_dim;
  o.value_dim = value_dim;
  o.values_alias_keys = values_alias_keys;
  if (softmax_scale) o.softmax_scale = static_cast<float>(*softmax_scale);
  o.index_heads = index_heads;
  o.index_dim = index_dim;
  o.index_rotary_dim = index_rotary_dim;
  o.rope_theta = rope_theta;
  o.inv_freq = floats(inv_freq, "inv_freq");
  if (!rope_axes.is_none()) {
    for (const std::int64_t axis : integers(rope_axes, "rope_axes")) {
      if (axis < 0 || axis > 2) refuse("rope_axes", std::to_string(axis) + " is none of 0, 1 and 2");
      o.rope_axes.push_back(static_cast<std::uint8_t>(axis));
    }
  }
  o.norm_eps = static_cast<float>(norm_eps);
  o.pooling = named(pooling_named, kPoolingNames, pooling, "pooling");
  o.relu = relu;
  o.scale_at = named(scale_at_named, kScaleAtNames, scale_at, "scale_at");
  o.kv_dtype = dtype_of(kv_dtype, "kv_dtype", DType::kF32);
  o.index_dtype = dtype_of(index_dtype, "index_dtype", DType::kF32);
  new (self) Geometry(value(Geometry::admit(std::move(o))));
}

// Only what differs from QSA's defaults, so that a reader sees what is particular.
std::string repr(const Geometry& g) {
  const GeometryOptions d;
  std::string text;
  const auto add = [&](const char* name, const std::string& shown) {
    text += (text.empty() ? "" : ", ") + std::string(name) + "=" + shown;
  };
  const auto number = [&](const char* name, std::int64_t is, std::int64_t usual) {
    if (is != usual) add(name, std::to_string(is));
  };
  number("group_tokens", g.group_tokens(), d.group_tokens);
  number("budget_tokens", g.budget_tokens(), d.budget_tokens);
  number("query_heads", g.query_heads(), d.query_heads);
  number("kv_heads", g.kv_heads(), d.kv_heads);
  number("head_dim", g.head_dim(), d.head_dim);
  number("value_dim", g.value_dim(), g.head_dim());
  if (g.values_alias_keys()) add("values_alias_keys", "True");
  char scale[32] = {};  // to_chars, because the decimal point of printf is the locale's
  std::to_chars(scale, scale + sizeof scale - 1, g.softmax_scale(), std::chars_format::general, 9);
  if (g.softmax_scale() != static_cast<float>(1.0 / std::sqrt(static_cast<double>(g.head_dim()))))
    add("softmax_scale", scale);
  number("index_heads", g.index_heads(), d.index_heads);
  number("index_dim", g.index_dim(), d.index_dim);
  number("index_rotary_dim", g.index_rotary_dim(), d.index_rotary_dim);
  if (!g.rope_axes().empty()) add("rope_axes", "[...]");
  if (g.pooling() != Pooling::kMean) add("pooling", quoted(pooling_name(g.pooling())));
  if (!g.relu()) add("relu", "False");
  if (g.scale_at() != d.scale_at) add("scale_at", quoted(scale_at_name(g.scale_at())));
  if (g.kv_dtype() != d.kv_dtype) add("kv_dtype", quoted(dtype_name(g.kv_dtype())));
  if (g.index_dtype() != d.index_dtype) add("index_dtype", quoted(dtype_name(g.index_dtype())));
  return "Geometry(" + text + ")";
}

// What the constructor takes: frequencies as they are, whatever they were made of.
nb::dict options_of(const Geometry& g) {
  nb::dict options;
  options["group_tokens"] = g.group_tokens();
  options["budget_tokens"] = g.budget_tokens();
  options["query_heads"] = g.query_heads();
  options["kv_heads"] = g.kv_heads();
  options["head_dim"] = g.head_dim();
  options["value_dim"] = g.value_dim();
  options["values_alias_keys"] = g.values_alias_keys();
  options["softmax_scale"] = g.softmax_scale();
  options["index_heads"] = g.index_heads();
  options["index_dim"] = g.index_dim();
  options["index_rotary_dim"] = g.index_rotary_dim();
  options["inv_freq"] = std::vector<float>(g.inv_freq().begin(), g.inv_freq().end());
  options["rope_axes"] = std::vector<int>(g.rope_axes().begin(), g.rope_axes().end());
  options["norm_eps"] = g.norm_eps();
  options["pooling"] = std::string(pooling_name(g.pooling()));
  options["relu"] = g.relu();
  options["scale_at"] = std::string(scale_at_name(g.scale_at()));
  options["kv_dtype"] = std::string(dtype_name(g.kv_dtype()));
  options["index_dtype"] = std::string(dtype_name(g.index_dtype()));
  return options;
}

void restore(Geometry& self, const nb::dict& options) {
  new (&self) Geometry(nb::cast<const Geometry&>(nb::type<Geometry>()(**options)));
}

nb::object from_config(nb::handle config, const nb::kwargs& options) {
  nb::dict all = nb::cast<nb::dict>(nb::module_::import_("seriatim._config").attr("geometry_options")(config));
  for (const auto [name, given] : options) all[name] = given;
  return nb::type<Geometry>()(**all);
}

}  // namespace

void bind_geometry(nb::module_& module) {
  nb::class_<Geometry>(module, "Geometry", docs::kGeometry)
      .def("__init__", &construct, nb::kw_only(), "group_tokens"_a = 4, "budget_tokens"_a = 2048, "query_heads"_a = 24,
           "kv_heads"_a = 2, "head_dim"_a = 256, "value_dim"_a = 0, "values_alias_keys"_a = false,
           "softmax_scale"_a = nb::none(), "index_heads"_a = 4, "index_dim"_a = 128, "index_rotary_dim"_a = 64,
           "rope_theta"_a = 1e7, "inv_freq"_a = nb::none(), "rope_axes"_a = nb::none(), "norm_eps"_a = 1e-6,
           "pooling"_a = "mean", "relu"_a = true, "scale_at"_a = "after_sum", "kv_dtype"_a = "f32",
           "index_dtype"_a = "f32",
           nb::sig("def __init__(self, *, group_tokens: int = 4, budget_tokens: int = 2048, query_heads: int = 24, "
                   "kv_heads: int = 2, "
                   "head_dim: int = 256, value_dim: int = 0, values_alias_keys: bool = False, softmax_scale: float | "
                   "None = None, "
                   "index_heads: int = 4, index_dim: int = 128, index_rotary_dim: int = 64, rope_theta: float = 1e7, "
                   "inv_freq: seriatim._types.Floats | None = None, rope_axes: seriatim._types.Integers | None = None, "
                   "norm_eps: float = 1e-6, pooling: str = 'mean', relu: bool = True, scale_at: str = 'after_sum', "
                   "kv_dtype: object = 'f32', index_dtype: object = 'f32') -> None"))
      .def_static("from_config", &from_config, "config"_a, "options"_a,
                  nb::sig("def from_config(config: object, **options: object) -> Geometry"), docs::kFromConfig)
      .def_prop_ro("group_tokens", &Geometry::group_tokens, "r, the tokens of a group.")
      .def_prop_ro("budget_tokens", &Geometry::budget_tokens, "B, the tokens that chosen groups may hold together.")
      .def_prop_ro("budget_groups", &Geometry::budget_groups, "K = B / r.")
      .def_prop_ro("row_capacity", &Geometry::row_capacity, "B + r - 1, the width of a row's storage.")
      .def_prop_ro("query_heads", &Geometry::query_heads)
      .def_prop_ro("kv_heads", &Geometry::kv_heads)
      .def_prop_ro("head_dim", &Geometry::head_dim)
      .def_prop_ro("value_dim", &Geometry::value_dim)
      .def_prop_ro("values_alias_keys", &Geometry::values_alias_keys)
      .def_prop_ro("softmax_scale", &Geometry::softmax_scale)
      .def_prop_ro("index_heads", &Geometry::index_heads)
      .def_prop_ro("index_dim", &Geometry::index_dim)
      .def_prop_ro("index_rotary_dim", &Geometry::index_rotary_dim)
      .def_prop_ro("inv_freq",
                   [](const Geometry& g) { return std::vector<float>(g.inv_freq().begin(), g.inv_freq().end()); })
      .def_prop_ro("rope_axes",
                   [](const Geometry& g) { return std::vector<int>(g.rope_axes().begin(), g.rope_axes().end()); })
      .def_prop_ro("norm_eps", &Geometry::norm_eps)
      .def_prop_ro("pooling", [](const Geometry& g) { return std::string(pooling_name(g.pooling())); })
      .def_prop_ro("relu", &Geometry::relu)
      .def_prop_ro("scale_at", [](const Geometry& g) { return std::string(scale_at_name(g.scale_at())); })
      .def_prop_ro("kv_dtype", [](const Geometry& g) { return std::string(dtype_name(g.kv_dtype())); })
      .def_prop_ro("index_dtype", [](const Geometry& g) { return std::string(dtype_name(g.index_dtype())); })
      .def("row_width", &Geometry::row_width, "visible_tokens"_a, docs::kRowWidth)
      .def(
          "__eq__",
          [](const Geometry& a, nb::handle b) {
            return nb::isinstance<Geometry>(b) && a == nb::cast<const Geometry&>(b);
          },
          nb::arg().none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__getstate__", &options_of, "What pickle and copy keep.")
      .def("__setstate__", &restore, nb::arg("options"))
      .def("__hash__", [](const Geometry& g) { return std::hash<std::string>()(repr(g)); })
      .def("__repr__", &repr);
}

}  // namespace seriatim::python
