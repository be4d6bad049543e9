// plan and attend over several ranks as Python calls them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "arrays.hpp"
#include "docs_shard.hpp"
#include "errors.hpp"
#include "rows.hpp"
#include "shard.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

Result<ShardedLayer> ShardedLayerHandle::view() const {
  if (!transaction) return snapshot->layer(layer);
  if (transaction->ended) return Status::error(Code::kInvalidArgument, "layer", "layer: its transaction has ended");
  return transaction->transaction.layer(sequence, layer);
}

namespace {

// One ask as Python gives it, with what keeps its arrays alive.
struct Ask {
  const ShardedLayerHandle* layer = nullptr;
  nb::object layer_object;
  nb::object first_array;
  Input queries;
  Input head_weights;
  std::vector<float> sinks;
  std::vector<std::int64_t> positions;
};

Ask ask_of(nb::handle layer, nb::handle queries, nb::handle positions) {
  Ask ask;
  if (!nb::isinstance<ShardedLayerHandle>(layer)) refuse("asks", "the first item of an ask is no ShardedLayer");
  ask.layer_object = nb::borrow(layer);
  ask.layer = &nb::cast<const ShardedLayerHandle&>(layer);
  ask.first_array = nb::borrow(queries);
  ask.queries = input(queries, "queries", 3);
  if (ask.queries.view.empty()) refuse("queries", "an array is needed");
  ask.positions = integers(positions, "positions");
  return ask;
}

// (layer, queries, positions), or one more item.
template <typename More>
std::vector<Ask> asks_of(nb::handle given, const More& more) {
  std::vector<Ask> asks;
  for (nb::handle one : nb::iter(given)) {
    const nb::tuple items(one);
    if (items.size() != 3 && items.size() != 4)
      refuse("asks", "ask " + std::to_string(asks.size()) + ": (layer, queries, positions) or one more are needed");
    asks.push_back(ask_of(items[0], items[1], items[2]));
    if (items.size() == 4) more(asks.back(), items[3]);
  }
  if (asks.empty()) refuse("asks", "there is none");
  return asks;
}

std::int64_t queries_of(const std::vector<Ask>& asks) {
  std::int64_t queries = 0;
  for (const Ask& ask : asks) queries += ask.queries.view.shape[0];
  return queries;
}

// Runs `call(layers)` in the group's turn.
template <typename Call>
void with_layers(GroupHandle& group, const std::vector<Ask>& asks, const Call& call) {
  for (const Ask& ask : asks)
    if (ask.layer->cache->group.get() != &group) refuse("asks", "a layer is of another group");
  check(in_turn(group, [&]() -> Status {
    std::vector<ShardedLayer> layers;
    for (const Ask& ask : asks) {
      auto view = ask.layer->view();
      if (!view.ok()) return view.status();
      layers.push_back(*std::move(view));
    }
    return call(layers);
  }));
}

nb::object plan(GroupHandle& group, const std::vector<Ask>& asks, const std::string& nan, nb::handle out) {
  const NanPolicy policy = nan_policy(nan);
  std::vector<Part> read;
  for (const Ask& ask : asks) {
    read.push_back({"queries", ask.queries.view});
    read.push_back({"head_weights", ask.head_weights.view});
  }
  const Geometry& geometry = asks[0].layer->cache->cache->geometry();
  RowsOut rows = rows_out(out, asks[0].first_array, queries_of(asks), geometry.row_capacity(), read);
  with_layers(group, asks, [&](const std::vector<ShardedLayer>& layers) {
    std::vector<ShardedPlanAsk> all;
    for (std::size_t i = 0; i < asks.size(); ++i)
      all.push_back({&layers[i], {asks[i].queries.view, asks[i].head_weights.view, asks[i].positions}});
    return group.engine.plan(all, policy, rows.rows);
  });
  return rows.object;
}

nb::object attend(GroupHandle& group, const std::vector<Ask>& asks, nb::handle rows, nb::handle dtype, nb::handle out,
                  nb::handle lse, bool return_lse) {
  const Geometry& geometry = asks[0].layer->cache->cache->geometry();
  const std::int64_t queries = queries_of(asks);
  const RowsIn given = rows_in(rows, queries);
  std::vector<Part> read{{"rows", given.positions.view}, {"rows", given.counts.view}};
  for (const Ask& ask : asks) read.push_back({"queries", ask.queries.view});
  AttendOut result =
      attend_out(out, lse, return_lse, asks[0].first_array, dtype_of(dtype, "dtype", asks[0].queries.view.dtype),
                 {queries, geometry.query_heads(), geometry.value_dim()}, read);
  with_layers(group, asks, [&](const std::vector<ShardedLayer>& layers) {
    std::vector<ShardedAttendAsk> all;
    for (std::size_t i = 0; i < asks.size(); ++i)
      all.push_back({&layers[i], {asks[i].queries.view, asks[i].positions, asks[i].sinks}});
    return group.engine.attend(all, given.rows, result.output.view, result.lse.view);
  });
  return result.object();
}

void take_weights(Ask& ask, nb::handle more) { ask.head_weights = input(more, "head_weights", 2); }
void take_sinks(Ask& ask, nb::handle more) { ask.sinks = floats(more, "sinks"); }

}  // namespace

void bind_sharded_steps(nb::class_<GroupHandle>& group, nb::class_<ShardedLayerHandle>& layer) {
  group
      .def(
          "plan",
          [](GroupHandle& self, nb::handle asks, const std::string& nan, nb::handle out) {
            return plan(self, asks_of(asks, take_weights), nan, out);
          },
          "asks"_a, nb::kw_only(), "nan"_a = "refuse", "out"_a = nb::none(),
          nb::sig("def plan(self, asks: collections.abc.Iterable[tuple[typing.Any, ...]], *, nan: str = 'refuse', out: "
                  "tuple[seriatim._types.Array, seriatim._types.Array] | None = None) -> "
                  "seriatim._types.Rows[typing.Any]"),
          docs::kGroupPlan)
      .def(
          "attend",
          [](GroupHandle& self, nb::handle asks, nb::handle rows, nb::handle dtype, nb::handle out, nb::handle lse,
             bool return_lse) { return attend(self, asks_of(asks, take_sinks), rows, dtype, out, lse, return_lse); },
          "asks"_a, "rows"_a, nb::kw_only(), "dtype"_a = nb::none(), "out"_a = nb::none(), "lse"_a = nb::none(),
          "return_lse"_a = false,
          nb::sig("def attend(self, asks: collections.abc.Iterable[tuple[typing.Any, ...]], rows: "
                  "tuple[seriatim._types.Array, seriatim._types.Array], *, dtype: object = None, out: "
                  "seriatim._types.Array | None = None, lse: seriatim._types.Array | None = None, return_lse: bool = "
                  "False) -> typing.Any"),
          docs::kGroupAttend);
  layer.def_prop_ro("tokens", [](const ShardedLayerHandle& self) {
    return value(in_turn(*self.cache->group, [&] { return self.view(); })).run.tokens;
  });
  layer.def_prop_ro("borders", [](const ShardedLayerHandle& self) {
    const ShardedLayer view = value(in_turn(*self.cache->group, [&] { return self.view(); }));
    nb::list borders;
    for (const std::int64_t border : view.borders) borders.append(border);
    return borders;
  });
  layer
      .def(
          "plan",
          [](nb::object self, nb::handle queries, nb::handle positions, nb::handle head_weights,
             const std::string& nan) {
            std::vector<Ask> asks;
            asks.push_back(ask_of(self, queries, positions));
            take_weights(asks[0], head_weights);
            return plan(*asks[0].layer->cache->group, asks, nan, nb::none());
          },
          "queries"_a, "positions"_a, "head_weights"_a = nb::none(), nb::kw_only(), "nan"_a = "refuse",
          nb::sig("def plan(self, queries: seriatim._types.Array, positions: seriatim._types.Integers, head_weights: "
                  "seriatim._types.Array | None = None, *, nan: str = 'refuse') -> "
                  "seriatim._types.Rows[typing.Any]"),
          docs::kShardedPlan)
      .def(
          "attend",
          [](nb::object self, nb::handle queries, nb::handle positions, nb::handle rows, nb::handle sinks,
             nb::handle dtype, bool return_lse) {
            std::vector<Ask> asks;
            asks.push_back(ask_of(self, queries, positions));
            take_sinks(asks[0], sinks);
            return attend(*asks[0].layer->cache->group, asks, rows, dtype, nb::none(), nb::none(), return_lse);
          },
          "queries"_a, "positions"_a, "rows"_a, "sinks"_a = nb::none(), nb::kw_only(), "dtype"_a = nb::none(),
          "return_lse"_a = false,
          nb::sig("def attend(self, queries: seriatim._types.Array, positions: seriatim._types.Integers, rows: "
                  "tuple[seriatim._types.Array, seriatim._types.Array], sinks: seriatim._types.Floats | None = None, "
                  "*, dtype: object = None, return_lse: bool = False) -> typing.Any"),
          docs::kShardedAttend);
}

}  // namespace seriatim::python
