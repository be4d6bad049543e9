// The path put together: append (cache) -> plan -> attend, for any number of queries of one sequence.
//
// A query at position p sees anchor .. p of its layer, whatever else is in the batch: one call, chunks of any size and
// one-token decode give the same rows and the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "seriatim/cache.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/row.hpp"
#include "seriatim/select.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

// Rows of Q queries in the caller's memory.
struct Rows {
  std::int32_t* positions = nullptr;  // [Q][stride]: ascending, -1 past each count
  std::int64_t stride = 0;            // entries from one row to the next; at least row_capacity()
  std::int32_t* counts = nullptr;     // [Q]

  std::span<const std::int32_t> row(std::int64_t query) const {
    return {positions + query * stride, static_cast<std::size_t>(counts[query])};
  }
};

struct IndexQueries {
  ConstTensor queries;                      // [Q, index_heads, index_dim] in index_dtype, finished
  ConstTensor head_weights;                 // [Q, index_heads] f32, or empty
  std::span<const std::int64_t> positions;  // [Q], any order, each held by the layer
};

struct AttendQueries {
  ConstTensor queries;                      // [Q, query_heads, head_dim] in kv_dtype
  std::span<const std::int64_t> positions;  // [Q]
  std::span<const float> sinks;             // [query_heads], or empty
};

// What was done, for accounting. Dense-mask bytes are part of the interface because they are always 0.
struct WorkDone {
  std::int64_t queries = 0;
  std::int64_t dense_rows = 0;  // rows that hold every visible token
  std::int64_t groups_scored = 0;
  std::int64_t groups_selected = 0;
  std::int64_t row_tokens = 0;
  std::int64_t dense_mask_bytes = 0;
};

// All scratch of plan() and attend(), taken once. Its size depends on the geometry, on the longest visible run and on
// the executor's concurrency; never on the number of queries.
// Threads  one call at a time per workspace.
class Workspace {
 public:
  // Exactly what create() will take, known beforehand. Errors as create().
  static Result<std::int64_t> bytes(const Geometry& geometry, std::int64_t max_visible_tokens, int concurrency);
  // Takes   the executor that will run the calls (the caller's, alive as long as the workspace) and the kernels that
  //         do the work; both change speed alone.
  // Errors  InvalidArgument: a negative count. Overflow. OutOfMemory.
  static Result<Workspace> create(const Geometry& geometry, std::int64_t max_visible_tokens,
                                  Executor& executor = serial_executor(), Kernels kernels = default_kernels());
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;
  ~Workspace();

  std::int64_t bytes() const;
  const WorkDone& done() const;  // the sum over all successful calls
  void clear_done();

  struct Impl;  // opaque
  Impl& impl() { return *impl_; }

 private:
  explicit Workspace(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Scores, selects and expands: one row per query. Where everything complete fits the budget nothing needs scoring
// (unless NaN groups are to be excluded).
// Gives   rows.positions and rows.counts of all Q queries
// Errors  InvalidArgument: a workspace made for a smaller geometry, a layer without an index, shapes, strides, dtypes,
//         a position the layer does not hold (row = query). Capacity: more visible tokens than the workspace was made
//         for. NotANumber: the first query and group. Nothing is written.
// Memory  the workspace alone.
Status plan(const LayerView& layer, const IndexQueries& queries, NanPolicy nan, Workspace& workspace, Rows rows);

// Attends over rows that plan() or anyone else made; several layers may use the same rows.
// Gives   output [Q, query_heads, value_dim] f32, bf16 or f16; lse [Q, query_heads] f32, or empty
// Errors  InvalidArgument: a workspace made for a smaller geometry. Others as attend_row, for the first query at fault;
//         row = query. Nothing is written but for Overflow, after which every affected head's output and lse are NaN
//         and all others are right.
// Memory  the workspace alone.
Status attend(const LayerView& layer, const AttendQueries& queries, Rows rows, Workspace& workspace, Tensor output,
              Tensor lse);

}  // namespace seriatim
