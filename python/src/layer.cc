// Binds Layer and Snapshot: plan and attend over what a sequence holds.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>

#include "arrays.hpp"
#include "bind.hpp"
#include "docs.hpp"
#include "engine.hpp"
#include "errors.hpp"
#include "handles.hpp"
#include "seriatim/score.hpp"
#include "step.hpp"
#include "unlocked.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

namespace {

VisibleRun run_of(const LayerHandle& self) {
  VisibleRun run;
  const Status status = [&] {
    const Unlocked unlocked;
    return with_layer(self, [&](const LayerView& view) {
      run = view.run;
      return Status();
    });
  }();
  check(status);
  return run;
}

nb::object score_one(const LayerHandle& self, nb::handle query, std::int64_t position, nb::handle head_weights) {
  const Input in = input(query, "query", 2);
  if (in.view.empty()) refuse("query", "an array is needed");
  const Input weights = input(head_weights, "head_weights", 1);
  const VisibleRun run = run_of(self);
  if (position < run.anchor || position >= run.anchor + run.tokens) {
    refuse("position", std::to_string(position) + " is not held by the layer");
  }
  const Geometry& geometry = self.geometry();
  const std::int64_t groups = geometry.index_keys(position - run.anchor + 1);
  nb::object scores = empty_like_kind(query, DType::kF32, {groups});
  const Output out = output(scores, "scores");
  const Status status = [&] {
    const Unlocked unlocked;
    return with_layer(self, [&](const LayerView& view) -> Status {
      if (!view.indexed) return Status::error(Code::kInvalidArgument, "layer", "has no index");
      if (position >= view.run.anchor + view.run.tokens || position < view.run.anchor ||
          view.pooled_up_to(position).groups != groups) {
        return Status::error(Code::kInvalidArgument, "position", "the layer changed meanwhile");
      }
      return score_groups(geometry, in.view, weights.view, view.pooled_up_to(position),
                          {reinterpret_cast<float*>(out.view.data), static_cast<std::size_t>(groups)});
    });
  }();
  check(status);
  return scores;
}

template <typename Find>
void copy_tokens(const Tensor& to, std::int64_t tokens, std::int64_t heads, std::int64_t bytes, const Find& find) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) std::copy_n(find(t, h), bytes, to.at(t, h));
  }
}

nb::object read_tokens(const LayerHandle& self, std::int64_t first_position, std::int64_t tokens, nb::handle like) {
  const Geometry& g = self.geometry();
  const VisibleRun run = run_of(self);
  if (tokens < 0 || first_position < run.anchor || first_position > run.anchor + run.tokens - tokens) {
    refuse("tokens", "the layer holds positions " + std::to_string(run.anchor) + " to " +
                         std::to_string(run.anchor + run.tokens - 1));
  }
  nb::object keys = empty_like_kind(like, g.kv_dtype(), {tokens, g.kv_heads(), g.head_dim()});
  nb::object values = empty_like_kind(like, g.kv_dtype(), {tokens, g.kv_heads(), g.value_dim()});
  const Output k = output(keys, "keys");
  const Output v = output(values, "values");
  const Status status = [&] {
    const Unlocked unlocked;
    return with_layer(self, [&](const LayerView& view) -> Status {
      if (first_position < view.run.anchor || first_position + tokens > view.run.anchor + view.run.tokens) {
        return Status::error(Code::kInvalidArgument, "tokens", "the layer changed meanwhile");
      }
      if (view.key_offset_bytes < 0)
        return Status::error(Code::kInvalidArgument, "layer", "it holds no keys and values");
      const std::int64_t bytes = dtype_bytes(g.kv_dtype());
      copy_tokens(k.view, tokens, g.kv_heads(), g.head_dim() * bytes,
                  [&](std::int64_t t, std::int64_t h) { return view.key(first_position + t, h); });
      copy_tokens(v.view, tokens, g.kv_heads(), g.value_dim() * bytes,
                  [&](std::int64_t t, std::int64_t h) { return view.value(first_position + t, h); });
      return Status();
    });
  }();
  check(status);
  return nb::make_tuple(keys, values);
}

LayerHandle layer_of(const SnapshotHandle& self, std::int64_t layer) {
  if (layer < 0 || layer >= self.snapshot.layers())
    refuse("layer", std::to_string(layer) + " is none of " + std::to_string(self.snapshot.layers()));
  return {self.cache, self.snapshot, nullptr, 0, layer, nullptr};
}

}  // namespace

void bind_layer(nb::module_& module) {
  nb::class_<LayerHandle>(module, "Layer", docs::kLayer)
      .def_prop_ro("geometry", [](const LayerHandle& self) { return self.geometry(); })
      .def_prop_ro(
          "anchor", [](const LayerHandle& self) { return run_of(self).anchor; }, "Position of the first token.")
      .def_prop_ro(
          "tokens", [](const LayerHandle& self) { return run_of(self).tokens; }, "Tokens that it holds.")
      .def_prop_ro(
          "frontier",
          [](const LayerHandle& self) {
            const VisibleRun run = run_of(self);
            return run.anchor + run.tokens;
          },
          "Position of the next token.")
      .def("plan", &plan_layer, "queries"_a, "positions"_a, nb::kw_only(), "head_weights"_a = nb::none(),
           "nan"_a = "refuse", "engine"_a = nb::none(), "out"_a = nb::none(),
           nb::sig(
               "def plan(self, queries: seriatim._types.ArrayT, positions: seriatim._types.Integers, *, head_weights: "
               "seriatim._types.Array | None = None, nan: str = 'refuse', engine: Engine | None = None, "
               "out: tuple[seriatim._types.ArrayT, seriatim._types.ArrayT] | None = None) -> "
               "seriatim._types.Rows[seriatim._types.ArrayT]"),
           docs::kPlan)
      .def("attend", &attend_layer, "queries"_a, "positions"_a, "rows"_a, nb::kw_only(), "sinks"_a = nb::none(),
           "dtype"_a = nb::none(), "engine"_a = nb::none(), "out"_a = nb::none(), "lse"_a = nb::none(),
           "return_lse"_a = false,
           nb::sig(
               "def attend(self, queries: seriatim._types.ArrayT, positions: seriatim._types.Integers, rows: "
               "tuple[seriatim._types.Array, seriatim._types.Array], *, sinks: seriatim._types.Floats | None = None, "
               "dtype: object = None, engine: Engine | None = None, out: seriatim._types.ArrayT | None = None, "
               "lse: seriatim._types.ArrayT | None = None, return_lse: bool = False) -> typing.Any"),
           docs::kLayerAttend)
      .def("score", &score_one, "query"_a, "position"_a, "head_weights"_a = nb::none(),
           nb::sig("def score(self, query: seriatim._types.ArrayT, position: int, head_weights: seriatim._types.Array "
                   "| None = None) "
                   "-> seriatim._types.ArrayT"),
           docs::kLayerScore)
      .def("read", &read_tokens, "first_position"_a, "tokens"_a, "like"_a = nb::none(),
           nb::sig("def read(self, first_position: int, tokens: int, like: seriatim._types.Array | None = None) -> "
                   "tuple[typing.Any, typing.Any]"),
           docs::kRead);
  nb::class_<SnapshotHandle>(module, "Snapshot", docs::kSnapshot)
      .def_prop_ro("anchor", [](const SnapshotHandle& self) { return self.snapshot.run().anchor; })
      .def_prop_ro("tokens", [](const SnapshotHandle& self) { return self.snapshot.run().tokens; })
      .def_prop_ro("frontier",
                   [](const SnapshotHandle& self) {
                     const VisibleRun run = self.snapshot.run();
                     return run.anchor + run.tokens;
                   })
      .def_prop_ro("layers", [](const SnapshotHandle& self) { return self.snapshot.layers(); })
      .def("layer", &layer_of, "layer"_a = 0, "One layer of it, which keeps this state alive by itself.")
      .def("check", [](const SnapshotHandle& self) { check(self.snapshot.check()); }, docs::kSnapshotCheck);
}

}  // namespace seriatim::python
