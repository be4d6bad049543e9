#include "layer.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"

namespace seriatim::capi {

Result<LayerView> take_layer(const seriatim_layer* given) {
  if (given == nullptr) return invalid("layer", "NULL");
  const int handles = (given->snapshot != nullptr) + (given->transaction != nullptr) + (given->borrowed != nullptr);
  if (handles != 1) return invalid("layer", "not exactly one of snapshot, transaction and borrowed");
  if (given->borrowed != nullptr) return given->borrowed->layer.view();
  if (given->transaction != nullptr) return given->transaction->transaction.layer(given->sequence, given->layer);
  const Snapshot& snapshot = given->snapshot->snapshot;
  if (given->layer < 0 || given->layer >= snapshot.layers()) {
    return Status::error(Code::kInvalidArgument, "layer",
                         formatted("layer: {} is not in 0..{}", given->layer, snapshot.layers() - 1),
                         {-1, given->layer});
  }
  return snapshot.layer(given->layer);
}

}  // namespace seriatim::capi

using namespace seriatim;
using namespace seriatim::capi;

seriatim_status seriatim_cache_snapshot(const seriatim_cache* cache, std::int64_t sequence,
                                        seriatim_snapshot** snapshot, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}, {"snapshot", snapshot}}); !s.ok()) return s;
    auto taken = cache->cache->snapshot(sequence);
    if (!taken.ok()) return taken.status();
    *snapshot = new seriatim_snapshot{cache->allocator, std::move(*taken)};
    return {};
  });
}

seriatim_status seriatim_snapshot_copy(const seriatim_snapshot* snapshot, seriatim_snapshot** copy,
                                       seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"snapshot", snapshot}, {"copy", copy}}); !s.ok()) return s;
    *copy = new seriatim_snapshot(*snapshot);
    return {};
  });
}

seriatim_status seriatim_snapshot_check(const seriatim_snapshot* snapshot, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"snapshot", snapshot}}); !s.ok()) return s;
    return snapshot->snapshot.check();
  });
}

void seriatim_snapshot_destroy(seriatim_snapshot* snapshot) { delete snapshot; }

seriatim_status seriatim_layer_run(const seriatim_layer* layer, std::int64_t* anchor, std::int64_t* tokens,
                                   seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"anchor", anchor}, {"tokens", tokens}}); !s.ok()) return s;
    const auto view = take_layer(layer);
    if (!view.ok()) return view.status();
    *anchor = view->run.anchor;
    *tokens = view->run.tokens;
    return {};
  });
}

seriatim_status seriatim_layer_token(const seriatim_layer* layer, std::int64_t position, std::int64_t kv_head,
                                     seriatim_token* token, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"token", token}}); !s.ok()) return s;
    const auto view = take_layer(layer);
    if (!view.ok()) return view.status();
    if (position < view->run.anchor || position - view->run.anchor >= view->run.tokens) {
      return invalid("position",
                     formatted("{} is not among the {} from {}", position, view->run.tokens, view->run.anchor).c_str());
    }
    if (kv_head < 0 || kv_head >= view->geometry->kv_heads()) {
      return invalid("kv_head", formatted("{} is not in 0..{}", kv_head, view->geometry->kv_heads() - 1).c_str());
    }
    seriatim_token found{};
    if (view->key_offset_bytes >= 0) {
      found.key = view->key(position, kv_head);
      found.value = view->value(position, kv_head);
    }
    found.raw_index_key = view->raw_index_key(position);
    std::ranges::copy(view->coordinates(position), found.coordinates);
    *token = found;
    return {};
  });
}
