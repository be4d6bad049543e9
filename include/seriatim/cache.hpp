// Room 6, cache: positions -> slots. Keys, values, raw index keys and pooled keys of many sequences in one paged store.
//
// Invariants (tested; docs/design.md tells the life of a token)
//   1. The four kinds of state of a token move together: a public state has all of them for every layer, or none.
//   2. A sequence is a run of consecutive positions from its anchor to its frontier. There are no holes.
//   3. Public state changes only by one swap, at the end of a call that succeeded. Any failure leaves it as it was.
//   4. A published slot is never written again while anything else holds its page.
//   5. After any calls the state equals that of a fresh cache fed the surviving tokens, bit for bit.
// Threads  one writer and any number of readers: a Snapshot is immutable and stays valid while the sequence goes on.
// Source   contract section 7.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

using SequenceId = std::int64_t;

// One layer of one sequence as the later rooms read it. A view: valid while its Snapshot lives.
// A token page holds, per layer, keys [kv_heads][page_tokens][head_dim], values [kv_heads][page_tokens][value_dim] (or
// nothing, when they alias the keys) and raw index keys [page_tokens][index_dim], each block 64-byte aligned.
struct LayerView {
  const Geometry* geometry = nullptr;
  VisibleRun run;  // every token the sequence holds
  const std::byte* const* pages = nullptr;
  std::int64_t page_tokens = 0;
  std::int64_t first_slot = 0;  // slot of the anchor in the first page
  std::int64_t key_offset_bytes = 0;
  std::int64_t value_offset_bytes = 0;
  std::int64_t raw_offset_bytes = 0;
  PooledKeys pooled;  // all complete groups of `run`

  // Addresses of one token's vectors. `position` lies in `run`.
  const std::byte* key(std::int64_t position, std::int64_t kv_head) const;
  const std::byte* value(std::int64_t position, std::int64_t kv_head) const;
  const std::byte* raw_index_key(std::int64_t position) const;

  // The pooled keys that a query at `position` may see: the complete groups of anchor .. position.
  PooledKeys pooled_up_to(std::int64_t position) const;
};

// Tokens for one layer. All tensors have the same T; values are absent (empty) exactly when they alias the keys.
struct TokenBatch {
  std::int64_t first_position = 0;  // must be the sequence's frontier
  ConstTensor keys;                 // [T, kv_heads, head_dim] in kv_dtype
  ConstTensor values;               // [T, kv_heads, value_dim] in kv_dtype
  ConstTensor index_keys;           // [T, index_dim] in index_dtype, raw (or finished: pooling none)
  const Coordinates* coordinates = nullptr;  // [T]; needed exactly when the geometry names rope_axes
};

struct LayerParameters {
  std::vector<float> index_norm_weight;  // w of (1 + w), [index_dim]; empty: zeros
};

struct CacheOptions {
  std::vector<LayerParameters> layers{1};
  std::int64_t capacity_tokens = 0;  // over all sequences, in whole pages; shared pages count once
  std::int64_t page_tokens = 0;      // 0: the smallest multiple of 16 groups that is at least 256 tokens
};

// Bytes held, by owner. The sum is exactly what the cache's allocator has handed out for pages.
struct CacheBytes {
  std::int64_t keys_values = 0;
  std::int64_t raw_index_keys = 0;
  std::int64_t pooled_keys = 0;
  std::int64_t tables = 0;  // page tables, coordinates and other bookkeeping of sequences
  std::int64_t total() const { return keys_values + raw_index_keys + pooled_keys + tables; }
};

class Cache;

// An immutable state of one sequence.
class Snapshot {
 public:
  VisibleRun run() const;
  std::int64_t layers() const;
  LayerView layer(std::int64_t layer) const;  // `layer` below layers()

 private:
  friend class Cache;
  struct State;
  std::shared_ptr<const State> state_;
};

// Staged appends to one or more sequences, published together or not at all.
class Transaction {
 public:
  Transaction(Transaction&&) noexcept;
  Transaction& operator=(Transaction&&) noexcept;
  ~Transaction();  // rolls back what was not committed

  // Stages tokens of one layer. Call once or more per layer; all layers must reach the same frontier before commit.
  // Errors  NotFound: sequence. InvalidArgument: layer, shapes, strides, dtypes. NotContiguous: first_position is not
  //         the staged frontier of that layer. NotFinite: row = token, index = element. Capacity. OutOfMemory.
  //         After an error nothing of this call is staged; the call can be repeated or the transaction dropped.
  Status append(SequenceId sequence, std::int64_t layer, const TokenBatch& tokens);

  // The staged state, to be scored and attended before the commit (an engine needs its new tokens at once).
  // Errors  NotFound.
  Result<LayerView> layer(SequenceId sequence, std::int64_t layer) const;

  // Publishes everything. Errors  InvalidArgument: layers of a sequence at different frontiers (row = sequence, index =
  // layer); the transaction stays open.
  Status commit();
  // Publishes only the first `tokens` staged tokens of each sequence (speculative decoding keeps a prefix).
  Status commit_prefix(std::int64_t tokens);
  void rollback();

 private:
  friend class Cache;
  struct Staged;
  explicit Transaction(std::unique_ptr<Staged> staged);
  std::unique_ptr<Staged> staged_;
};

class Cache {
 public:
  // Errors  InvalidArgument: options. Overflow: a page whose bytes do not fit. OutOfMemory.
  static Result<std::unique_ptr<Cache>> create(const Geometry& geometry, CacheOptions options);
  ~Cache();

  const Geometry& geometry() const;

  // A new, empty sequence whose first token will have position `anchor`.
  Result<SequenceId> add(std::int64_t anchor = 0);
  // Errors of the following  NotFound; others as named.
  Status remove(SequenceId sequence);
  Status reset(SequenceId sequence, std::int64_t anchor = 0);
  // Keeps the first `tokens` tokens. InvalidArgument: more than there are.
  Status truncate(SequenceId sequence, std::int64_t tokens);

  Result<Transaction> begin();
  Result<Snapshot> snapshot(SequenceId sequence) const;

  CacheBytes bytes() const;

 private:
  struct Impl;
  explicit Cache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace seriatim
