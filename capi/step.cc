#include "ask_scratch.hpp"
#include "base/checked.hpp"
#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"
#include "layer.hpp"

namespace seriatim::capi {

std::optional<std::int64_t> AskScratch::bytes_for(std::int64_t asks) {
  return checked_mul(asks, static_cast<std::int64_t>(sizeof(LayerView) + sizeof(PlanAsk) + sizeof(AttendAsk)));
}

}  // namespace seriatim::capi

using namespace seriatim;
using namespace seriatim::capi;

namespace {

// What a caller's executor did wrong outweighs what came of it.
Status after_work(seriatim_engine& engine, Status status) {
  if (engine.watched == nullptr) return status;
  Status fault = engine.watched->take_fault();
  return fault.ok() ? status : fault;
}

Status take_ask(const seriatim_plan_ask& given, const LayerView& layer, PlanAsk& taken) {
  taken.layer = &layer;
  if (Status s = take_tensor("index_queries", &given.index_queries, taken.queries.queries); !s.ok()) return s;
  if (Status s = take_tensor_or_null("index_head_weights", given.index_head_weights, taken.queries.head_weights);
      !s.ok())
    return s;
  return take_array("positions", given.positions, given.query_count, taken.queries.positions);
}

Status take_ask(const seriatim_attend_ask& given, const LayerView& layer, AttendAsk& taken) {
  taken.layer = &layer;
  if (Status s = take_tensor("queries", &given.queries, taken.queries.queries); !s.ok()) return s;
  if (Status s = take_array("positions", given.positions, given.query_count, taken.queries.positions); !s.ok())
    return s;
  return take_array("sinks", given.sinks, given.sink_count, taken.queries.sinks);
}

// One element of the caller's array, which may be of another version.
template <typename Given, typename Ask>
Status take_element(const Given* given, std::size_t struct_size, LayerView& layer, Ask& taken) {
  if (given->struct_size != struct_size) return invalid("asks", "a struct_size unlike the first one's");
  Given ask{};
  if (Status s = take_struct("asks", given, ask); !s.ok()) return s;
  auto view = take_layer(&ask.layer);
  if (!view.ok()) return view.status();
  layer = *view;
  return take_ask(ask, layer, taken);
}

// The caller's array, whose elements lie as far apart as the first one's size says.
template <typename Given, typename Ask>
Status take_asks(const Given* given, std::int64_t count, std::vector<LayerView>& layers, std::vector<Ask>& taken) {
  if (Status s = check_array("asks", given, count, sizeof(Given)); !s.ok()) return s;
  if (count == 0) {
    taken.clear();
    return {};
  }
  if (Status s = check_output_bytes("asks", given); !s.ok()) return in_ask(0, s);
  const std::size_t struct_size = given->struct_size;
  if (Status s = check_array("asks", given, count, struct_size); !s.ok()) return s;
  layers.resize(static_cast<std::size_t>(count));
  taken.assign(static_cast<std::size_t>(count), Ask());
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const auto* one = reinterpret_cast<const Given*>(bytes + i * struct_size);
    if (Status s = take_element(one, struct_size, layers[i], taken[i]); !s.ok())
      return in_ask(static_cast<std::int64_t>(i), s);
  }
  return {};
}

}  // namespace

void seriatim_plan_ask_init(seriatim_plan_ask* ask) {
  if (ask == nullptr) return;
  *ask = {};
  ask->struct_size = sizeof *ask;
}

void seriatim_attend_ask_init(seriatim_attend_ask* ask) {
  if (ask == nullptr) return;
  *ask = {};
  ask->struct_size = sizeof *ask;
}

seriatim_status seriatim_plan(seriatim_engine* engine, const seriatim_plan_ask* asks, std::int64_t ask_count,
                              std::int32_t nan_policy, const seriatim_rows* rows, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}, {"rows", rows}}); !s.ok()) return s;
    NanPolicy nan{};
    if (Status s = take_nan_policy(nan_policy, nan); !s.ok()) return s;
    AskScratch& scratch = engine->scratch;
    if (Status s = take_asks(asks, ask_count, scratch.layers, scratch.plans); !s.ok()) return s;
    return after_work(*engine, engine->engine.plan(scratch.plans, nan, {rows->positions, rows->stride, rows->counts}));
  });
}

seriatim_status seriatim_attend(seriatim_engine* engine, const seriatim_attend_ask* asks, std::int64_t ask_count,
                                const seriatim_const_rows* rows, const seriatim_tensor* output,
                                const seriatim_tensor* lse, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}, {"rows", rows}}); !s.ok()) return s;
    Tensor out;
    Tensor sums;
    if (Status s = take_tensor("output", output, out); !s.ok()) return s;
    if (Status s = take_tensor_or_null("lse", lse, sums); !s.ok()) return s;
    AskScratch& scratch = engine->scratch;
    if (Status s = take_asks(asks, ask_count, scratch.layers, scratch.attends); !s.ok()) return s;
    return after_work(*engine,
                      engine->engine.attend(scratch.attends, {rows->positions, rows->stride, rows->counts}, out, sums));
  });
}
