#include "shard/token_pack.hpp"

#include <algorithm>
#include <cstring>

#include "base/admit.hpp"
#include "base/format.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kMessageBytes = std::int64_t{8} << 20;

// Dense rows of a view of rank 2 or 3.
void put_rows(const ConstTensor& view, std::int64_t first, std::int64_t count, std::vector<std::byte>& to) {
  const std::int64_t element = dtype_bytes(view.dtype);
  const std::int64_t heads = view.rank == 3 ? view.shape[1] : 1;
  const std::int64_t dims = view.rank == 3 ? view.shape[2] : view.shape[1];
  const std::int64_t stride = view.stride_bytes[view.rank == 3 ? 2 : 1];
  std::size_t at = to.size();
  to.resize(at + static_cast<std::size_t>(count * heads * dims * element));
  for (std::int64_t t = first; t < first + count; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::byte* from = view.rank == 3 ? view.at(t, h) : view.at(t);
      for (std::int64_t i = 0; i < dims; ++i, at += static_cast<std::size_t>(element))
        std::memcpy(to.data() + at, from + i * stride, static_cast<std::size_t>(element));
    }
  }
}

void put_bytes(const std::byte* from, std::int64_t bytes, std::vector<std::byte>& to) {
  to.insert(to.end(), from, from + bytes);
}

// A finished key, whose dims lie a panel's width apart.
void put_lane(const PooledKeys& pooled, std::int64_t group, std::vector<std::byte>& to) {
  const std::int64_t element = dtype_bytes(pooled.dtype);
  for (std::int64_t i = 0; i < pooled.dim; ++i)
    put_bytes(pooled.group(group) + i * element * PooledKeys::kPanelGroups, element, to);
}

}  // namespace

TokenPack::TokenPack(const Geometry& geometry, const CacheOptions& options)
    : geometry_(geometry), placed_(!geometry.rope_axes().empty()) {
  for (const LayerParameters& layer : options.layers) indexed_.push_back(layer.indexed);
}

std::int64_t TokenPack::vector_bytes(std::int64_t layer) const {
  const std::int64_t dims = geometry_.head_dim() + (geometry_.values_alias_keys() ? 0 : geometry_.value_dim());
  const std::int64_t index =
      indexed_[static_cast<std::size_t>(layer)] ? row_bytes(geometry_.index_dtype(), geometry_.index_dim()) : 0;
  return row_bytes(geometry_.kv_dtype(), geometry_.kv_heads() * dims) + index;
}

std::int64_t TokenPack::layer_bytes(std::int64_t layer) const {
  return vector_bytes(layer) + (placed_ ? static_cast<std::int64_t>(sizeof(Coordinates)) : 0);
}

std::int64_t TokenPack::token_bytes() const {
  std::int64_t bytes = placed_ ? static_cast<std::int64_t>(sizeof(Coordinates)) : 0;
  for (std::int64_t layer = 0; layer < layers(); ++layer) bytes += vector_bytes(layer);
  return bytes;
}

std::int64_t TokenPack::message_tokens() const { return std::max<std::int64_t>(kMessageBytes / token_bytes(), 1); }

void TokenPack::pack(const Snapshot& from, std::int64_t first, std::int64_t count, std::vector<std::byte>& to) const {
  const std::int64_t key = row_bytes(geometry_.kv_dtype(), geometry_.head_dim());
  const std::int64_t value = row_bytes(geometry_.kv_dtype(), geometry_.value_dim());
  const std::int64_t index = row_bytes(geometry_.index_dtype(), geometry_.index_dim());
  for (std::int64_t l = 0; l < layers(); ++l) {
    const LayerView layer = from.layer(l);
    for (std::int64_t p = first; p < first + count; ++p) {
      for (std::int64_t h = 0; h < geometry_.kv_heads(); ++h) put_bytes(layer.key(p, h), key, to);
    }
    for (std::int64_t p = first; !geometry_.values_alias_keys() && p < first + count; ++p) {
      for (std::int64_t h = 0; h < geometry_.kv_heads(); ++h) put_bytes(layer.value(p, h), value, to);
    }
    for (std::int64_t p = first; indexed_[static_cast<std::size_t>(l)] && p < first + count; ++p) {
      if (const std::byte* raw = layer.raw_index_key(p)) {
        put_bytes(raw, index, to);
      } else {
        put_lane(layer.pooled, p - layer.run.anchor, to);
      }
    }
  }
  for (std::int64_t p = first; placed_ && p < first + count; ++p) {
    const Coordinates at = from.layer(0).coordinates(p);
    put_bytes(reinterpret_cast<const std::byte*>(&at), sizeof at, to);
  }
}

void TokenPack::pack(const TokenBatch& from, std::int64_t layer, std::int64_t first, std::int64_t count,
                     std::vector<std::byte>& to) const {
  put_rows(from.keys, first, count, to);
  if (!geometry_.values_alias_keys()) put_rows(from.values, first, count, to);
  if (indexed_[static_cast<std::size_t>(layer)]) put_rows(from.index_keys, first, count, to);
  if (placed_) {
    put_bytes(reinterpret_cast<const std::byte*>(from.coordinates + first),
              count * static_cast<std::int64_t>(sizeof(Coordinates)), to);
  }
}

TokenBatch TokenPack::batch(const std::byte* vectors, std::int64_t layer, std::int64_t first_position,
                            std::int64_t count) const {
  TokenBatch batch;
  batch.first_position = first_position;
  const std::int64_t heads = geometry_.kv_heads();
  const DType stored = geometry_.kv_dtype();
  batch.keys = dense_view(static_cast<const void*>(vectors), stored, {count, heads, geometry_.head_dim()});
  vectors += row_bytes(stored, count * heads * geometry_.head_dim());
  if (!geometry_.values_alias_keys()) {
    batch.values = dense_view(static_cast<const void*>(vectors), stored, {count, heads, geometry_.value_dim()});
    vectors += row_bytes(stored, count * heads * geometry_.value_dim());
  }
  if (indexed_[static_cast<std::size_t>(layer)]) {
    batch.index_keys =
        dense_view(static_cast<const void*>(vectors), geometry_.index_dtype(), {count, geometry_.index_dim()});
  }
  return batch;
}

Status TokenPack::append(std::span<const std::byte> bytes, std::int64_t first_position, std::int64_t count,
                         Transaction& transaction, SequenceId sequence) const {
  std::vector<Coordinates> at(static_cast<std::size_t>(placed_ ? count : 0));
  if (placed_)
    std::memcpy(at.data(), &*(bytes.end() - static_cast<std::ptrdiff_t>(at.size() * sizeof at[0])),
                at.size() * sizeof at[0]);
  const std::byte* vectors = bytes.data();
  for (std::int64_t l = 0; l < layers(); vectors += count * vector_bytes(l), ++l) {
    TokenBatch one = batch(vectors, l, first_position, count);
    if (placed_) one.coordinates = at.data();
    if (Status s = transaction.append(sequence, l, one); !s.ok()) return s;
  }
  return {};
}

Status TokenPack::append_layer(std::span<const std::byte> bytes, std::int64_t layer, std::int64_t first_position,
                               std::int64_t count, Transaction& transaction, SequenceId sequence) const {
  TokenBatch one = batch(bytes.data(), layer, first_position, count);
  std::vector<Coordinates> at(static_cast<std::size_t>(placed_ ? count : 0));
  if (placed_) {
    std::memcpy(at.data(), bytes.data() + count * vector_bytes(layer), at.size() * sizeof at[0]);
    one.coordinates = at.data();
  }
  return transaction.append(sequence, layer, one);
}

Status TokenPack::admit(const TokenBatch& batch, std::int64_t layer, std::int64_t count) const {
  const std::int64_t heads = geometry_.kv_heads();
  if (Status s = admit_view("keys", batch.keys, geometry_.kv_dtype(), {count, heads, geometry_.head_dim()}); !s.ok())
    return s;
  const auto given = [](std::string_view name, const ConstTensor& view) -> Status {
    if (left_out(view)) return {};
    return Status::error(Code::kInvalidArgument, name, formatted("{}: given where there are none", name));
  };
  const Status values = geometry_.values_alias_keys() ? given("values", batch.values)
                                                      : admit_view("values", batch.values, geometry_.kv_dtype(),
                                                                   {count, heads, geometry_.value_dim()});
  if (!values.ok()) return values;
  const Status index =
      indexed_[static_cast<std::size_t>(layer)]
          ? admit_view("index_keys", batch.index_keys, geometry_.index_dtype(), {count, geometry_.index_dim()})
          : given("index_keys", batch.index_keys);
  if (!index.ok()) return index;
  if (!placed_ || count == 0 || batch.coordinates != nullptr) return {};
  return Status::error(Code::kInvalidArgument, "coordinates", "coordinates: the geometry names rope_axes");
}

TokenBatch some_tokens(const TokenBatch& batch, std::int64_t first, std::int64_t count) {
  const auto some = [&](ConstTensor view) {
    if (view.empty()) return view;
    view.data = view.at(first);
    view.shape[0] = count;
    return view;
  };
  TokenBatch part;
  part.first_position = batch.first_position + first;
  part.keys = some(batch.keys);
  part.values = some(batch.values);
  part.index_keys = some(batch.index_keys);
  if (batch.coordinates != nullptr) part.coordinates = batch.coordinates + first;
  return part;
}

}  // namespace seriatim
