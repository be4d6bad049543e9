// Binds Geometry: keyword options with QSA's defaults in, read-only properties out.
#include "seriatim/geometry.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
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

// An option in every shape that Python sees it in: a keyword, a property, an entry of what pickle keeps, a part of
// repr.
struct Option {
  const char* name;
  const char* taken;                          // type and default, as a signature spells them
  const char* given;                          // type of the property
  nb::object (*get)(const GeometryOptions&);  // null: other options hold what it came to
  void (*set)(GeometryOptions&, nb::handle, const char* name);
  const char* doc = "";
};

template <typename T>
T cast_to(nb::handle object, const char* name) {
  T taken{};
  if (!nb::try_cast(object, taken))
    throw nb::type_error((std::string(name) + ": " + nb::repr(object).c_str() + " is of another type").c_str());
  return taken;
}

// A number or a flag.
template <auto kMember>
constexpr Option plain(const char* name, const char* taken, const char* given, const char* doc = "") {
  return {name,
          taken,
          given,
          [](const GeometryOptions& o) { return nb::cast(o.*kMember); },
          [](GeometryOptions& o, nb::handle object, const char* argument) {
            o.*kMember = cast_to<std::remove_reference_t<decltype(o.*kMember)>>(object, argument);
          },
          doc};
}

template <auto kMember>
constexpr Option dtype(const char* name) {
  return {name, "object = 'f32'", "str",
          [](const GeometryOptions& o) { return nb::cast(std::string(dtype_name(o.*kMember))); },
          [](GeometryOptions& o, nb::handle object, const char* argument) {
            o.*kMember = dtype_of(object, argument, DType::kF32);
          }};
}

void set_rope_axes(GeometryOptions& o, nb::handle object, const char* name) {
  if (object.is_none()) return;
  for (const std::int64_t axis : integers(object, name)) {
    if (axis < 0 || axis > 2) refuse(name, std::to_string(axis) + " is none of 0, 1 and 2");
    o.rope_axes.push_back(static_cast<std::uint8_t>(axis));
  }
}

using O = GeometryOptions;
constexpr Option kOptions[] = {
    plain<&O::group_tokens>("group_tokens", "int = 4", "int", "r, the tokens of a group."),
    plain<&O::budget_tokens>("budget_tokens", "int = 2048", "int",
                             "B, the tokens that chosen groups may hold together."),
    plain<&O::query_heads>("query_heads", "int = 24", "int"),
    plain<&O::kv_heads>("kv_heads", "int = 2", "int"),
    plain<&O::head_dim>("head_dim", "int = 256", "int"),
    plain<&O::value_dim>("value_dim", "int = 0", "int"),
    plain<&O::values_alias_keys>("values_alias_keys", "bool = False", "bool"),
    {"softmax_scale", "float | None = None", "float", [](const O& o) { return nb::cast(*o.softmax_scale); },
     [](O& o, nb::handle object, const char* name) {
       if (!object.is_none()) o.softmax_scale = static_cast<float>(cast_to<double>(object, name));
     }},
    plain<&O::index_heads>("index_heads", "int = 4", "int"),
    plain<&O::index_dim>("index_dim", "int = 128", "int"),
    plain<&O::index_rotary_dim>("index_rotary_dim", "int = 64", "int"),
    {"rope_theta", "float = 1e7", "", nullptr,
     [](O& o, nb::handle object, const char* name) { o.rope_theta = cast_to<double>(object, name); }},
    {"inv_freq", "seriatim._types.Floats | None = None", "list[float]", [](const O& o) { return nb::cast(o.inv_freq); },
     [](O& o, nb::handle object, const char* name) { o.inv_freq = floats(object, name); }},
    {"rope_axes", "seriatim._types.Integers | None = None", "list[int]",
     [](const O& o) { return nb::cast(std::vector<int>(o.rope_axes.begin(), o.rope_axes.end())); }, set_rope_axes},
    {"norm_eps", "float = 1e-6", "float", [](const O& o) { return nb::cast(o.norm_eps); },
     [](O& o, nb::handle object, const char* name) { o.norm_eps = static_cast<float>(cast_to<double>(object, name)); }},
    {"pooling", "str = 'mean'", "str", [](const O& o) { return nb::cast(std::string(pooling_name(o.pooling))); },
     [](O& o, nb::handle object, const char* name) {
       o.pooling = named(pooling_named, kPoolingNames, cast_to<std::string>(object, name), name);
     }},
    plain<&O::relu>("relu", "bool = True", "bool"),
    {"scale_at", "str = 'after_sum'", "str",
     [](const O& o) { return nb::cast(std::string(scale_at_name(o.scale_at))); },
     [](O& o, nb::handle object, const char* name) {
       o.scale_at = named(scale_at_named, kScaleAtNames, cast_to<std::string>(object, name), name);
     }},
    dtype<&O::kv_dtype>("kv_dtype"),
    dtype<&O::index_dtype>("index_dtype"),
    {"tail", "str = 'raw'", "str", [](const O& o) { return nb::cast(std::string(tail_name(o.tail))); },
     [](O& o, nb::handle object, const char* name) {
       o.tail = named(tail_named, kTailNames, cast_to<std::string>(object, name), name);
     }},
    plain<&O::forced_first>("forced_first", "int = 0", "int"),
    plain<&O::forced_newest>("forced_newest", "int = 0", "int"),
    plain<&O::forced_outside>("forced_outside", "bool = False", "bool"),
    plain<&O::selections>("selections", "int = 1", "int", "S, rows per query."),
};

std::string signature() {
  std::string text = "def __init__(self, *";
  for (const Option& option : kOptions) text += std::string(", ") + option.name + ": " + option.taken;
  return text + ") -> None";
}

void construct(Geometry* self, const nb::kwargs& given) {
  GeometryOptions options;
  for (const auto [key, object] : given) {
    const auto name = nb::cast<std::string>(key);
    const auto found =
        std::find_if(std::begin(kOptions), std::end(kOptions), [&](const Option& each) { return name == each.name; });
    if (found == std::end(kOptions))
      throw nb::type_error(("Geometry() got an unexpected keyword argument '" + name + "'").c_str());
    found->set(options, object, found->name);
  }
  new (self) Geometry(value(Geometry::admit(std::move(options))));
}

// As short as gives the same number again. Not printf, whose decimal point is the locale's.
std::string shown(const nb::object& object) {
  if (!nb::isinstance<nb::float_>(object)) return nb::repr(object).c_str();
  char text[32] = {};
  std::to_chars(text, text + sizeof text - 1, static_cast<float>(nb::cast<double>(object)));
  return text;
}

// Only what differs from QSA's defaults, so that a reader sees what is particular. Frequencies are left out.
std::string repr(const Geometry& g) {
  GeometryOptions usual;
  usual.value_dim = g.head_dim();
  usual.softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(g.head_dim())));
  usual.inv_freq = g.options().inv_freq;
  std::string text;
  for (const Option& option : kOptions) {
    if (option.get == nullptr) continue;
    const nb::object is = option.get(g.options());
    if (is.equal(option.get(usual))) continue;
    text += (text.empty() ? "" : ", ") + std::string(option.name) + "=" + shown(is);
  }
  return "Geometry(" + text + ")";
}

// What the constructor takes: frequencies as they are, whatever they were made of.
nb::dict options_of(const Geometry& g) {
  nb::dict options;
  for (const Option& option : kOptions) {
    if (option.get != nullptr) options[option.name] = option.get(g.options());
  }
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
  nb::class_<Geometry> geometry(module, "Geometry", docs::kGeometry);
  geometry.def("__init__", &construct, nb::sig(signature().c_str()))
      .def_static("from_config", &from_config, "config"_a, "options"_a,
                  nb::sig("def from_config(config: object, **options: object) -> Geometry"), docs::kFromConfig);
  for (const Option& option : kOptions) {
    if (option.get == nullptr) continue;
    const std::string getter = std::string("def ") + option.name + "(self) -> " + option.given;
    geometry.def_prop_ro(
        option.name, [get = option.get](const Geometry& g) { return get(g.options()); },
        nb::for_getter(nb::sig(getter.c_str())), option.doc);
  }
  geometry.def_prop_ro("budget_groups", &Geometry::budget_groups, "K = B / r.")
      .def_prop_ro("row_capacity", &Geometry::row_capacity, "The width of a row's storage: B + r - 1 with a raw tail.")
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
