// Borrowed memory: a layer over keys and values that an engine keeps, in its own tensors or pages. Nothing is copied.
//
// A BorrowedLayer gives the same LayerView as a Snapshot of a Cache, and the same bits. Its index is either panels that
// the caller keeps too (filled by PanelPooler, or by pack_pooled_keys), or an index store: a Cache whose options say
// `index_only`, which takes raw index keys as they come and pools closed groups, beside the caller's keys and values.
// Source  contract sections 4 and 7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "seriatim/executor.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/layer_view.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

// Keys and values of one sequence, in one of three forms. Every axis but the last may have any stride: an array
// [heads, T, dim] is handed over as its view [T, heads, dim]. The elements of the last axis are neighbours. Slot s is
// where token s of the array lies, or token s mod page_tokens of page s / page_tokens.
struct BorrowedTensors {
  // One array: [T, kv_heads, head_dim] and [T, kv_heads, value_dim].
  // With `block_table`, the pool of pages: [pages, page_tokens, kv_heads, dim].
  // With `key_pages`, how a page is laid out: [page_tokens, kv_heads, dim]; their data is not looked at.
  // Values are absent (rank 0) exactly when they alias the leading dims of the keys. Keys and values absent: a layer
  // that plans and cannot attend.
  ConstTensor keys;
  ConstTensor values;

  // [n] i32 or i64: the page of the pool that holds slots i * page_tokens and on, for keys and for values. Entries
  // whose slots hold no token of the run are not read.
  ConstTensor block_table;
  // The same as addresses; values have pages of their own. Null where no token of the run lies.
  std::span<const std::byte* const> key_pages;
  std::span<const std::byte* const> value_pages;

  // Slot of the run's first token: past left padding, or past a prefix that is gone.
  std::int64_t first_slot = 0;

  // The index; with neither the layer attends rows that another one planned.
  // Panels that the caller keeps: [panels, index_dim, 16] in index_dtype, dense. Group g is lane (first_group + g) % 16
  // of panel (first_group + g) / 16.
  ConstTensor panels;
  std::int64_t first_group = 0;
  // No element of the panels is larger in magnitude; infinity: not known, which is a little slower.
  float panels_max_abs = std::numeric_limits<float>::infinity();
  // Or the index of another view of the same run: of an index store, or of another layer.
  const LayerView* index = nullptr;
};

// A view of borrowed tensors and what it needs to stand on. Made once per sequence and layer; bind() whenever tokens
// have come or pages have moved.
class BorrowedLayer {
 public:
  // `geometry` must outlive this and every copy of its view.
  explicit BorrowedLayer(const Geometry& geometry);
  BorrowedLayer(BorrowedLayer&&) noexcept = default;
  BorrowedLayer& operator=(BorrowedLayer&&) noexcept = default;

  // Looks at `run`, whose first token lies at tensors.first_slot. Of the memory nothing is read but the block table.
  // Errors  InvalidArgument, by argument: a dtype, rank or extent; a stride that is negative, not whole elements, or
  //         lets two tokens, heads or pages share memory (index = axis); fewer tokens, pages, entries or panels than
  //         the run reaches; an entry of the block table that is no page of the pool, or that an earlier entry of the
  //         run names too (index = entry); a null page (index = page); keys or values missing or too many; two forms at
  //         once; an index of another run, dim or dtype. Overflow: sizes past 64 bits. OutOfMemory. After an error the
  //         view is what it was before.
  // Memory  an address per page; none is taken where an earlier bind() had as many.
  Status bind(VisibleRun run, const BorrowedTensors& tensors);

  // Valid until the next bind() or the end of this, while the tensors are where they were; a moved layer keeps its
  // view.
  const LayerView& view() const { return view_; }

 private:
  const Geometry* geometry_;
  LayerView view_;
  std::vector<const std::byte*> key_pages_;
  std::vector<const std::byte*> value_pages_;
  std::vector<std::uint64_t> named_;      // a bit per page of the pool, clear between calls
  std::vector<const std::byte*> panels_;  // one
};

// What a Cache asks of tokens when it takes them, for callers that keep them themselves.
// Errors  InvalidArgument: no float dtype, no axis. NotFinite: row = the place on the first axis, index = the element
//         within it.
Status check_finite(std::string_view argument, const ConstTensor& tensor);

// Raw index keys of one sequence, to be pooled into panels that the caller keeps.
struct PoolAsk {
  ConstTensor raw;               // [slots, index_dim] in index_dtype, raw (or finished: pooling none)
  ConstTensor coordinates;       // [3, slots] i64: M-RoPE coordinates; empty: positions serve
  VisibleRun run;                // the tokens there are
  std::int64_t first_slot = 0;   // of the run's first token in `raw` and `coordinates`
  std::int64_t first_group = 0;  // groups before it are in the panels already
  Tensor panels;                 // [panels, index_dim, 16] in index_dtype, dense
};

// Pools closed groups into panels of the caller, many panels at once.
// Threads  one call at a time.
class PanelPooler {
 public:
  // Takes   norm_weight: w of (1 + w), [index_dim] or empty for zeros; executor: alive as long as this
  // Errors  InvalidArgument: norm_weight. NotFinite: norm_weight (index = dim). OutOfMemory.
  static Result<PanelPooler> create(const Geometry& geometry, std::span<const float> norm_weight,
                                    Executor& executor = serial_executor(), Kernels kernels = default_kernels());

  // Pools groups first_group .. G - 1 of every ask.
  // Gives   the largest magnitude of what was written
  // Errors  row = ask. InvalidArgument: shapes, strides, dtypes, runs, panels that have no place for the last group,
  //         coordinates outside 0 .. 2^31 - 1. NotFinite: a raw key or its group's mean; index = the first of up to 16
  //         groups among which it is. Lanes of groups that were asked for may then have been written, no others.
  // Memory  some 40 bytes per panel that is written to, freed at the end.
  Result<float> pool(std::span<const PoolAsk> asks);

 private:
  PanelPooler(const Geometry& geometry, Executor& executor) : geometry_(geometry), executor_(&executor) {}

  Geometry geometry_;
  std::vector<float> norm_weight_;
  Executor* executor_;
  std::vector<Pooler> poolers_;  // one per worker
};

}  // namespace seriatim
