// A group's keys and values in a page: for each kv head its r keys, then its r values. What a row reads of a group lies
// together, and a group is one piece to fetch.
#pragma once

#include <cstdint>

#include "seriatim/geometry.hpp"

namespace seriatim {

struct GroupBlock {
  std::int64_t tokens = 0;       // r
  std::int64_t key_bytes = 0;    // of one key
  std::int64_t value_bytes = 0;  // of one value; that of the key where they alias
  std::int64_t values = 0;       // from a kv head's keys to its values; 0 where they alias
  std::int64_t head_bytes = 0;   // a kv head's keys and values
  std::int64_t bytes = 0;        // the whole group's

  // Of a layout of pages whose sizes fit.
  static GroupBlock of(const Geometry& geometry) { return of(geometry, geometry.group_tokens()); }
  // The same of any number of tokens.
  static GroupBlock of(const Geometry& geometry, std::int64_t tokens) {
    GroupBlock block;
    const bool alias = geometry.values_alias_keys();
    block.tokens = tokens;
    block.key_bytes = row_bytes(geometry.kv_dtype(), geometry.head_dim());
    block.value_bytes = alias ? block.key_bytes : row_bytes(geometry.kv_dtype(), geometry.value_dim());
    block.values = alias ? 0 : block.tokens * block.key_bytes;
    block.head_bytes = block.values + block.tokens * block.value_bytes;
    block.bytes = geometry.kv_heads() * block.head_bytes;
    return block;
  }

  // Where the key of a slot and a kv head lies from the first block on. Its value: `values` on, in steps of
  // value_bytes.
  std::int64_t key_at(std::int64_t slot, std::int64_t head) const {
    return slot / tokens * bytes + head * head_bytes + slot % tokens * key_bytes;
  }
  std::int64_t value_at(std::int64_t slot, std::int64_t head) const {
    return slot / tokens * bytes + head * head_bytes + values + slot % tokens * value_bytes;
  }
};

}  // namespace seriatim
