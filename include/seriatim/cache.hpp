// Cache: positions -> slots. Keys, values, raw index keys and pooled keys of many sequences in one paged store.
//
// Invariants (tested; docs/cache.md tells the life of a token)
//   1. The four kinds of state of a token move together: a public state has all of them for every layer, or none.
//   2. A sequence is a run of consecutive positions from its anchor to its frontier. There are no holes.
//   3. Public state changes only by one swap, at the end of a call that succeeded. Any failure leaves it as it was.
//   4. A published slot is never written again while anything else holds its page.
//   5. After any calls the state equals that of a fresh cache fed the surviving tokens, bit for bit.
// Threads  any number of readers beside the writer: a Snapshot is immutable and stays valid while the sequence goes on,
//          even after the cache is gone. Writers take turns (calls that change the cache or a transaction lock), but a
//          transaction is one engine's step: there is at most one open.
// Source   contract section 7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/layer_view.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

using SequenceId = std::int64_t;

namespace file {
class FileCalls;
}

// Where pages come from. Two sizes are asked for, both multiples of 64: token pages and pooled pages.
// Threads  the cache may call from any thread that writes or drops the last snapshot, one call at a time per size.
class PageAllocator {
 public:
  virtual ~PageAllocator() = default;
  // 64-byte aligned memory that nobody else uses, or null. What lies in it does not matter.
  virtual std::byte* allocate(std::int64_t bytes) = 0;
  virtual void release(std::byte* memory, std::int64_t bytes) noexcept = 0;
};

// The process's heap. Large pages lie together in slabs of 32 MiB of address space, for which the system is asked for
// huge pages; memory is taken as it is touched, and a slab goes back when its last page does. Lives for ever.
// Threads  any.
PageAllocator& heap_page_allocator();

// One region that the caller supplies: a mapping of huge pages, memory of a device, shared memory.
class RegionAllocator final : public PageAllocator {
 public:
  // `region` must outlive every cache that uses this. What its start lacks to 64-byte alignment is left unused.
  explicit RegionAllocator(std::span<std::byte> region);
  ~RegionAllocator() override;
  std::byte* allocate(std::int64_t bytes) override;
  void release(std::byte* memory, std::int64_t bytes) noexcept override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Tokens for one layer. All tensors have the same T; values are absent (empty) exactly when they alias the keys, keys
// and values in an index store.
struct TokenBatch {
  std::int64_t first_position = 0;  // must be the sequence's frontier
  ConstTensor keys;                 // [T, kv_heads, head_dim] in kv_dtype
  ConstTensor values;               // [T, kv_heads, value_dim] in kv_dtype
  ConstTensor index_keys;           // [T, index_dim] in index_dtype, raw (or finished: pooling none); empty exactly
                                    // when the layer has no index
  const Coordinates* coordinates = nullptr;  // [T], none negative, equal in all layers; needed exactly when the
                                             // geometry names rope_axes
};

struct LayerParameters {
  std::vector<float> index_norm_weight;  // w of (1 + w), [index_dim]; empty: zeros
  bool indexed = true;                   // false: attends rows that another layer planned, keeps keys and values alone
};

struct CacheOptions {
  std::vector<LayerParameters> layers{1};
  std::int64_t capacity_tokens = 0;     // over all sequences, rounded up to whole pages; shared pages count once
  std::int64_t capacity_bytes = 0;      // instead of capacity_tokens: the most that pages may take, bookkeeping apart
  bool index_only = false;              // an index store, for keys and values that somebody else keeps (borrow.hpp)
  bool reserve = false;                 // take all pages' memory at once, so that no later call can run out of it
  std::int64_t page_tokens = 0;         // a multiple of 16 groups; 0: the smallest that is at least 256 tokens
  PageAllocator* allocator = nullptr;   // null: the heap; must outlive the cache and its snapshots
  Kernels kernels = default_kernels();  // all give the same bits
};

// Bytes held, by owner; a page shared by several sequences or snapshots counts once. Pages' sum is exactly what the
// allocator has handed out.
struct CacheBytes {
  std::int64_t keys_values = 0;
  std::int64_t raw_index_keys = 0;
  std::int64_t pooled_keys = 0;
  std::int64_t coordinates = 0;
  std::int64_t free_pages = 0;  // held for reuse
  std::int64_t mapped = 0;      // of files, not the allocator's: in neither sum
  std::int64_t tables = 0;      // page tables and other bookkeeping of sequences
  std::int64_t pages() const { return keys_values + raw_index_keys + pooled_keys + coordinates + free_pages; }
  std::int64_t total() const { return pages() + tables; }
};

class Cache;
struct SequenceState;

// An immutable state of one sequence. Copies share it.
class Snapshot {
 public:
  Snapshot(const Snapshot& other);
  Snapshot(Snapshot&& other) noexcept;
  Snapshot& operator=(Snapshot other) noexcept;
  ~Snapshot();

  VisibleRun run() const;
  std::int64_t layers() const;
  LayerView layer(std::int64_t layer) const;  // `layer` below layers()

  // The published state that a valid view of a Cache's layer shows, or that its staged tokens go on from.
  static Snapshot of(const LayerView& view);  // `view.state` is not null

  // Whether everything read so far through this snapshot's views was there. Ask after reading and before using the
  // result when the sequence may have been restored by mapping.
  // Errors  Io: the mapped file was cut short; what was read past its end is zeros.
  Status check() const;

 private:
  friend class Cache;
  explicit Snapshot(const SequenceState* state);
  const SequenceState* state_;
};

// Staged appends to one or more sequences, published together or not at all. A sequence that the open transaction has
// touched cannot be changed otherwise until it ends. A moved-from transaction has ended.
class Transaction {
 public:
  Transaction(Transaction&&) noexcept;
  Transaction& operator=(Transaction&&) noexcept;
  ~Transaction();  // rolls back what was not committed

  // Stages tokens of one layer. Call once or more per layer; all layers must reach the same frontier before commit.
  // Errors  NotFound: sequence. InvalidArgument: the transaction has ended, layer, shapes, strides, dtypes,
  //         coordinates. NotContiguous: first_position is not the staged frontier of that layer (row = sequence,
  //         index = where it goes on). Capacity. OutOfMemory. NotFinite: row = token, index = element. After an error
  //         nothing of this call is staged; the call can be repeated or the transaction dropped.
  Status append(SequenceId sequence, std::int64_t layer, const TokenBatch& tokens);

  // The staged state, to be scored and attended before the commit (an engine needs its new tokens at once).
  // Errors  NotFound: sequence. InvalidArgument: the transaction has ended, layer.
  // Memory  the view is valid until the next append to this sequence or the end of the transaction.
  Result<LayerView> layer(SequenceId sequence, std::int64_t layer) const;

  // Forgets all but the first `tokens` staged tokens of one sequence, in every layer that has more.
  // Errors  NotFound: sequence. InvalidArgument: the transaction has ended, negative.
  Status keep(SequenceId sequence, std::int64_t tokens);
  // The same in one layer alone. Errors  InvalidArgument: layer, too.
  Status keep_layer(SequenceId sequence, std::int64_t layer, std::int64_t tokens);

  // Publishes everything and ends the transaction.
  // Errors  InvalidArgument: layers of a sequence at different frontiers (row = sequence, index = the first layer that
  //         lacks tokens). OutOfMemory. Nothing is published then and the transaction stays open.
  Status commit();
  // Publishes only the first `tokens` staged tokens of each sequence, all where it has fewer (speculative decoding
  // keeps a prefix). Nothing that is kept is copied. Errors as commit, for the layers that lack kept tokens;
  // InvalidArgument: negative.
  Status commit_prefix(std::int64_t tokens);
  void rollback();

 private:
  friend class Cache;
  struct Staged;
  explicit Transaction(std::unique_ptr<Staged> staged);
  std::unique_ptr<Staged> staged_;
};

// How a file's pages come into a cache.
enum class RestoreMode : std::uint8_t {
  kCopy,  // read into pages of the cache's own; checksums and elements are checked before anything changes
  kMap,   // mapped read-only: usable at once and shared between processes; pages are not checked and take none of
          // the capacity. The file must not be changed in place while the mapping lives; replacing it by rename,
          // as save() does, is safe. A file cut short meanwhile shows in Snapshot::check(), not as a signal.
  kMapVerified,  // mapped, checksums and elements checked first
};

struct RestoredSequence {
  SequenceId saved = 0;  // its id in the cache that was saved
  SequenceId id = 0;     // its id here
};

class Cache {
 public:
  // Errors  InvalidArgument, NotFinite: options. Overflow: a page whose bytes do not fit. OutOfMemory.
  static Result<std::unique_ptr<Cache>> create(const Geometry& geometry, CacheOptions options);
  ~Cache();

  const Geometry& geometry() const;

  // A new, empty sequence whose first token will have position `anchor`. Ids are never used again.
  // Errors  InvalidArgument: anchor. OutOfMemory.
  Result<SequenceId> add(std::int64_t anchor = 0);
  // Errors of the following  NotFound; InvalidArgument: the sequence is in the open transaction; OutOfMemory; others
  //         as named.
  Status remove(SequenceId sequence);
  // Forgets every token and starts over at `anchor`. InvalidArgument: anchor.
  Status reset(SequenceId sequence, std::int64_t anchor = 0);
  // Keeps the first `tokens` tokens. InvalidArgument: negative or more than there are.
  Status truncate(SequenceId sequence, std::int64_t tokens);
  // A new sequence that holds what this one does. Pages are shared until one of the two writes to them. A staged
  // sequence is forked as the public sees it.
  Result<SequenceId> fork(SequenceId sequence);
  // Forgets the first `tokens` tokens: the anchor moves, and groups count from there. Keys, values and raw keys stay
  // where they are; pages before the anchor are given back. By a multiple of r the pooled keys stay too; otherwise all
  // of them are computed again, beside the old ones, at the cost of pooling the tokens that remain. InvalidArgument:
  // negative or more than there are, or the anchor would pass the last position. Capacity.
  Status evict_prefix(SequenceId sequence, std::int64_t tokens);
  // Appends what `source` holds at positions first_position .. first_position + tokens - 1 to `destination`. An empty
  // destination shares the pages (groups as in evict_prefix), any other takes a copy.
  // InvalidArgument: a range that the source does not hold. NotContiguous: first_position is not the destination's
  // frontier. Capacity.
  Status copy(SequenceId source, std::int64_t first_position, std::int64_t tokens, SequenceId destination);

  // Errors  InvalidArgument: a transaction is open. OutOfMemory.
  Result<Transaction> begin();
  // Errors  NotFound.
  Result<Snapshot> snapshot(SequenceId sequence) const;

  // Writes sequences as the public sees them to one file, whole or not at all (docs/cache_file.md). Pages that they
  // share are written once. Leftovers of saves to this path that were killed are removed.
  // Takes   `sequences` distinct; or all there are
  // Errors  NotFound. InvalidArgument: one twice. Unsupported: an index store. Io. OutOfMemory.
  // Threads  beside anything; saves to one path must take turns.
  Status save(const std::string& path, std::span<const SequenceId> sequences) const;
  Status save(const std::string& path) const;

  // Adds every sequence of a file to this cache, or none. Its geometry, layers, norm weights and page_tokens must be
  // this cache's; what the state does not depend on (query heads, budget, score options) may differ.
  // Gives   the sequences in the file's order.
  // Errors  Io. Corrupt: argument is the section. Unsupported: version; an index store.
  //         InvalidArgument: another geometry, by name.
  //         NotFinite. Capacity. OutOfMemory.
  Result<std::vector<RestoredSequence>> restore(const std::string& path, RestoreMode mode = RestoreMode::kCopy);

  CacheBytes bytes() const;
  // Gives free pages back to the allocator.
  void trim();

 private:
  friend class Transaction;
  friend Status save_cache(const Cache& cache, const std::string& path, file::FileCalls& calls);
  struct Impl;
  explicit Cache(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace seriatim
