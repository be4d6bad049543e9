// Binds attend over bare arrays: keys and values of one sequence that the caller keeps.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "arrays.hpp"
#include "bind.hpp"
#include "docs.hpp"
#include "engine.hpp"
#include "errors.hpp"
#include "rows.hpp"
#include "seriatim/borrow.hpp"
#include "unlocked.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

namespace {

// A dense copy, for views that cannot be read in place.
struct Copy {
  std::unique_ptr<std::byte[]> memory;
  ConstTensor view;
};

Result<Copy> copy_of(const ConstTensor& from, const char* argument) {
  const std::int64_t element = dtype_bytes(from.dtype);
  Copy copy;
  copy.view = dense_view(static_cast<const void*>(nullptr), from.dtype, {from.shape[0], from.shape[1], from.shape[2]});
  const std::int64_t bytes = from.shape[0] * copy.view.stride_bytes[0];
  copy.memory.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes + 1)]);
  if (!copy.memory) return Status::error(Code::kOutOfMemory, argument, "no memory for a copy of strided vectors");
  copy.view.data = copy.memory.get();
  std::byte* to = copy.memory.get();
  for (std::int64_t token = 0; token < from.shape[0]; ++token) {
    for (std::int64_t head = 0; head < from.shape[1]; ++head) {
      for (std::int64_t dim = 0; dim < from.shape[2]; ++dim, to += element)
        std::memcpy(to, from.at(token, head, dim), static_cast<std::size_t>(element));
    }
  }
  return copy;
}

Geometry geometry_of(const ConstTensor& queries, const ConstTensor& keys, const ConstTensor& values, std::int64_t width,
                     std::optional<double> scale) {
  if (keys.rank != 3 || values.rank != 3) refuse("keys", "keys and values have three axes");
  check_shape(values, "values", {keys.shape[0], keys.shape[1], values.shape[2]});
  if (!is_float(keys.dtype)) refuse("keys", "a float dtype is needed");
  if (values.dtype != keys.dtype) refuse("values", "their dtype is not that of the keys");
  if (queries.dtype != keys.dtype) refuse("queries", "their dtype is not that of the keys");
  GeometryOptions options;
  options.group_tokens = 1;
  options.budget_tokens = std::max<std::int64_t>(width, 1);
  options.query_heads = queries.shape[1];
  options.kv_heads = keys.shape[1];
  options.head_dim = keys.shape[2];
  options.value_dim = values.shape[2];
  if (scale) options.softmax_scale = static_cast<float>(*scale);
  options.index_dim = 2;
  options.index_rotary_dim = 0;
  options.kv_dtype = keys.dtype;
  return value(Geometry::admit(std::move(options)));
}

nb::object attend_arrays(nb::handle queries, nb::handle keys, nb::handle values, nb::handle rows, nb::handle positions,
                         std::int64_t anchor, std::optional<double> scale, nb::handle sinks, nb::handle dtype,
                         nb::handle out, nb::handle lse, bool return_lse, const std::shared_ptr<EngineHandle>& given) {
  const Input q = input(queries, "queries", 3);
  const Input k = input(keys, "keys", 3);
  const Input v = input(values, "values", 3);
  if (q.view.empty()) refuse("queries", "an array is needed");
  if (k.view.empty()) refuse("keys", "an array is needed");
  if (v.view.empty()) refuse("values", "an array is needed");
  const RowsIn read = rows_in(rows, q.view.shape[0]);
  const Geometry geometry = geometry_of(q.view, k.view, v.view, read.positions.view.shape[1], scale);
  check(geometry.check_run({anchor, k.view.shape[0]}));
  std::vector<std::int64_t> at;
  if (positions.is_none()) {
    at.assign(static_cast<std::size_t>(q.view.shape[0]), anchor + k.view.shape[0] - 1);
  } else {
    at = integers(positions, "positions");
  }
  const std::vector<float> logits = floats(sinks, "sinks");
  AttendOut result = attend_out(out, lse, return_lse, queries, dtype_of(dtype, "dtype", q.view.dtype),
                                {q.view.shape[0], geometry.query_heads(), geometry.value_dim()},
                                {{"queries", q.view},
                                 {"keys", k.view},
                                 {"values", v.view},
                                 {"rows", read.positions.view},
                                 {"rows", read.counts.view}});
  const Status status = [&]() -> Status {
    const Unlocked unlocked;
    const VisibleRun run{anchor, k.view.shape[0]};
    BorrowedTensors tensors;
    tensors.keys = k.view;
    tensors.values = v.view;
    BorrowedLayer layer(geometry);
    Result<Copy> dense_keys = Copy();
    Result<Copy> dense_values = Copy();
    if (!layer.bind(run, tensors).ok()) {
      dense_keys = copy_of(k.view, "keys");
      dense_values = copy_of(v.view, "values");
      if (!dense_keys.ok()) return dense_keys.status();
      if (!dense_values.ok()) return dense_values.status();
      tensors.keys = dense_keys->view;
      tensors.values = dense_values->view;
      if (Status s = layer.bind(run, tensors); !s.ok()) return s;
    }
    return engine_or_default(given)->with([&](Engine& engine) {
      return engine.attend(layer.view(), {q.view, at, logits}, read.rows, result.output.view, result.lse.view);
    });
  }();
  check(status);
  return result.object();
}

}  // namespace

void bind_arrays_attend(nb::module_& module) {
  module.def(
      "attend", &attend_arrays, "queries"_a, "keys"_a, "values"_a, "rows"_a, "positions"_a = nb::none(), nb::kw_only(),
      "anchor"_a = 0, "scale"_a = nb::none(), "sinks"_a = nb::none(), "dtype"_a = nb::none(), "out"_a = nb::none(),
      "lse"_a = nb::none(), "return_lse"_a = false, "engine"_a = nb::none(),
      nb::sig("def attend(queries: seriatim._types.ArrayT, keys: seriatim._types.Array, values: seriatim._types.Array, "
              "rows: tuple[seriatim._types.Array, seriatim._types.Array], positions: seriatim._types.Integers | None = "
              "None, *, "
              "anchor: int = 0, scale: float | None = None, sinks: seriatim._types.Floats | None = None, dtype: object "
              "= None, "
              "out: seriatim._types.ArrayT | None = None, lse: seriatim._types.ArrayT | None = None, return_lse: bool "
              "= False, engine: Engine | None = None) -> typing.Any"),
      docs::kAttend);
}

}  // namespace seriatim::python
