// Tokens of all layers, or of one, as the bytes of a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "seriatim/cache.hpp"

namespace seriatim {

// Tokens one layer after the other: keys [T, kv_heads, head_dim], values, index keys [T, index_dim], what a layer lacks
// left out; coordinates [T] last, where the geometry has them.
class TokenPack {
 public:
  TokenPack(const Geometry& geometry, const CacheOptions& options);

  std::int64_t token_bytes() const;
  std::int64_t layer_bytes(std::int64_t layer) const;  // of one token, coordinates included
  std::int64_t layers() const { return static_cast<std::int64_t>(indexed_.size()); }
  // How many tokens one message takes.
  std::int64_t message_tokens() const;

  // All layers of positions first .. first + count - 1. Throws bad_alloc.
  void pack(const Snapshot& from, std::int64_t first, std::int64_t count, std::vector<std::byte>& to) const;
  // Rows first .. first + count - 1 of one layer's batch, which has been admitted.
  void pack(const TokenBatch& from, std::int64_t layer, std::int64_t first, std::int64_t count,
            std::vector<std::byte>& to) const;

  // Stages what was packed. Errors  as Transaction::append.
  Status append(std::span<const std::byte> bytes, std::int64_t first_position, std::int64_t count,
                Transaction& transaction, SequenceId sequence) const;
  Status append_layer(std::span<const std::byte> bytes, std::int64_t layer, std::int64_t first_position,
                      std::int64_t count, Transaction& transaction, SequenceId sequence) const;

  // That each of the batch's tensors has `count` tokens of this geometry, and none is missing.
  // Errors  InvalidArgument.
  Status admit(const TokenBatch& batch, std::int64_t layer, std::int64_t count) const;

 private:
  std::int64_t vector_bytes(std::int64_t layer) const;
  // A batch over packed vectors of one layer.
  TokenBatch batch(const std::byte* vectors, std::int64_t layer, std::int64_t first_position, std::int64_t count) const;

  Geometry geometry_;
  std::vector<bool> indexed_;
  bool placed_;  // tokens have coordinates
};

// Tokens of a batch, which has been admitted.
TokenBatch some_tokens(const TokenBatch& batch, std::int64_t first, std::int64_t count);

}  // namespace seriatim
