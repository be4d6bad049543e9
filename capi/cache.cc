#include "seriatim/cache.hpp"

#include "cache_options.hpp"
#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

constexpr std::int64_t kMostLayers = std::int64_t{1} << 20;

Status take_layers(const seriatim_cache_options& from, std::vector<LayerParameters>& to) {
  if (from.layer_count < 1 || from.layer_count > kMostLayers) return invalid("layer_count", "not in 1..2^20");
  to.assign(static_cast<std::size_t>(from.layer_count), LayerParameters());
  if (from.layers == nullptr) return {};
  for (std::size_t l = 0; l < to.size(); ++l) {
    const seriatim_layer_options& layer = from.layers[l];
    std::span<const float> weight;
    if (Status s = take_array("index_norm_weight", layer.index_norm_weight, layer.index_norm_weight_count, weight);
        !s.ok())
      return s;
    if (Status s = take_flag("indexed", layer.indexed, to[l].indexed); !s.ok()) return s;
    if (Status s = check_reserved("layers", layer.reserved); !s.ok()) return s;
    if (layer.index_norm_weight_count > Geometry::kMaxExtent)
      return invalid("index_norm_weight", "more entries than there can be dims");
    to[l].index_norm_weight.assign(weight.begin(), weight.end());
  }
  return {};
}

Status take_options(const seriatim_cache_options& from, CacheOptions& to) {
  if (Status s = take_layers(from, to.layers); !s.ok()) return s;
  if (Status s = take_flag("reserve", from.reserve, to.reserve); !s.ok()) return s;
  if (Status s = take_flag("index_only", from.index_only, to.index_only); !s.ok()) return s;
  if (Status s = take_kernels(from.kernels, to.kernels); !s.ok()) return s;
  to.capacity_tokens = from.capacity_tokens;
  to.capacity_bytes = from.capacity_bytes;
  to.page_tokens = from.page_tokens;
  to.allocator = from.allocator == nullptr ? nullptr : from.allocator->allocator.get();
  return {};
}

}  // namespace

Status seriatim::capi::take_cache_options(const seriatim_cache_options* given, CacheOptions& taken) {
  seriatim_cache_options known;
  seriatim_cache_options_init(&known);
  if (Status s = take_struct("options", given, known); !s.ok()) return s;
  return take_options(known, taken);
}

void seriatim_cache_options_init(seriatim_cache_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
  options->layer_count = 1;
}

void seriatim_cache_bytes_init(seriatim_cache_bytes* bytes) {
  if (bytes == nullptr) return;
  *bytes = {};
  bytes->struct_size = sizeof *bytes;
}

seriatim_status seriatim_cache_create(const seriatim_geometry* geometry, const seriatim_cache_options* options,
                                      seriatim_cache** cache, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}, {"cache", cache}}); !s.ok()) return s;
    CacheOptions wanted;
    if (Status s = take_cache_options(options, wanted); !s.ok()) return s;
    auto handle = std::make_unique<seriatim_cache>();
    if (wanted.allocator != nullptr) handle->allocator = options->allocator->allocator;
    if (Status s = give(Cache::create(geometry->geometry, std::move(wanted)), &handle->cache); !s.ok()) return s;
    *cache = handle.release();
    return {};
  });
}

void seriatim_cache_destroy(seriatim_cache* cache) { delete cache; }

seriatim_status seriatim_cache_get_bytes(const seriatim_cache* cache, seriatim_cache_bytes* bytes,
                                         seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}}); !s.ok()) return s;
    if (Status s = check_output_bytes("bytes", bytes); !s.ok()) return s;
    const CacheBytes held = cache->cache->bytes();
    give_struct(bytes, seriatim_cache_bytes{0, held.keys_values, held.raw_index_keys, held.pooled_keys,
                                            held.coordinates, held.free_pages, held.mapped, held.tables});
    return {};
  });
}

seriatim_status seriatim_cache_trim(seriatim_cache* cache, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}}); !s.ok()) return s;
    cache->cache->trim();
    return {};
  });
}

seriatim_status seriatim_cache_add(seriatim_cache* cache, std::int64_t anchor, std::int64_t* sequence,
                                   seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}, {"sequence", sequence}}); !s.ok()) return s;
    return give(cache->cache->add(anchor), sequence);
  });
}

seriatim_status seriatim_cache_remove(seriatim_cache* cache, std::int64_t sequence, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}}); !s.ok()) return s;
    return cache->cache->remove(sequence);
  });
}

seriatim_status seriatim_cache_reset(seriatim_cache* cache, std::int64_t sequence, std::int64_t anchor,
                                     seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}}); !s.ok()) return s;
    return cache->cache->reset(sequence, anchor);
  });
}

seriatim_status seriatim_cache_truncate(seriatim_cache* cache, std::int64_t sequence, std::int64_t tokens,
                                        seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}}); !s.ok()) return s;
    return cache->cache->truncate(sequence, tokens);
  });
}

seriatim_status seriatim_cache_evict_prefix(seriatim_cache* cache, std::int64_t sequence, std::int64_t tokens,
                                            seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}}); !s.ok()) return s;
    return cache->cache->evict_prefix(sequence, tokens);
  });
}

seriatim_status seriatim_cache_fork(seriatim_cache* cache, std::int64_t sequence, std::int64_t* forked,
                                    seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}, {"forked", forked}}); !s.ok()) return s;
    return give(cache->cache->fork(sequence), forked);
  });
}

seriatim_status seriatim_cache_copy(seriatim_cache* cache, std::int64_t source, std::int64_t first_position,
                                    std::int64_t tokens, std::int64_t destination, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"cache", cache}}); !s.ok()) return s;
    return cache->cache->copy(source, first_position, tokens, destination);
  });
}
