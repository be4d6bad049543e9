// Binds what lies before selection: pooling, finishing of raw index queries, and scores over bare pooled keys.
#include "seriatim/score.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "arrays.hpp"
#include "bind.hpp"
#include "docs.hpp"
#include "engine.hpp"
#include "errors.hpp"
#include "overlap.hpp"
#include "seriatim/index.hpp"
#include "unlocked.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

namespace {

struct FreeAligned {
  void operator()(std::byte* memory) const { std::free(memory); }
};

ConstTensor weights_view(const std::vector<float>& weights) {
  return weights.empty() ? ConstTensor{}
                         : dense_view(weights.data(), DType::kF32, {static_cast<std::int64_t>(weights.size())});
}

std::vector<float> norm_weights(nb::handle given, const Geometry& geometry) {
  std::vector<float> weights = floats(given, "norm_weight");
  if (weights.empty()) weights.resize(static_cast<std::size_t>(geometry.index_dim()));
  return weights;
}

const Coordinates* data_or_null(const std::vector<Coordinates>& all, std::int64_t needed) {
  if (all.empty()) return nullptr;
  if (static_cast<std::int64_t>(all.size()) != needed) {
    refuse("coordinates", "there are " + std::to_string(all.size()) + ", " + std::to_string(needed) + " are needed");
  }
  return all.data();
}

nb::object pool(const Geometry& geometry, nb::handle raw, nb::handle norm_weight, std::int64_t first_position,
                nb::handle given_coordinates, nb::handle out) {
  const Input in = input(raw, "raw", 2);
  if (in.view.empty()) refuse("raw", "an array is needed");
  const std::vector<float> weights = norm_weights(norm_weight, geometry);
  const std::vector<Coordinates> at = coordinates(given_coordinates, "coordinates");
  const Coordinates* const where = data_or_null(at, in.view.shape[0]);
  nb::object pooled = out.is_none() ? empty_like_kind(raw, geometry.index_dtype(),
                                                      {geometry.index_keys(in.view.shape[0]), geometry.index_dim()})
                                    : nb::borrow(out);
  const Output result = out.is_none() ? output(pooled, "out") : given_output(out, "out");
  refuse_overlap({{"out", as_const(result.view)}}, {{"raw", in.view}});
  const Status status = [&] {
    const Unlocked unlocked;
    return pool_keys(geometry, weights_view(weights), in.view, first_position, where, result.view);
  }();
  check(status);
  return pooled;
}

nb::object prepare(const Geometry& geometry, nb::handle raw, nb::handle positions, nb::handle norm_weight,
                   nb::handle given_coordinates, nb::handle out) {
  const Input in = input(raw, "raw", 3);
  if (in.view.empty()) refuse("raw", "an array is needed");
  const std::vector<std::int64_t> places = integers(positions, "positions");
  if (static_cast<std::int64_t>(places.size()) != in.view.shape[0]) refuse("positions", "not one per query");
  const std::vector<float> weights = norm_weights(norm_weight, geometry);
  const std::vector<Coordinates> at = coordinates(given_coordinates, "coordinates");
  const Coordinates* const where = data_or_null(at, in.view.shape[0]);
  nb::object prepared = out.is_none()
                            ? empty_like_kind(raw, geometry.index_dtype(),
                                              {in.view.shape[0], geometry.index_heads(), geometry.index_dim()})
                            : nb::borrow(out);
  const Output result = out.is_none() ? output(prepared, "out") : given_output(out, "out");
  refuse_overlap({{"out", as_const(result.view)}}, {{"raw", in.view}});
  const Status status = [&] {
    const Unlocked unlocked;
    return prepare_index_queries(geometry, weights_view(weights), in.view, places.data(), where, result.view);
  }();
  check(status);
  return prepared;
}

// Fewer groups are not worth a worker's while. Whole panels.
constexpr std::int64_t kPartGroups = 4096;

// Bare pooled keys as panels, and the parts that they are worked in.
class Packed {
 public:
  Packed(const Geometry& geometry, const ConstTensor& pooled)
      : geometry_(geometry), pooled_(pooled), groups_(pooled.shape[0]) {}

  std::int64_t parts() const { return std::max<std::int64_t>((groups_ + kPartGroups - 1) / kPartGroups, 1); }
  std::int64_t first(std::int64_t part) const { return part * kPartGroups; }
  std::int64_t count(std::int64_t part) const { return std::min(kPartGroups, groups_ - first(part)); }

  Status pack(Executor& on) {
    const std::int64_t bytes = panel_bytes(geometry_, groups_);
    panels_.reset(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<std::size_t>((bytes + 127) / 64 * 64))));
    if (!panels_) return Status::error(Code::kOutOfMemory, "pooled_keys", "no memory for panels");
    page_ = panels_.get();
    FirstStatus fault;
    for_each_unit(on, parts(), [&](std::int64_t part, int) {
      ConstTensor rows = pooled_;
      rows.data = pooled_.at(first(part));
      rows.shape[0] = count(part);
      if (Status s = pack_pooled_keys(geometry_, rows, panels_.get() + panel_bytes(geometry_, first(part))); !s.ok())
        fault.report(part, s);
    });
    return fault.status();
  }

  PooledKeys keys(std::int64_t part) const {
    PooledKeys keys;
    keys.pages = &page_;
    keys.page_groups = (groups_ + PooledKeys::kPanelGroups) / PooledKeys::kPanelGroups * PooledKeys::kPanelGroups;
    keys.first_slot = first(part);
    keys.groups = count(part);
    keys.dim = geometry_.index_dim();
    keys.dtype = geometry_.index_dtype();
    return keys;
  }

 private:
  const Geometry& geometry_;
  const ConstTensor& pooled_;
  const std::int64_t groups_;
  std::unique_ptr<std::byte, FreeAligned> panels_;
  const std::byte* page_ = nullptr;
};

Status score_rows(const Geometry& geometry, const ConstTensor& queries, const ConstTensor& weights,
                  const ConstTensor& pooled, EngineHandle& engine, const Tensor& scores) {
  const std::shared_ptr<Executor> on = engine.executor();
  Packed packed(geometry, pooled);
  if (Status s = packed.pack(*on); !s.ok()) return s;
  FirstStatus fault;
  for_each_unit(*on, queries.shape[0] * packed.parts(), [&](std::int64_t unit, int) {
    const std::int64_t q = unit / packed.parts();
    const std::int64_t part = unit % packed.parts();
    const ConstTensor one_weights = weights.empty() ? ConstTensor{} : row_of(weights, q);
    auto* const to = reinterpret_cast<float*>(scores.at(q, packed.first(part)));
    if (Status s = score_groups(geometry, row_of(queries, q), one_weights, packed.keys(part),
                                {to, static_cast<std::size_t>(packed.count(part))});
        !s.ok()) {
      fault.report(unit, Status::error(s.code(), s.argument(), s.message(), {q, s.place().index}));
    }
  });
  return fault.status();
}

nb::object score(const Geometry& geometry, nb::handle queries, nb::handle pooled_keys, nb::handle head_weights,
                 const std::shared_ptr<EngineHandle>& engine) {
  const Input in = input(queries, "queries", 3);
  const Input keys = input(pooled_keys, "pooled_keys", 2);
  if (in.view.empty()) refuse("queries", "an array is needed");
  if (keys.view.empty()) refuse("pooled_keys", "an array is needed");
  const Input weights = input(head_weights, "head_weights", 2);
  if (!weights.view.empty())
    check_shape(weights.view, "head_weights", {in.view.shape[0], geometry.heads_per_selection()});
  const nb::object scores = empty_like_kind(queries, DType::kF32, {in.view.shape[0], keys.view.shape[0]});
  const Output result = output(scores, "scores");
  const Status status = [&] {
    const Unlocked unlocked;
    return score_rows(geometry, in.view, weights.view, keys.view, *engine_or_default(engine), result.view);
  }();
  check(status);
  return scores;
}

}  // namespace

void bind_score(nb::module_& module) {
  module.def("pool_keys", &pool, "geometry"_a, "raw"_a, "norm_weight"_a = nb::none(), nb::kw_only(),
             "first_position"_a = 0, "coordinates"_a = nb::none(), "out"_a = nb::none(),
             nb::sig("def pool_keys(geometry: Geometry, raw: seriatim._types.ArrayT, norm_weight: "
                     "seriatim._types.Floats | None = None, *, "
                     "first_position: int = 0, coordinates: seriatim._types.Array | None = None, out: "
                     "seriatim._types.ArrayT | None = None) "
                     "-> seriatim._types.ArrayT"),
             docs::kPoolKeys);
  module.def(
      "prepare_index_queries", &prepare, "geometry"_a, "raw"_a, "positions"_a, "norm_weight"_a = nb::none(),
      nb::kw_only(), "coordinates"_a = nb::none(), "out"_a = nb::none(),
      nb::sig("def prepare_index_queries(geometry: Geometry, raw: seriatim._types.ArrayT, positions: "
              "seriatim._types.Integers, "
              "norm_weight: seriatim._types.Floats | None = None, *, coordinates: seriatim._types.Array | None = None, "
              "out: seriatim._types.ArrayT | None = None) -> seriatim._types.ArrayT"),
      docs::kPrepare);
  module.def(
      "score", &score, "geometry"_a, "queries"_a, "pooled_keys"_a, "head_weights"_a = nb::none(), nb::kw_only(),
      "engine"_a = nb::none(),
      nb::sig("def score(geometry: Geometry, queries: seriatim._types.ArrayT, pooled_keys: seriatim._types.Array, "
              "head_weights: seriatim._types.Array | None = None, *, engine: Engine | None = None) -> "
              "seriatim._types.ArrayT"),
      docs::kScore);
}

}  // namespace seriatim::python
