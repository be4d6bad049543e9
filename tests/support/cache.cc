#include "support/cache.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/half.hpp"

namespace seriatim::cache_testing {
namespace {

enum Tensor : std::uint64_t { kKeys = 1, kValues = 2, kIndexKeys = 3, kCoordinates = 4 };

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A float in -1 .. 1 that no other element of any token is likely to have.
float element(TokenId token, std::int64_t layer, Tensor tensor, std::int64_t i) {
  const std::uint64_t place = static_cast<std::uint64_t>(layer) * 64 + tensor * 8;
  const std::uint64_t bits = mix(mix(token + 1) ^ mix(place) ^ mix(static_cast<std::uint64_t>(i) << 20));
  return static_cast<float>(static_cast<std::int64_t>(bits >> 40) - (1 << 23)) / static_cast<float>(1 << 23);
}

std::vector<std::byte> make_tensor(const std::vector<TokenId>& tokens, std::int64_t layer, Tensor tensor,
                                   std::int64_t row_elements, DType dtype) {
  std::vector<std::byte> bytes(tokens.size() * static_cast<std::size_t>(row_elements * dtype_bytes(dtype)));
  std::byte* to = bytes.data();
  for (const TokenId token : tokens) {
    for (std::int64_t i = 0; i < row_elements; ++i, to += dtype_bytes(dtype)) {
      store_element(to, dtype, element(token, layer, tensor, i));
    }
  }
  return bytes;
}

void put(std::vector<std::byte>& image, const void* from, std::int64_t bytes) {
  const std::size_t end = image.size();
  image.resize(end + static_cast<std::size_t>(bytes));
  std::memcpy(image.data() + end, from, static_cast<std::size_t>(bytes));
}

void put_run(std::vector<std::byte>& image, VisibleRun run, std::int64_t groups) {
  put(image, &run.anchor, sizeof run.anchor);
  put(image, &run.tokens, sizeof run.tokens);
  put(image, &groups, sizeof groups);
}

Coordinates plain_coordinates(const Geometry& geometry, TokenId token, std::int64_t position) {
  const auto p = static_cast<std::int32_t>(position);
  if (geometry.rope_axes().empty()) return {p, p, p};
  const std::uint64_t bits = mix(token ^ kCoordinates);
  return {static_cast<std::int32_t>(bits & 0xffff), static_cast<std::int32_t>((bits >> 16) & 0xffff),
          static_cast<std::int32_t>((bits >> 32) & 0xffff)};
}

// These are preconditions of a test or a fuzzer, not what it tests.
void require(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(status.message().size()), status.message().data());
  std::abort();
}

}  // namespace

Geometry admit(const GeometryOptions& options) {
  auto geometry = Geometry::admit(options);
  require(geometry.status(), "geometry");
  return std::move(*geometry);
}

CacheOptions cache_options(std::int64_t layers, std::int64_t capacity_tokens, std::int64_t page_tokens) {
  CacheOptions options;
  options.layers.resize(static_cast<std::size_t>(layers));
  for (std::size_t l = 1; l < options.layers.size(); ++l) {  // layer 0 takes the default, zeros
    for (std::int64_t i = 0; i < 8; ++i) {
      options.layers[l].index_norm_weight.push_back(element(l, 0, kIndexKeys, i) / 4);
    }
  }
  options.capacity_tokens = capacity_tokens;
  options.page_tokens = page_tokens;
  return options;
}

std::unique_ptr<Cache> make_cache(const Geometry& geometry, CacheOptions options) {
  auto cache = Cache::create(geometry, std::move(options));
  require(cache.status(), "cache");
  return std::move(*cache);
}

Batch make_batch(const Geometry& geometry, std::int64_t layer, std::int64_t first_position,
                 const std::vector<TokenId>& tokens, bool indexed, bool index_only) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t heads = geometry.kv_heads();
  Batch batch;
  batch.view.first_position = first_position;
  if (!index_only) {
    batch.keys = make_tensor(tokens, layer, kKeys, heads * geometry.head_dim(), geometry.kv_dtype());
    batch.view.keys =
        dense_view(std::as_const(batch.keys).data(), geometry.kv_dtype(), {count, heads, geometry.head_dim()});
  }
  if (!index_only && !geometry.values_alias_keys()) {
    batch.values = make_tensor(tokens, layer, kValues, heads * geometry.value_dim(), geometry.kv_dtype());
    batch.view.values =
        dense_view(std::as_const(batch.values).data(), geometry.kv_dtype(), {count, heads, geometry.value_dim()});
  }
  if (indexed) {
    batch.index_keys = make_tensor(tokens, layer, kIndexKeys, geometry.index_dim(), geometry.index_dtype());
    batch.view.index_keys =
        dense_view(std::as_const(batch.index_keys).data(), geometry.index_dtype(), {count, geometry.index_dim()});
  }
  if (!geometry.rope_axes().empty()) {
    for (const TokenId token : tokens) batch.coordinates.push_back(plain_coordinates(geometry, token, 0));
    batch.view.coordinates = batch.coordinates.data();
  }
  return batch;
}

std::vector<TokenId> ids(TokenId first, std::int64_t count) {
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(first + static_cast<TokenId>(i));
  return tokens;
}

Status try_append(Cache& cache, SequenceId sequence, const std::vector<TokenId>& tokens) {
  auto snapshot = cache.snapshot(sequence);
  if (!snapshot.ok()) return snapshot.status();
  const VisibleRun run = snapshot->run();
  auto transaction = cache.begin();
  if (!transaction.ok()) return transaction.status();
  for (std::int64_t l = 0; l < snapshot->layers(); ++l) {
    const LayerView view = snapshot->layer(l);
    const Batch batch =
        make_batch(cache.geometry(), l, run.anchor + run.tokens, tokens, view.indexed, view.key_offset_bytes < 0);
    if (Status s = transaction->append(sequence, l, batch.view); !s.ok()) return s;
  }
  return transaction->commit();
}

void append(Cache& cache, SequenceId sequence, const std::vector<TokenId>& tokens) {
  require(try_append(cache, sequence, tokens), "append");
}

float largest_pooled(const LayerView& view) {
  const std::int64_t bytes = dtype_bytes(view.pooled.dtype);
  float largest = 0.0f;
  for (std::int64_t g = 0; g < view.pooled.groups; ++g) {
    for (std::int64_t i = 0; i < view.pooled.dim; ++i) {
      const float magnitude =
          std::fabs(load_element(view.pooled.group(g) + i * PooledKeys::kPanelGroups * bytes, view.pooled.dtype));
      if (std::isnan(magnitude)) return magnitude;
      largest = std::max(largest, magnitude);
    }
  }
  return largest;
}

std::vector<std::byte> image(const LayerView& view) {
  const Geometry& geometry = *view.geometry;
  const std::int64_t kv_bytes = dtype_bytes(geometry.kv_dtype());
  const std::int64_t index_bytes = dtype_bytes(geometry.index_dtype());
  std::vector<std::byte> bytes;
  put_run(bytes, view.run, view.pooled.groups);
  for (std::int64_t p = view.run.anchor; p < view.run.anchor + view.run.tokens; ++p) {
    for (std::int64_t h = 0; h < geometry.kv_heads() && view.key_offset_bytes >= 0; ++h) {
      put(bytes, view.key(p, h), geometry.head_dim() * kv_bytes);
      put(bytes, view.value(p, h), geometry.value_dim() * kv_bytes);
    }
    if (view.raw_index_key(p) != nullptr) put(bytes, view.raw_index_key(p), geometry.index_dim() * index_bytes);
    const Coordinates at = view.coordinates(p);
    put(bytes, &at, sizeof at);
  }
  for (std::int64_t g = 0; g < view.pooled.groups; ++g) {
    for (std::int64_t i = 0; i < geometry.index_dim(); ++i) {
      put(bytes, view.pooled.group(g) + i * PooledKeys::kPanelGroups * index_bytes, index_bytes);
    }
  }
  return bytes;
}

std::vector<std::byte> image(const Snapshot& snapshot) {
  std::vector<std::byte> bytes;
  for (std::int64_t l = 0; l < snapshot.layers(); ++l) {
    const auto layer = image(snapshot.layer(l));
    bytes.insert(bytes.end(), layer.begin(), layer.end());
  }
  return bytes;
}

std::vector<std::byte> image(const Cache& cache, SequenceId sequence) {
  auto snapshot = cache.snapshot(sequence);
  require(snapshot.status(), "snapshot");
  return image(*snapshot);
}

namespace {

void put_plain_layer(std::vector<std::byte>& bytes, const Geometry& geometry, const LayerParameters& layer,
                     bool index_only, std::int64_t number, std::int64_t anchor, const std::vector<TokenId>& tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const Batch batch = make_batch(geometry, number, anchor, tokens, layer.indexed, index_only);
  const std::int64_t index_row = row_bytes(geometry.index_dtype(), geometry.index_dim());
  const std::int64_t groups = layer.indexed ? count / geometry.group_tokens() : 0;
  put_run(bytes, {anchor, count}, groups);
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t h = 0; h < geometry.kv_heads() && !index_only; ++h) {
      put(bytes, batch.view.keys.at(t, h), row_bytes(geometry.kv_dtype(), geometry.head_dim()));
      const ConstTensor& values = geometry.values_alias_keys() ? batch.view.keys : batch.view.values;
      put(bytes, values.at(t, h), row_bytes(geometry.kv_dtype(), geometry.value_dim()));
    }
    if (layer.indexed && geometry.pooling() != Pooling::kNone) put(bytes, batch.view.index_keys.at(t), index_row);
    const Coordinates at = plain_coordinates(geometry, tokens[static_cast<std::size_t>(t)], anchor + t);
    put(bytes, &at, sizeof at);
  }
  if (groups == 0) return;
  std::vector<float> weight = layer.index_norm_weight;
  weight.resize(static_cast<std::size_t>(geometry.index_dim()));
  std::vector<std::byte> pooled(static_cast<std::size_t>(groups * index_row));
  const Status status =
      pool_keys(geometry, dense_view(std::as_const(weight).data(), DType::kF32, {geometry.index_dim()}),
                batch.view.index_keys, anchor, batch.view.coordinates,
                dense_view(pooled.data(), geometry.index_dtype(), {groups, geometry.index_dim()}));
  require(status, "pool_keys");
  bytes.insert(bytes.end(), pooled.begin(), pooled.end());
}

}  // namespace

std::vector<std::byte> plain_image(const Geometry& geometry, const CacheOptions& options, std::int64_t anchor,
                                   const std::vector<TokenId>& tokens) {
  std::vector<std::byte> bytes;
  for (std::size_t l = 0; l < options.layers.size(); ++l) {
    put_plain_layer(bytes, geometry, options.layers[l], options.index_only, static_cast<std::int64_t>(l), anchor,
                    tokens);
  }
  return bytes;
}

}  // namespace seriatim::cache_testing
