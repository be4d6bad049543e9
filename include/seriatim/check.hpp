// Check: rows that any engine selected -> which promises of the rule they keep, with evidence.
//
// A fault is named once, by the promise whose breach explains it: a wrong row often contradicts several definitions.
// docs/conformance.md has the table of attribution, docs/capture.md the file formats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "seriatim/capture.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

enum class Promise : std::uint8_t {
  kRange,       // every entry is a visible position; padding is -1 and behind
  kDuplicate,   // no entry twice
  kWidth,       // as many entries as the budget says
  kExpansion,   // groups whole and together
  kTail,        // the raw tail is there, unscored and last
  kMembership,  // no better group left out
  kTie,         // among equal scores the earlier group
  kOrder,       // ascending positions
  kDense,       // below the budget everything visible
  kRepeat,      // equal input, equal row
  kArithmetic,  // the output is that of the row
};
inline constexpr std::size_t kPromises = 11;
std::string_view promise_name(Promise promise);  // "range"
// What is demanded and why, in a paragraph.
std::string_view promise_text(Promise promise);
std::optional<Promise> promise_named(std::string_view name);

// What order is demanded of a row. All but kCanonical relax order alone.
enum class RowRule : std::uint8_t {
  kCanonical,  // ascending positions, the tail last
  kSet,        // any order, padding anywhere
  kRank,       // whole groups by falling score (ties: the earlier first), the tail last
  kArrival,    // whole groups in any order, the tail last
};

enum class RowUnit : std::uint8_t { kToken, kGroup };  // what an entry of a row counts

// Rows to judge, and what is known of the queries they answer. Rows are read one at a time, so they need not fit in
// memory.
// Threads  read() may be called by any number of threads at once.
class Selection {
 public:
  struct About {
    std::int64_t rows = 0;   // Q
    std::int64_t width = 0;  // W, entries per row
    std::int64_t group_tokens = 4;
    std::int64_t budget_tokens = 2048;
    std::int64_t anchor = 0;
    RowUnit unit = RowUnit::kToken;
    bool has_scores = false;
    std::int64_t output_heads = 0;  // 0: no outputs
    std::int64_t output_dim = 0;
    std::string engine;                 // free text
    std::vector<std::int64_t> visible;  // [Q] tokens that each query sees
  };
  virtual ~Selection() = default;
  virtual const About& about() const = 0;
  // Gives   entries [W], as the engine wrote them
  virtual Status read_row(std::int64_t row, std::span<std::int64_t> entries) const = 0;
  // Gives   scores [floor(visible / group_tokens)] of the row's groups
  virtual Status read_scores(std::int64_t row, std::span<float> scores) const = 0;
  // Gives   output [output_heads * output_dim]
  virtual Status read_output(std::int64_t row, std::span<float> output) const = 0;
};

// Opens a selection dump (`selection/1`). Only its header and `visible` are held; rows and scores are read
// when asked for.
// Errors  Io, Corrupt, Unsupported: as SafetensorsFile::open, a missing tensor or metadata key, another version.
//         InvalidArgument: shapes or dtypes that do not fit each other, no rows, a negative count or one past the
//         scores.
Result<std::unique_ptr<Selection>> open_selection(const std::string& path);
// The same from memory, which must outlive it.
Result<std::unique_ptr<Selection>> parse_selection(std::span<const std::byte> bytes);

// Rows in memory.
struct SelectionViews {
  ConstTensor rows;     // [Q, W] i32 or i64
  ConstTensor visible;  // [Q] i32 or i64
  ConstTensor scores;   // [Q, G] f32, or empty
  ConstTensor output;   // [Q, heads, dim] f32, or empty
};
// Takes   views that outlive the selection; of `about`, the geometry, unit, anchor and engine
// Errors  InvalidArgument, naming the view and the row.
Result<std::unique_ptr<Selection>> view_selection(const SelectionViews& views, Selection::About about);

// What a capture says of the same queries: our own scores and canonical outputs. It holds the capture's tokens
// in a cache.
class JudgedCapture {
 public:
  virtual ~JudgedCapture() = default;
  virtual const Capture& capture() const = 0;
  // Takes   what the engine selected (it must outlive the result); null: the capture's own expected rows
  // Gives   the same rows with our scores
  // Errors  InvalidArgument: another geometry, anchor, number of queries or visible count (row = query) than the
  //         capture's; no expected rows.
  virtual Result<std::unique_ptr<Selection>> rows(const Selection* selection) const = 0;
  // Gives   output [query_heads, value_dim]: ours over `row` (ascending positions), and the same in f64
  virtual Status output(std::int64_t query, std::span<const std::int32_t> row, std::span<float> ours,
                        std::span<double> exact) const = 0;
  // The largest |value|, to which distances are relative; 1 where all are 0.
  virtual double largest_value() const = 0;
};
// Errors  as replay(). Memory  the capture's tokens once more.
Result<std::unique_ptr<JudgedCapture>> judge_with(Capture capture);

// One breach: the first entry of a row at fault, and how many there are. -1 and NaN where there is no such thing.
struct Finding {
  Promise promise = Promise::kRange;
  std::int64_t row = -1;
  std::int64_t entry = -1;   // place in the row
  std::int64_t entries = 1;  // how many entries, tokens or groups of this row are at fault in this way
  std::int64_t token = -1;   // position
  std::int64_t group = -1;   // chosen, broken or out of place
  std::int64_t other = -1;   // the group that should stand there, or the row it should equal (repeat)
  float score = 0.0f;        // of `group`, where `scored`
  float other_score = 0.0f;  // of `other`
  bool scored = false;
  double margin = 0.0;    // relative distance of the two scores; of outputs
  std::string what = {};  // in words
};

struct ArithmeticReport {
  std::int64_t rows = 0;      // compared
  double relative = 0.0;      // largest distance to our output, relative to the largest |value|
  double relative_f64 = 0.0;  // to f64
  double own_f64 = 0.0;       // of our output to f64
  double ulp = 0.0;           // largest distance to our output, in `dtype`'s last place at the head's largest |element|
  DType dtype = DType::kF32;  // of the layer's keys and values
  std::int64_t worst_row = -1;
  double bound = 0.0;  // the largest `relative` that conforms
};

struct CheckOptions {
  RowRule rule = RowRule::kCanonical;
  double margin = 0.0;                      // groups nearer than this to the cut, relatively, are near, not wrong
  std::int64_t findings_per_promise = 100;  // kept; all are counted
  const JudgedCapture* against = nullptr;   // for outputs; scores come with the selection
  Executor* executor = nullptr;             // null: serial
  std::function<void(std::string_view stage, std::int64_t done, std::int64_t total)> progress;
};

struct CheckReport {
  struct Count {
    std::int64_t judged = 0;  // rows
    std::int64_t faults = 0;  // rows
  };
  std::int64_t rows = 0;
  std::int64_t faulty_rows = 0;
  std::int64_t near_rows = 0;  // differ from the canonical set within the margin alone
  double largest_near = 0.0;
  double margin = 0.0;
  RowRule rule = RowRule::kCanonical;
  std::array<Count, kPromises> counts{};
  std::vector<Finding> findings;          // by row, then promise; at most findings_per_promise of each
  std::vector<std::uint16_t> row_faults;  // [Q] a bit per promise, from bit 0; kNearBit besides
  std::optional<ArithmeticReport> arithmetic;

  static constexpr std::uint16_t kNearBit = 1u << 15;
  const Count& of(Promise promise) const { return counts[static_cast<std::size_t>(promise)]; }
  bool conforms() const { return faulty_rows == 0; }
};

// Judges every row.
// Errors  of reading. InvalidArgument: geometry, options. NotANumber: a NaN score (row, index = group). OutOfMemory.
// Memory  per worker a row and its scores; per row of the selection 26 bytes; the findings kept.
// Threads  the executor's. The report does not depend on them.
Result<CheckReport> check(const Selection& selection, const CheckOptions& options = {});

}  // namespace seriatim
