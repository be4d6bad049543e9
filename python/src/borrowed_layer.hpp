// Indexed layers whose keys and values lie in memory that someone else keeps, such as a tensor of a model's own cache.
//
// Where Cache owns pages, a BorrowedLayer reads a batch of sequences in place: one tensor of keys, one of values and
// one of panels of pooled keys is a page as long as the sequence. Rows are planned and attended in blocks of queries,
// so that the memory they take does not grow with the number of queries. Bits are those of plan() and attend().
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "seriatim/executor.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/status.hpp"
#include "seriatim/step.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim::python {

// The slots of each sequence of a batch that hold tokens: first .. last - 1. What lies before and after is padding.
struct Runs {
  std::span<const std::int64_t> first;  // [B]
  std::span<const std::int64_t> last;   // [B], at least first
};

// Groups to pool, of every sequence from the one after those that are pooled to the last complete one.
struct PoolCall {
  Runs runs;
  std::span<const std::int64_t> pooled_groups;  // [B], what is there already
  ConstTensor raw;                              // [B, T, index_dim] in index_dtype; tokens of a sequence are dense
  ConstTensor coordinates;                      // [3, B, T] i64; empty: the slot is the position
  Tensor panels;                                // [B, P, index_dim, 16] in index_dtype, dense per sequence
};

struct AttendCall {
  Runs runs;
  ConstTensor queries;        // [B, S, query_heads, head_dim]: the newest S slots of T
  ConstTensor index_queries;  // [B, S, index_heads, index_dim], finished
  ConstTensor head_weights;   // [B, S, index_heads] f32, or empty
  ConstTensor keys;           // [B, kv_heads, T, head_dim]; slots and dims of a head are dense
  ConstTensor values;         // [B, kv_heads, T, value_dim]; empty exactly when they alias the keys
  ConstTensor panels;         // [B, P, index_dim, 16]
  float panels_max_abs;       // what pool() gave, or more
  Tensor output;              // [B, S, query_heads, value_dim]; slots that are padding get zeros
  Tensor lse;                 // [B, S, query_heads] f32, or empty
  Tensor rows;                // [B, S, row_capacity] i32 of slots, or empty
  Tensor counts;              // [B, S] i32, or empty with rows
};

// Rows alone, for layers that hand them on.
struct PlanCall {
  Runs runs;
  std::int64_t slots;         // T
  ConstTensor index_queries;  // [B, S, index_heads, index_dim], finished: the newest S slots of T
  ConstTensor head_weights;   // [B, S, index_heads] f32, or empty
  ConstTensor panels;         // [B, P, index_dim, 16]
  float panels_max_abs;       // what pool() gave, or more
  Tensor rows;  // [B, S, row_capacity] i32 of slots, dense; -1 past each row's end and in those of padding
};

// Attention over rows that plan() or anyone else made.
struct RowsCall {
  Runs runs;
  ConstTensor queries;           // [B, S, query_heads, head_dim]: the newest S slots of T
  ConstTensor keys;              // [B, kv_heads, T, head_dim]; slots and dims of a head are dense
  ConstTensor values;            // [B, kv_heads, T, value_dim]; empty exactly when they alias the keys
  ConstTensor rows;              // [B, S, any] i32, dense, -1 past each row's end; empty: a window of the newest
                                 // row_capacity slots up to the query's own
  std::span<const float> sinks;  // [query_heads], or empty
  Tensor output;                 // [B, S, query_heads, value_dim]; slots that are padding get zeros
};

// Threads  calls take turns.
class BorrowedLayer {
 public:
  // Takes   `norm_weight` [index_dim]: w of (1 + w); empty: zeros. `threads` 0: as many as the process may use.
  static Result<std::unique_ptr<BorrowedLayer>> create(GeometryOptions options, std::vector<float> norm_weight,
                                                       std::shared_ptr<Executor> executor, Kernels kernels);

  const Geometry& geometry() const { return geometry_; }

  // Gives   the largest magnitude that was written.
  // Errors  InvalidArgument: shapes, strides, dtypes, runs. NotFinite: a pooled key that is not, as where a raw one is
  //         not or their sum overflows; row = sequence, index = group. What was written then must not be read.
  Result<float> pool(const PoolCall& call);

  // Errors  as plan() and attend(); row = sequence. NaN scores are refused. Output is undefined after an error.
  Status attend(const AttendCall& call);

  // Errors  as seriatim::plan(); row = sequence. NaN scores are refused. Rows are undefined after an error.
  Status plan(const PlanCall& call);

  // Errors  as seriatim::attend(); row = sequence. Output is undefined after an error.
  Status attend_rows(const RowsCall& call);

  WorkDone done() const { return done_; }

 private:
  BorrowedLayer(Geometry geometry, std::vector<float> norm_weight, std::shared_ptr<Executor> executor, Kernels kernels)
      : geometry_(std::move(geometry)),
        norm_weight_(std::move(norm_weight)),
        executor_(std::move(executor)),
        kernels_(kernels) {}

  Status make_workspace(std::int64_t visible_tokens);
  // Views of sequence `b`; `page` holds the address of its first key, or panel, and outlives `layer`.
  Status view_keys(const ConstTensor& keys, const ConstTensor& values, const std::byte* const* page, std::int64_t b,
                   VisibleRun run, LayerView& layer) const;
  Status view_panels(const ConstTensor& panels, float max_abs, const std::byte* const* page, LayerView& layer) const;
  Status admit_rows_call(const RowsCall& call) const;
  Status plan_sequence(const PlanCall& call, std::int64_t sequence);
  Status attend_rows_of(const RowsCall& call, std::int64_t sequence);
  Status attend_sequence(const AttendCall& call, std::int64_t sequence);
  Status attend_block(const AttendCall& call, const LayerView& layer, std::int64_t sequence, std::int64_t first,
                      std::int64_t count);

  Geometry geometry_;
  std::vector<float> norm_weight_;
  std::shared_ptr<Executor> executor_;
  Kernels kernels_;
  std::mutex turn_;
  std::vector<Pooler> poolers_;  // one per worker
  std::optional<seriatim::Engine> workspace_;
  std::int64_t workspace_tokens_ = 0;
  WorkDone done_;
  std::vector<std::int32_t> rows_;
  std::vector<std::int32_t> counts_;
  std::vector<std::int64_t> positions_;
};

// Errors  NotFinite: row = the place on the first axis, index = the element within it.
Status check_finite(std::string_view argument, const ConstTensor& tensor);

}  // namespace seriatim::python
