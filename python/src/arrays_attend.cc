// Binds attend over bare arrays: keys and values of one sequence that the caller keeps.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

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
#include "unlocked.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

namespace {

// Where a page of the library's own layout begins and how far its blocks lie apart.
struct Page {
  std::unique_ptr<std::byte[]> memory;  // null where the arrays themselves are the page
  const std::byte* start = nullptr;
  std::int64_t tokens = 0;
  std::int64_t value_offset_bytes = 0;
};

// Tokens that one kv head's block has room for, if [T, kv heads, dim] is a view of such blocks; else 0.
std::int64_t block_tokens(const ConstTensor& t) {
  const std::int64_t element = dtype_bytes(t.dtype);
  const std::int64_t token = t.shape[2] * element;
  if (t.shape[2] > 1 && t.stride_bytes[2] != element) return 0;
  if (t.shape[0] > 1 && t.stride_bytes[0] != token) return 0;
  if (t.shape[1] == 1) return t.shape[0];
  return t.stride_bytes[1] % token == 0 && t.stride_bytes[1] / token >= t.shape[0] ? t.stride_bytes[1] / token : 0;
}

void copy_block(const ConstTensor& from, std::byte* to) {
  const std::int64_t element = dtype_bytes(from.dtype);
  for (std::int64_t head = 0; head < from.shape[1]; ++head) {
    for (std::int64_t token = 0; token < from.shape[0]; ++token) {
      if (from.shape[2] == 1 || from.stride_bytes[2] == element) {
        std::memcpy(to, from.at(token, head), static_cast<std::size_t>(from.shape[2] * element));
        to += from.shape[2] * element;
        continue;
      }
      for (std::int64_t dim = 0; dim < from.shape[2]; ++dim, to += element) {
        std::memcpy(to, from.at(token, head, dim), static_cast<std::size_t>(element));
      }
    }
  }
}

Result<Page> page_of(const ConstTensor& keys, const ConstTensor& values) {
  Page page;
  page.tokens = block_tokens(keys);
  const std::int64_t value_tokens =
      values.shape[1] == 1 && page.tokens > 0 && block_tokens(values) > 0 ? page.tokens : block_tokens(values);
  if (page.tokens > 0 && value_tokens == page.tokens) {
    page.start = keys.data;
    page.value_offset_bytes = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(values.data) -
                                                        reinterpret_cast<std::intptr_t>(keys.data));
    return page;
  }
  const std::int64_t key_bytes = keys.shape[0] * keys.shape[1] * keys.shape[2] * dtype_bytes(keys.dtype);
  const std::int64_t value_bytes = values.shape[0] * values.shape[1] * values.shape[2] * dtype_bytes(values.dtype);
  page.memory.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(key_bytes + value_bytes + 1)]);
  if (!page.memory) return Status::error(Code::kOutOfMemory, "keys", "no memory for a copy of strided keys and values");
  page.start = page.memory.get();
  page.tokens = keys.shape[0];
  page.value_offset_bytes = key_bytes;
  copy_block(keys, page.memory.get());
  copy_block(values, page.memory.get() + key_bytes);
  return page;
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
                         nb::handle out, nb::handle lse, bool return_lse) {
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
    const Result<Page> page = page_of(k.view, v.view);
    if (!page.ok()) return page.status();
    LayerView layer;
    layer.geometry = &geometry;
    layer.run = {anchor, k.view.shape[0]};
    layer.pages = &page->start;
    layer.page_tokens = page->tokens;
    layer.value_offset_bytes = page->value_offset_bytes;
    layer.set_cache_strides();
    layer.indexed = false;
    return with_workspace(nullptr, geometry, layer.run.tokens, [&](seriatim::Engine& workspace) {
      return workspace.attend(layer, AttendQueries{q.view, at, logits}, read.rows, result.output.view, result.lse.view);
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
      "lse"_a = nb::none(), "return_lse"_a = false,
      nb::sig("def attend(queries: seriatim._types.ArrayT, keys: seriatim._types.Array, values: seriatim._types.Array, "
              "rows: tuple[seriatim._types.Array, seriatim._types.Array], positions: seriatim._types.Integers | None = "
              "None, *, "
              "anchor: int = 0, scale: float | None = None, sinks: seriatim._types.Floats | None = None, dtype: object "
              "= None, "
              "out: seriatim._types.ArrayT | None = None, lse: seriatim._types.ArrayT | None = None, return_lse: bool "
              "= False) -> typing.Any"),
      docs::kAttend);
}

}  // namespace seriatim::python
