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

// One element of the caller's array, which may be of another version.
template <typename Given, typename Ask>
Status take_element(const Given* given, std::size_t struct_size, LayerView& layer, Ask& taken) {
  if (given->struct_size != struct_size) return invalid("asks", "a struct_size unlike the first one's");
  Given ask{};
  if (Status s = take_struct("asks", given, ask); !s.ok()) return s;
  const auto view = take_layer(&ask.layer);
  if (!view.ok()) return view.status();
  layer = *view;
  taken.layer = &layer;
  return take_queries(ask, taken.queries);
}

// The caller's array, whose elements lie as far apart as the first one's size says.
template <typename Given, typename Ask>
Status take_all(const Given* given, std::int64_t count, std::vector<LayerView>& layers, std::vector<Ask>& taken) {
  taken.clear();
  if (Status s = check_array("asks", given, count, sizeof(Given)); !s.ok() || count == 0) return s;
  if (Status s = check_output_bytes("asks", given); !s.ok()) return in_ask(0, s);
  const std::size_t struct_size = given->struct_size;
  if (Status s = check_array("asks", given, count, struct_size); !s.ok()) return s;
  layers.resize(static_cast<std::size_t>(count));
  taken.resize(static_cast<std::size_t>(count));
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const auto* one = reinterpret_cast<const Given*>(bytes + i * struct_size);
    if (Status s = take_element(one, struct_size, layers[i], taken[i]); !s.ok())
      return in_ask(static_cast<std::int64_t>(i), s);
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
