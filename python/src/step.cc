#include "step.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <vector>

#include "arrays.hpp"
#include "docs_step.hpp"
#include "errors.hpp"
#include "overlap.hpp"
#include "rows.hpp"
#include "unlocked.hpp"

using namespace nanobind::literals;

namespace seriatim::python {
namespace {

// One ask as Python gives it, with what keeps its arrays alive.
struct Ask {
  const LayerHandle* layer = nullptr;
  nb::handle first_array;  // results are of its kind
  Input queries;
  Input head_weights;
  std::vector<float> sinks;
  std::vector<std::int64_t> positions;
};

Ask ask_of(const LayerHandle& layer, nb::handle queries, nb::handle positions) {
  Ask ask;
  ask.layer = &layer;
  ask.first_array = queries;
  ask.queries = input(queries, "queries", 3);
  if (ask.queries.view.empty()) refuse("queries", "an array is needed");
  ask.positions = integers(positions, "positions");
  return ask;
}

// (layer, queries, positions) or (layer, queries, positions, more).
struct AskItems {
  nb::object layer, queries, positions, more;
};

std::vector<AskItems> items_of(nb::handle asks) {
  std::vector<AskItems> all;
  for (nb::handle one : nb::iter(asks)) {
    const nb::tuple items(one);
    if (items.size() != 3 && items.size() != 4) {
      refuse("asks", "ask " + std::to_string(all.size()) + " has " + std::to_string(items.size()) +
                         " items; (layer, queries, positions) or one more are needed");
    }
    if (!nb::isinstance<LayerHandle>(items[0]))
      refuse("asks", "the first item of ask " + std::to_string(all.size()) + " is no Layer");
    all.push_back({items[0], items[1], items[2], items.size() == 4 ? nb::object(items[3]) : nb::none()});
  }
  if (all.empty()) refuse("asks", "there is none");
  return all;
}

std::int64_t queries_of(const std::vector<Ask>& asks) {
  std::int64_t queries = 0;
  for (const Ask& ask : asks) queries += ask.queries.view.shape[0];
  return queries;
}

// Runs `call(views)` without the interpreter's lock.
template <typename Call>
void with_views(const std::vector<Ask>& asks, const Call& call) {
  std::vector<const LayerHandle*> layers;
  for (const Ask& ask : asks) layers.push_back(ask.layer);
  check([&] {
    const Unlocked unlocked;
    HeldLayers held;
    if (Status s = held.hold(layers); !s.ok()) return s;
    if (Status s = call(held); !s.ok()) return s;
    return held.check();
  }());
}

nb::object plan_asks(EngineHandle& engine, const std::vector<Ask>& asks, const std::string& nan, nb::handle out) {
  const NanPolicy policy = nan_policy(nan);
  std::vector<Part> read;
  for (const Ask& ask : asks) {
    read.push_back({"queries", ask.queries.view});
    read.push_back({"head_weights", ask.head_weights.view});
  }
  RowsOut rows = rows_out(out, asks[0].first_array, queries_of(asks), asks[0].layer->geometry().row_capacity(), read,
                          asks[0].layer->geometry().selections());
  with_views(asks, [&](const HeldLayers& held) {
    std::vector<PlanAsk> all;
    for (std::size_t i = 0; i < asks.size(); ++i)
      all.push_back({&held[i], {asks[i].queries.view, asks[i].head_weights.view, asks[i].positions}});
    return engine.with([&](Engine& e) { return e.plan(all, policy, rows.rows); });
  });
  return rows.object;
}

struct AttendResults {
  nb::handle dtype, out, lse;
  bool return_lse = false;
};

nb::object attend_asks(EngineHandle& engine, const std::vector<Ask>& asks, nb::handle rows,
                       const AttendResults& wanted) {
  const Geometry& geometry = asks[0].layer->geometry();
  const std::int64_t queries = queries_of(asks);
  const RowsIn given = rows_in(rows, queries, geometry.selections());
  std::vector<Part> read{{"rows", given.positions.view}, {"rows", given.counts.view}};
  for (const Ask& ask : asks) read.push_back({"queries", ask.queries.view});
  AttendOut result = attend_out(wanted.out, wanted.lse, wanted.return_lse, asks[0].first_array,
                                dtype_of(wanted.dtype, "dtype", asks[0].queries.view.dtype),
                                {queries, geometry.query_heads(), geometry.value_dim()}, read);
  with_views(asks, [&](const HeldLayers& held) {
    std::vector<AttendAsk> all;
    for (std::size_t i = 0; i < asks.size(); ++i)
      all.push_back({&held[i], {asks[i].queries.view, asks[i].positions, asks[i].sinks}});
    return engine.with([&](Engine& e) { return e.attend(all, given.rows, result.output.view, result.lse.view); });
  });
  return result.object();
}

nb::object engine_plan(EngineHandle& self, nb::handle given, const std::string& nan, nb::handle out) {
  const std::vector<AskItems> items = items_of(given);
  std::vector<Ask> asks;
  for (const AskItems& one : items) {
    asks.push_back(ask_of(nb::cast<const LayerHandle&>(one.layer), one.queries, one.positions));
    asks.back().head_weights = input(one.more, "head_weights", 2);
  }
  return plan_asks(self, asks, nan, out);
}

nb::object engine_attend(EngineHandle& self, nb::handle given, nb::handle rows, nb::handle dtype, nb::handle out,
                         nb::handle lse, bool return_lse) {
  const std::vector<AskItems> items = items_of(given);
  std::vector<Ask> asks;
  for (const AskItems& one : items) {
    asks.push_back(ask_of(nb::cast<const LayerHandle&>(one.layer), one.queries, one.positions));
    asks.back().sinks = floats(one.more, "sinks");
  }
  return attend_asks(self, asks, rows, {dtype, out, lse, return_lse});
}

}  // namespace

nb::object plan_layer(const LayerHandle& self, nb::handle queries, nb::handle positions, nb::handle head_weights,
                      const std::string& nan, const std::shared_ptr<EngineHandle>& engine, nb::handle out) {
  std::vector<Ask> asks;
  asks.push_back(ask_of(self, queries, positions));
  asks[0].head_weights = input(head_weights, "head_weights", 2);
  return plan_asks(*self.engine(engine), asks, nan, out);
}

nb::object attend_layer(const LayerHandle& self, nb::handle queries, nb::handle positions, nb::handle rows,
                        nb::handle sinks, nb::handle dtype, const std::shared_ptr<EngineHandle>& engine, nb::handle out,
                        nb::handle lse, bool return_lse) {
  std::vector<Ask> asks;
  asks.push_back(ask_of(self, queries, positions));
  asks[0].sinks = floats(sinks, "sinks");
  return attend_asks(*self.engine(engine), asks, rows, {dtype, out, lse, return_lse});
}

void bind_steps(nb::class_<EngineHandle>& engine) {
  engine
      .def(
          "plan", &engine_plan, "asks"_a, nb::kw_only(), "nan"_a = "refuse", "out"_a = nb::none(),
          nb::sig("def plan(self, asks: collections.abc.Iterable[tuple[typing.Any, ...]], *, nan: str = 'refuse', out: "
                  "tuple[seriatim._types.Array, seriatim._types.Array] | None = None) -> "
                  "seriatim._types.Rows[typing.Any]"),
          docs::kEnginePlan)
      .def("attend", &engine_attend, "asks"_a, "rows"_a, nb::kw_only(), "dtype"_a = nb::none(), "out"_a = nb::none(),
           "lse"_a = nb::none(), "return_lse"_a = false,
           nb::sig("def attend(self, asks: collections.abc.Iterable[tuple[typing.Any, ...]], rows: "
                   "tuple[seriatim._types.Array, seriatim._types.Array], *, dtype: object = None, out: "
                   "seriatim._types.Array | None = None, lse: seriatim._types.Array | None = None, return_lse: bool = "
                   "False) -> typing.Any"),
           docs::kEngineAttend);
}

}  // namespace seriatim::python
