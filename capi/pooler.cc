#include "asks.hpp"
#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

Status take_ask(const seriatim_pool_ask& given, PoolAsk& taken) {
  if (Status s = take_tensor("raw", &given.raw, taken.raw); !s.ok()) return s;
  if (Status s = take_tensor_or_null("coordinates", given.coordinates, taken.coordinates); !s.ok()) return s;
  if (Status s = take_tensor("panels", &given.panels, taken.panels); !s.ok()) return s;
  taken.run = {given.anchor, given.tokens};
  taken.first_slot = given.first_slot;
  taken.first_group = given.first_group;
  return {};
}

Status take_asks(const seriatim_pool_ask* given, std::int64_t count, std::vector<PoolAsk>& taken) {
  AskArray<seriatim_pool_ask> asks;
  if (Status s = asks.open(given, count); !s.ok()) return s;
  taken.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < taken.size(); ++i) {
    seriatim_pool_ask ask{};
    Status s = asks.take(i, ask);
    if (s.ok()) s = take_ask(ask, taken[i]);
    if (!s.ok()) return in_ask(static_cast<std::int64_t>(i), s);
  }
  return {};
}

// The library says which ask as a row.
Status of_asks(const Status& status) {
  if (status.ok()) return status;
  const Place place = status.place();
  return Status::error(status.code(), status.argument(), status.message(), {-1, place.index, place.row});
}

}  // namespace

void seriatim_pool_ask_init(seriatim_pool_ask* ask) {
  if (ask == nullptr) return;
  *ask = {};
  ask->struct_size = sizeof *ask;
}

seriatim_status seriatim_pooler_create(const seriatim_geometry* geometry, const float* norm_weight,
                                       std::int64_t norm_weight_count, seriatim_executor* executor,
                                       seriatim_pooler** pooler, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}, {"pooler", pooler}}); !s.ok()) return s;
    std::span<const float> weight;
    if (Status s = take_array("norm_weight", norm_weight, norm_weight_count, weight); !s.ok()) return s;
    seriatim_runner runner = executor == nullptr ? seriatim_runner() : seriatim_runner(*executor);
    auto made = PanelPooler::create(geometry->geometry, weight, runner.runs());
    if (!made.ok()) return made.status();
    *pooler = new seriatim_pooler{std::move(runner), std::move(*made)};
    return {};
  });
}

seriatim_status seriatim_pooler_pool(seriatim_pooler* pooler, const seriatim_pool_ask* asks, std::int64_t ask_count,
                                     float* max_abs, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"pooler", pooler}}); !s.ok()) return s;
    std::vector<PoolAsk> taken;
    if (Status s = take_asks(asks, ask_count, taken); !s.ok()) return s;
    const auto largest = pooler->pooler.pool(taken);
    if (Status s = pooler->runner.after_work(of_asks(largest.status())); !s.ok()) return s;
    if (max_abs != nullptr) *max_abs = *largest;
    return {};
  });
}

void seriatim_pooler_destroy(seriatim_pooler* pooler) { delete pooler; }
