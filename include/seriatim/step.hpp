// One step of an engine: append (cache) -> plan -> attend, for any number of sequences and queries at once.
//
// An Engine is made once and says where the work is done: on the host, by an executor and kernels, or on a device. A
// call takes asks. An ask is one layer of one sequence, as a snapshot, an open transaction or borrowed memory shows it,
// and the queries over it: one token to decode, a chunk of a prompt, speculative tokens. Asks of all kinds and lengths
// may share a call. The rows and outputs of all asks lie one after the other, in the order of the asks.
//
// A query at position p sees anchor .. p of its layer. The bits of a query's row and output depend on its layer and its
// query alone: not on its company, the order of the asks, the threads, the kernels or the place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "seriatim/cache.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/row.hpp"
#include "seriatim/select.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

class Device;

// Rows of Q queries in the caller's memory: one each, or with S selections S each, one after the other, and where [Q]
// stands there are [Q][S].
struct Rows {
  std::int32_t* positions = nullptr;  // [Q][stride]: ascending, -1 past each count
  std::int64_t stride = 0;            // entries from one row to the next; at least row_capacity()
  std::int32_t* counts = nullptr;     // [Q]

  // `row`: query * S + selection.
  std::span<const std::int32_t> row(std::int64_t row) const {
    return {positions + row * stride, static_cast<std::size_t>(counts[row])};
  }
};

// The same to be read: what plan() or anyone else made.
struct ConstRows {
  const std::int32_t* positions = nullptr;  // [Q][stride]; what lies past each count does not matter
  std::int64_t stride = 0;
  const std::int32_t* counts = nullptr;  // [Q], 0 .. stride
  // [Q][stride] or null: finite numbers, each added to the scaled logits of its entry, for every head (a mask's own
  // values, say). Only on the host.
  const float* biases = nullptr;

  ConstRows() = default;
  ConstRows(const std::int32_t* rows, std::int64_t entries, const std::int32_t* widths)
      : positions(rows), stride(entries), counts(widths) {}
  ConstRows(const Rows& rows)  // NOLINT(google-explicit-constructor): what may be written may be read
      : positions(rows.positions), stride(rows.stride), counts(rows.counts) {}

  std::span<const std::int32_t> row(std::int64_t row) const {
    return {positions + row * stride, static_cast<std::size_t>(counts[row])};
  }
  const float* row_biases(std::int64_t row) const { return biases == nullptr ? nullptr : biases + row * stride; }
};

// The best groups of a layer for Q queries, with their scores: what several layers' answers are merged from.
struct Candidates {
  std::int32_t* groups = nullptr;  // [Q][stride]: ascending, counted from the layer's anchor
  float* scores = nullptr;         // [Q][stride]
  std::int64_t stride = 0;         // at least B / r
  std::int32_t* counts = nullptr;  // [Q]: min(K, G), less where NaN groups are excluded
};

struct IndexQueries {
  ConstTensor queries;                      // [Q, index_heads, index_dim] in index_dtype, finished
  ConstTensor head_weights;                 // [Q, index_heads] f32, or empty
  std::span<const std::int64_t> positions;  // [Q], any order, each held by the layer
};

struct AttendQueries {
  ConstTensor queries;                      // [Q, query_heads, head_dim] in kv_dtype, or on the host in f32
  std::span<const std::int64_t> positions;  // [Q]
  std::span<const float> sinks;             // [query_heads], or empty
};

// One layer of one sequence and the queries over it; Q may be 0. The layer is valid until the call returns. Two asks
// may name the same layer.
struct PlanAsk {
  const LayerView* layer = nullptr;
  IndexQueries queries;
};

struct AttendAsk {
  const LayerView* layer = nullptr;
  AttendQueries queries;
};

// Whether plan() on the host screens long runs: it scores all groups by faster, approximate products with a proven
// bound and only those that could be in the set by the canonical ones. The rows are the same, bit for bit; where the
// bound leaves too much open, the query is scored in full after all (docs/decisions/0015-screening.md).
enum class Screening : std::uint8_t {
  kAutomatic,  // where it is faster, as far as can be told beforehand
  kOff,
  kOn,  // wherever the bound holds, also where it is slower
};

// By their numbers, as the environment variable SERIATIM_SCREEN says them.
inline constexpr std::string_view kScreeningNames[] = {"auto", "off", "on"};

// What SERIATIM_SCREEN names; automatic where it is unset or empty. Looked at once, on first use.
// Errors  InvalidArgument: another word.
Result<Screening> chosen_screening();

// What was planned, for accounting.
struct WorkDone {
  std::int64_t queries = 0;
  std::int64_t dense_rows = 0;     // rows that hold every visible token
  std::int64_t groups_scored = 0;  // keys that were scored: of groups, or of units with pooling `unit_max`
  std::int64_t groups_selected = 0;
  std::int64_t row_tokens = 0;
  // On the host; a device screens nothing.
  std::int64_t groups_screened = 0;   // of groups_scored, by queries whose rows came from screening
  std::int64_t groups_rescored = 0;   // of those, the ones that the canonical score was needed of
  std::int64_t screen_fallbacks = 0;  // queries that were to be screened and had to be scored in full
  std::int64_t index_bytes_read = 0;  // pooled keys read to score, for all queries that share a pass once
};

// The most that one call may bring.
struct StepLimits {
  std::int64_t visible_tokens = 0;  // of any query
  std::int64_t queries = 0;         // of all asks together
  std::int64_t asks = 0;
};

// Where the work is done, with all its scratch.
//
// Scratch depends on the geometry, the longest visible run, the number of asks, the executor's concurrency and, on a
// device, the number of queries; never on queries x tokens. An engine that was never reserved takes what a call lacks.
// After reserve() no call takes memory: one that would need more than what was reserved is refused. (A device takes
// page tables besides when it is asked about a sequence that is new to it.)
//
// All asks of a call have equal geometries; calls with different ones may follow each other.
// Errors of plan() and attend() say in their Place which ask, which of its queries (row) and which index is at fault;
//         ask is -1 where the call as a whole is. Of several faults of one kind the first ask's first query is named;
//         shapes and positions of all asks are looked at first, then rows and elements, then what is computed.
// Threads one call at a time per Engine. Any number of engines may share an executor, kernels, caches and snapshots.
class Engine {
 public:
  // Takes   the executor that runs the calls (the caller's, alive as long as the engine), the kernels that do the work,
  //         and whether to screen (absent: chosen_screening()); all change speed alone.
  // Errors  InvalidArgument: an executor without concurrency; chosen_screening(). OutOfMemory.
  static Result<Engine> host(Executor& executor = serial_executor(), Kernels kernels = default_kernels(),
                             std::optional<Screening> screening = std::nullopt);
  // The function is missing from a build without devices (seriatim/device.hpp).
  // Errors  InvalidArgument: null. OutOfMemory.
  static Result<Engine> on(std::shared_ptr<Device> device);
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  // Where the pages of a cache must come from whose layers this engine is asked about; set CacheOptions::allocator to
  // it. Null: any memory serves, as on the host. It outlives the cache and its snapshots.
  // Takes   the cache's geometry and options, whose capacity says how much device memory is taken, at once.
  // Errors  InvalidArgument: a device and no capacity. Overflow. OutOfMemory, Io: what the driver refused.
  Result<std::shared_ptr<PageAllocator>> allocator(const Geometry& geometry, const CacheOptions& options);

  // What reserve() would take of a fresh engine, known beforehand.
  // Errors  InvalidArgument: a negative or too large limit. Overflow.
  Result<std::int64_t> bytes_for(const Geometry& geometry, const StepLimits& limits) const;
  // Takes all scratch of calls within `limits` over layers of this geometry. Further calls add to what is reserved.
  // Errors  as bytes_for. OutOfMemory; Unsupported, Io: a device. What was reserved stays.
  Status reserve(const Geometry& geometry, const StepLimits& limits);
  std::int64_t bytes() const;  // scratch held now

  // Scores, selects and expands: one row per query and selection. Where everything complete fits the budget nothing
  // needs scoring (unless NaN groups are to be excluded).
  // Gives   rows.positions and rows.counts of all queries of all asks
  // Errors  InvalidArgument: a null layer or one without an index, a geometry unlike the first ask's, shapes, strides,
  //         dtypes, a position the layer does not hold, rows. Capacity: more than was reserved. OutOfMemory.
  //         NotANumber: index = group. A device also: InvalidArgument: a page that is not of its memory; Unsupported,
  //         Io. Nothing is written.
  Status plan(std::span<const PlanAsk> asks, NanPolicy nan, Rows rows);
  Status plan(const LayerView& layer, const IndexQueries& queries, NanPolicy nan, Rows rows) {
    const PlanAsk ask{&layer, queries};
    return plan({&ask, 1}, nan, rows);
  }

  // Attends over rows that plan() or anyone else made; several layers may use the same rows.
  // Gives   output [Q of all asks, query_heads, value_dim] f32, bf16 or f16; lse [Q of all asks, query_heads] f32, or
  //         empty
  // Errors  as plan() without NotANumber; those of attend_row. A device also: Capacity: a row past row_capacity().
  //         Nothing is written but for Overflow (index = head), after which the outputs and lse of all affected heads
  //         are NaN and all others are right.
  Status attend(std::span<const AttendAsk> asks, ConstRows rows, Tensor output, Tensor lse);
  Status attend(const LayerView& layer, const AttendQueries& queries, ConstRows rows, Tensor output, Tensor lse) {
    const AttendAsk ask{&layer, queries};
    return attend({&ask, 1}, rows, output, lse);
  }

  // The two halves of attend(), for a caller that shares the splits of a row out, among processes or kernels of its
  // own. Any ranges of splits, computed anywhere and laid one after the other, fold to the bits of attend().
  //
  // Splits first_split .. first_split + splits - 1 of every query's row; a split is 128 entries of the row, counted
  // from its start (contract section 5).
  // Gives   partials [Q][splits][attend_partial_floats(geometry)], as seriatim/attend.hpp lays one out; the partials
  //         of splits past a row's end are empty
  // Errors  as attend(). InvalidArgument: a negative split, partials of another size. Unsupported: a device.
  Status attend_partials(const AttendAsk& ask, ConstRows rows, std::int64_t first_split, std::int64_t splits,
                         std::span<float> partials);
  // Folds all splits of Q queries, in order, after the sinks, and finishes them.
  // Takes   partials [Q][splits][attend_partial_floats(geometry)]; sinks [query_heads] or empty
  // Gives   output and lse as attend()
  // Errors  as attend(), for sinks, output and lse. InvalidArgument: partials of another size. Unsupported: a device.
  Status fold_partials(const Geometry& geometry, std::span<const float> partials, std::int64_t splits,
                       std::span<const float> sinks, Tensor output, Tensor lse);

  // The same, not finished: all splits of Q queries, in order, after the sinks, as one partial per query. Folded as the
  // first of later splits (without the sinks) it gives the bits of having folded all of them at once.
  // Gives   states [Q][attend_partial_floats(geometry)]; an empty partial where nothing was folded
  // Errors  as fold_partials(). InvalidArgument: queries negative, states of another size.
  Status fold_state(const Geometry& geometry, std::span<const float> partials, std::int64_t splits,
                    std::span<const float> sinks, std::int64_t queries, std::span<float> states);

  // plan() short of the rows, for a caller that holds a sequence in several layers: the top-K of a union is the top-K
  // of the parts' top-Ks. Every query is scored, whether or not all its groups fit the budget. Nothing is added to
  // done().
  // Gives   candidates of all queries of all asks
  // Errors  as plan(), for candidates instead of rows. Unsupported: a device.
  Status plan_candidates(std::span<const PlanAsk> asks, NanPolicy nan, const Candidates& candidates);

  WorkDone done() const;  // the sum over all plan() calls that succeeded
  void clear_done();

  // Gives up what only this engine still holds of sequences that have moved on: a device keeps the state that a
  // sequence had when it was last asked about, and with it pages that the cache may have given up since (truncate,
  // evict_prefix, reset, remove). Costs the bytes that are sent again. Nothing on the host.
  void let_go();

  class Impl;  // opaque: the host or a device
  explicit Engine(std::unique_ptr<Impl> impl);
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace seriatim
