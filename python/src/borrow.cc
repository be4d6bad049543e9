// Binds borrow: layers over keys and values that the caller keeps, one or a padded batch; and pooling into its panels.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "bind.hpp"
#include "docs_step.hpp"
#include "errors.hpp"
#include "handles.hpp"
#include "unlocked.hpp"

using namespace nanobind::literals;

namespace seriatim::python {
namespace {

using Slots = std::vector<std::int64_t>;

// Tokens that keys, a block table or an index say there are, where the caller does not.
std::int64_t tokens_of(const ConstTensor& keys, const ConstTensor& block_table, std::int64_t first_slot,
                       const LayerHandle* index) {
  if (index != nullptr) {
    VisibleRun run;
    check([&] {
      const Unlocked unlocked;
      return with_layer(*index, [&](const LayerView& view) {
        run = view.run;
        return Status();
      });
    }());
    return run.tokens;
  }
  if (keys.empty() || !block_table.empty()) refuse("tokens", "how many there are must be said");
  return keys.shape[0] - first_slot;
}

LayerHandle borrow_one(const Geometry& geometry, nb::handle keys, nb::handle values, std::optional<std::int64_t> tokens,
                       std::int64_t anchor, std::int64_t first_slot, nb::handle block_table, nb::handle panels,
                       std::int64_t first_group, double panels_max_abs, const std::optional<LayerHandle>& index) {
  auto made = std::make_shared<BorrowedHandle>(geometry);
  BorrowedTensors tensors;
  const Input k = input(keys, "keys");
  const Input v = input(values, "values");
  const Input table = input(block_table, "block_table");  // read now alone
  const Input p = input(panels, "panels");
  tensors.keys = k.view;
  tensors.values = v.view;
  tensors.block_table = table.view;
  tensors.panels = p.view;
  tensors.first_slot = first_slot;
  tensors.first_group = first_group;
  tensors.panels_max_abs = static_cast<float>(panels_max_abs);
  made->held = {k, v, p};
  const LayerHandle* read = index ? &*index : nullptr;
  const VisibleRun run{anchor, tokens ? *tokens : tokens_of(k.view, table.view, first_slot, read)};
  check([&]() -> Status {
    const Unlocked unlocked;
    if (read == nullptr) return made->layer.bind(run, tensors);
    return with_layer(*read, [&](const LayerView& view) {
      tensors.index = &view;
      return made->layer.bind(run, tensors);
    });
  }());
  made->index = index;
  LayerHandle handle;
  handle.borrowed = std::move(made);
  return handle;
}

// Of [B, heads, T, dim] sequence b as [T, heads, dim].
ConstTensor sequence_of(const ConstTensor& batch, std::int64_t b) {
  ConstTensor one = row_of(batch, b);
  std::swap(one.shape[0], one.shape[1]);
  std::swap(one.stride_bytes[0], one.stride_bytes[1]);
  return one;
}

// A padded batch, as models keep it: sequence b has slots first[b] .. last[b] - 1, and positions are slots.
std::vector<LayerHandle> borrow_batch(const Geometry& geometry, const Slots& first, const Slots& last, nb::handle keys,
                                      nb::handle values, nb::handle panels, double panels_max_abs) {
  if (first.size() != last.size()) refuse("last", "not as many as of `first`");
  const Input k = input(keys, "keys");
  const Input v = input(values, "values");
  const Input p = input(panels, "panels");
  const auto sequences = static_cast<std::int64_t>(first.size());
  const auto check_batch = [&](const Input& in, const char* name) {
    if (in.view.empty() && in.view.rank == 0) return;
    if (in.view.rank != 4 || in.view.shape[0] != sequences)
      refuse(name, "not four axes of which the first has one place per sequence");
  };
  check_batch(k, "keys");
  check_batch(v, "values");
  check_batch(p, "panels");
  std::vector<LayerHandle> layers;
  for (std::int64_t b = 0; b < sequences; ++b) {
    const auto at = static_cast<std::size_t>(b);
    auto made = std::make_shared<BorrowedHandle>(geometry);
    BorrowedTensors tensors;
    if (k.view.rank != 0) tensors.keys = sequence_of(k.view, b);
    if (v.view.rank != 0) tensors.values = sequence_of(v.view, b);
    if (p.view.rank != 0) tensors.panels = row_of(p.view, b);
    tensors.panels_max_abs = static_cast<float>(panels_max_abs);
    tensors.first_slot = first[at];
    if (Status s = made->layer.bind({first[at], last[at] - first[at]}, tensors); !s.ok()) {
      raise(Status::error(s.code(), s.argument(), std::string(s.message()) + " (sequence " + std::to_string(b) + ")",
                          {b, s.place().index}));
    }
    made->held = {k, v, p};
    LayerHandle& handle = layers.emplace_back();
    handle.borrowed = std::move(made);
  }
  return layers;
}

// PanelPooler for a padded batch.
class BatchPooler {
 public:
  BatchPooler(const Geometry& geometry, nb::handle norm_weight, const std::shared_ptr<EngineHandle>& engine)
      : executor_(engine_or_default(engine)->executor()),
        pooler_(value(PanelPooler::create(geometry, floats(norm_weight, "norm_weight"), *executor_,
                                          value(engine_or_default(engine)->kernels())))) {}

  float pool(const Slots& first, const Slots& last, const Slots& first_groups, nb::handle raw, nb::handle coordinates,
             nb::handle panels) {
    const Input keys = input(raw, "raw", 3);
    const Input at = input(coordinates, "coordinates");
    const Output into = output(panels, "panels");
    const auto sequences = static_cast<std::int64_t>(first.size());
    if (last.size() != first.size() || first_groups.size() != first.size() || keys.view.shape[0] != sequences)
      refuse("raw", "not one of each per sequence");
    if (into.view.rank != 4 || into.view.shape[0] != sequences) refuse("panels", "not [sequences, panels, dim, 16]");
    if (!at.view.empty() && (at.view.rank != 3 || at.view.shape[1] != sequences))
      refuse("coordinates", "not [3, sequences, slots]");
    std::vector<PoolAsk> asks;
    for (std::int64_t b = 0; b < sequences; ++b) {
      const auto i = static_cast<std::size_t>(b);
      PoolAsk& ask = asks.emplace_back();
      ask.raw = row_of(keys.view, b);
      if (!at.view.empty()) {
        ask.coordinates = at.view;  // [3, B, slots] at sequence b: [3, slots]
        ask.coordinates.data = at.view.at(0, b);
        ask.coordinates.rank = 2;
        ask.coordinates.shape = {3, at.view.shape[2], 1, 1};
        ask.coordinates.stride_bytes = {at.view.stride_bytes[0], at.view.stride_bytes[2], 0, 0};
      }
      ask.run = {first[i], last[i] - first[i]};
      ask.first_slot = first[i];
      ask.first_group = first_groups[i];
      ask.panels = row_of(into.view, b);
    }
    Result<float> largest = [&] {
      const Unlocked unlocked;
      const std::lock_guard turn(turn_);
      return pooler_.pool(asks);
    }();
    return value(std::move(largest));
  }

 private:
  std::shared_ptr<Executor> executor_;
  PanelPooler pooler_;
  std::mutex turn_;
};

}  // namespace

void bind_borrow(nb::module_& module) {
  module.def(
      "borrow", &borrow_one, "geometry"_a, "keys"_a = nb::none(), "values"_a = nb::none(), nb::kw_only(),
      "tokens"_a = nb::none(), "anchor"_a = 0, "first_slot"_a = 0, "block_table"_a = nb::none(),
      "panels"_a = nb::none(), "first_group"_a = 0, "panels_max_abs"_a = std::numeric_limits<double>::infinity(),
      "index"_a = nb::none(),
      nb::sig("def borrow(geometry: Geometry, keys: seriatim._types.Array | None = None, values: "
              "seriatim._types.Array | None = None, *, tokens: int | None = None, anchor: int = 0, first_slot: "
              "int = 0, block_table: seriatim._types.Array | None = None, panels: seriatim._types.Array | None = "
              "None, first_group: int = 0, panels_max_abs: float = float('inf'), index: Layer | None = None) -> "
              "Layer"),
      docs::kBorrow);
  module.def("borrow_batch", &borrow_batch, "geometry"_a, "first"_a, "last"_a, "keys"_a = nb::none(),
             "values"_a = nb::none(), "panels"_a = nb::none(),
             "panels_max_abs"_a = std::numeric_limits<double>::infinity(),
             nb::sig("def borrow_batch(geometry: Geometry, first: collections.abc.Sequence[int], last: "
                     "collections.abc.Sequence[int], keys: seriatim._types.Array | None = None, values: "
                     "seriatim._types.Array | None = None, panels: seriatim._types.Array | None = None, "
                     "panels_max_abs: float = float('inf')) -> list[Layer]"),
             docs::kBorrowBatch);
  nb::class_<BatchPooler>(module, "PanelPooler", docs::kPanelPooler)
      .def(nb::init<const Geometry&, nb::handle, const std::shared_ptr<EngineHandle>&>(), "geometry"_a,
           "norm_weight"_a = nb::none(), "engine"_a = nb::none(),
           nb::sig("def __init__(self, geometry: Geometry, norm_weight: seriatim._types.Floats | None = None, engine: "
                   "Engine | None = None) -> None"))
      .def("pool", &BatchPooler::pool, "first"_a, "last"_a, "first_groups"_a, "raw"_a, "coordinates"_a.none(),
           "panels"_a,
           nb::sig("def pool(self, first: collections.abc.Sequence[int], last: collections.abc.Sequence[int], "
                   "first_groups: collections.abc.Sequence[int], raw: seriatim._types.Array, coordinates: "
                   "seriatim._types.Array | None, panels: seriatim._types.Array) -> float"),
           docs::kPanelPool);
  module.def(
      "check_array",
      [](const std::string& argument, nb::handle array, bool writable) {
        writable ? static_cast<void>(output(array, argument.c_str()))
                 : static_cast<void>(input(array, argument.c_str()));
      },
      "argument"_a, "array"_a, "writable"_a = false,
      nb::sig("def check_array(argument: str, array: seriatim._types.Array, writable: bool = False) -> None"),
      docs::kCheckArray);
  module.def(
      "check_finite",
      [](const std::string& argument, nb::handle array) {
        const Input in = input(array, argument.c_str());
        check([&] {
          const Unlocked unlocked;
          return check_finite(argument, in.view);
        }());
      },
      "argument"_a, "array"_a, nb::sig("def check_finite(argument: str, array: seriatim._types.Array) -> None"),
      docs::kCheckFinite);
}

}  // namespace seriatim::python
