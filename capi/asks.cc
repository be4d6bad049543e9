#include "asks.hpp"

#include "base/checked.hpp"
#include "convert.hpp"
#include "layer.hpp"

namespace seriatim::capi {
namespace {

Status take_queries(const seriatim_plan_ask& given, IndexQueries& taken) {
  if (Status s = take_tensor("index_queries", &given.index_queries, taken.queries); !s.ok()) return s;
  if (Status s = take_tensor_or_null("index_head_weights", given.index_head_weights, taken.head_weights); !s.ok())
    return s;
  return take_array("positions", given.positions, given.query_count, taken.positions);
}

Status take_queries(const seriatim_attend_ask& given, AttendQueries& taken) {
  if (Status s = take_tensor("queries", &given.queries, taken.queries); !s.ok()) return s;
  if (Status s = take_array("positions", given.positions, given.query_count, taken.positions); !s.ok()) return s;
  return take_array("sinks", given.sinks, given.sink_count, taken.sinks);
}

template <typename Given, typename Ask>
Status take_all(const Given* given, std::int64_t count, std::vector<LayerView>& layers, std::vector<Ask>& taken) {
  taken.clear();
  AskArray<Given> asks;
  if (Status s = asks.open(given, count); !s.ok()) return s;
  layers.resize(static_cast<std::size_t>(count));
  taken.resize(static_cast<std::size_t>(count));
  const auto take_one = [&](std::size_t i) -> Status {
    Given ask{};
    if (Status s = asks.take(i, ask); !s.ok()) return s;
    const auto view = take_layer(&ask.layer);
    if (!view.ok()) return view.status();
    layers[i] = *view;
    taken[i].layer = &layers[i];
    return take_queries(ask, taken[i].queries);
  };
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (Status s = take_one(i); !s.ok()) return in_ask(static_cast<std::int64_t>(i), s);
  }
  return {};
}

}  // namespace

void Asks::reserve(std::int64_t count) {
  layers.reserve(static_cast<std::size_t>(count));
  plans.reserve(static_cast<std::size_t>(count));
  attends.reserve(static_cast<std::size_t>(count));
}

std::int64_t Asks::bytes() const {
  return static_cast<std::int64_t>(layers.capacity() * sizeof(LayerView) + plans.capacity() * sizeof(PlanAsk) +
                                   attends.capacity() * sizeof(AttendAsk));
}

std::optional<std::int64_t> Asks::bytes_for(std::int64_t count) {
  return checked_mul(count, static_cast<std::int64_t>(sizeof(LayerView) + sizeof(PlanAsk) + sizeof(AttendAsk)));
}

Status Asks::take(const seriatim_plan_ask* given, std::int64_t count) { return take_all(given, count, layers, plans); }

Status Asks::take(const seriatim_attend_ask* given, std::int64_t count) {
  return take_all(given, count, layers, attends);
}

}  // namespace seriatim::capi
