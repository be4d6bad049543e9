// Geometry: the integers of a layer are admitted here and only here.
//
// A Geometry is immutable and always admissible; every later module takes one and never checks these numbers again.
// Words (contract section 1): a visible run is the n tokens one query may attend to; a group is r consecutive tokens of
// it, counted from its first position, the anchor; the n mod r newest tokens are the raw tail; a row is the ascending
// list of positions a query attends to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

// What queries are scored against, and how a group gets its score from it (contract section 10).
enum class Pooling : std::uint8_t {
  kMean,     // one key per closed group: mean, RMS norm with (1 + w), rotation at the group's first token (QSA)
  kNone,     // r = 1 and keys arrive finished: stored as given (DeepSeek's indexer and its relatives)
  kUnitMax,  // keys arrive finished, one per token; a group has the best score of its visible tokens (minimax_m3_vl)
};

// What becomes of the n mod r newest tokens.
enum class Tail : std::uint8_t {
  kRaw,    // they belong to no group: never scored, always attended
  kGroup,  // they are the newest group, which is scored and chosen as any other, and expands to the tokens it has
};

// Where the score's scale 1/sqrt(index_dim) stands. Each place gives other bits, so each is its own option.
enum class ScaleAt : std::uint8_t {
  kAfterSum,    // (sum over heads) / f32(sqrt(index_dim))      (QSA)
  kBeforeRelu,  // relu(dot * f32(1/sqrt(index_dim)))
  kAfterRelu,   // relu(dot) * f32(1/sqrt(index_dim))
  kNowhere,     // the caller's head weights carry it, or there is none
};

// The names of these, by their numbers: what Python and captures say, and what C's constants are called after.
inline constexpr std::string_view kPoolingNames[] = {"mean", "none", "unit_max"};
inline constexpr std::string_view kTailNames[] = {"raw", "group"};
inline constexpr std::string_view kScaleAtNames[] = {"after_sum", "before_relu", "after_relu", "nowhere"};
constexpr std::string_view pooling_name(Pooling pooling) { return kPoolingNames[static_cast<std::size_t>(pooling)]; }
constexpr std::string_view tail_name(Tail tail) { return kTailNames[static_cast<std::size_t>(tail)]; }
constexpr std::string_view scale_at_name(ScaleAt place) { return kScaleAtNames[static_cast<std::size_t>(place)]; }
std::optional<Pooling> pooling_named(std::string_view name);
std::optional<Tail> tail_named(std::string_view name);
std::optional<ScaleAt> scale_at_named(std::string_view name);

// How a group gets its score from its raw keys and a query.
struct ScoreOptions {
  Pooling pooling = Pooling::kMean;
  bool relu = true;
  ScaleAt scale_at = ScaleAt::kAfterSum;
  bool operator==(const ScoreOptions&) const = default;
};

// What a caller asks for. The defaults are those of QSA (`qwen4_exp`).
struct GeometryOptions : ScoreOptions {
  std::int64_t group_tokens = 4;      // r
  std::int64_t budget_tokens = 2048;  // B, a multiple of r
  Tail tail = Tail::kRaw;

  // Groups that every row holds, whatever their scores: a class above +inf (contract section 11).
  std::int64_t forced_first = 0;   // the oldest so many
  std::int64_t forced_newest = 0;  // the newest so many, a partial one included
  bool forced_outside = false;     // beside the budget; else they take their places of it

  std::int64_t selections = 1;  // S, rows per query: each serves neighbouring query heads by index heads of its own

  std::int64_t query_heads = 24;  // H_q, a multiple of kv_heads
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 256;
  std::int64_t value_dim = 0;          // 0: head_dim
  bool values_alias_keys = false;      // values are the leading value_dim of the keys; nothing is stored twice
  std::optional<float> softmax_scale;  // absent: 1/sqrt(head_dim)

  std::int64_t index_heads = 4;
  std::int64_t index_dim = 128;
  std::int64_t index_rotary_dim = 64;  // even, at most index_dim; 0: no rotation
  double rope_theta = 1e7;
  std::vector<float> inv_freq;          // [index_rotary_dim / 2]; empty: from rope_theta, in the reference's roundings
  std::vector<std::uint8_t> rope_axes;  // [index_rotary_dim / 2] in 0..2: the M-RoPE coordinate each pair takes;
                                        // empty: every pair takes the token's position
  float norm_eps = 1e-6f;

  DType kv_dtype = DType::kF32;     // storage of keys and values: f32, bf16 or f16
  DType index_dtype = DType::kF32;  // storage and rounding of raw and pooled index keys

  bool operator==(const GeometryOptions&) const = default;
};

// The tokens one query may attend to: positions anchor, anchor + 1, ... anchor + tokens - 1.
struct VisibleRun {
  std::int64_t anchor = 0;
  std::int64_t tokens = 0;
};

class Geometry {
 public:
  // The number of positions there are: 0 .. kPositions - 1. Rows store positions as i32.
  static constexpr std::int64_t kPositions = std::int64_t{1} << 31;
  // No extent may exceed this; products of admitted extents are checked besides.
  static constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;

  // Admits `options`, or says which number is at fault and why.
  // Errors  InvalidArgument: zero, negative or too large sizes; B not a multiple of r; query heads not a multiple of kv
  //         heads; rotary dims odd or above index_dim; theta outside 1..2^128; inv_freq or rope_axes of another length
  //         or outside 0..1 or 0..2; pooling `none` with r != 1; pooling `mean` with tail `group` and no newest group
  //         forced; more groups forced inside the budget than it has; selections that do not divide kv_heads and
  //         index_heads; aliased values wider than keys; a dtype, pooling, tail or place of the scale that is none; a
  //         scale or eps that is not finite and positive. Overflow: a token or row whose bytes do not fit 64 bits.
  static Result<Geometry> admit(GeometryOptions options);

  // What was admitted, every default filled in; theta is 0, because the frequencies stand in its place. Admitting it
  // again gives an equal geometry.
  const GeometryOptions& options() const { return options_; }
  // Equal in every number, whichever of them were asked for and whichever are defaults.
  friend bool operator==(const Geometry& a, const Geometry& b) { return &a == &b || a.options_ == b.options_; }

  std::int64_t group_tokens() const { return options_.group_tokens; }
  std::int64_t budget_tokens() const { return options_.budget_tokens; }
  std::int64_t query_heads() const { return options_.query_heads; }
  std::int64_t kv_heads() const { return options_.kv_heads; }
  std::int64_t heads_per_kv() const { return options_.query_heads / options_.kv_heads; }
  std::int64_t head_dim() const { return options_.head_dim; }
  std::int64_t value_dim() const { return options_.value_dim; }
  bool values_alias_keys() const { return options_.values_alias_keys; }
  float softmax_scale() const { return *options_.softmax_scale; }
  std::int64_t index_heads() const { return options_.index_heads; }
  std::int64_t index_dim() const { return options_.index_dim; }
  std::int64_t index_rotary_dim() const { return options_.index_rotary_dim; }
  std::span<const float> inv_freq() const { return options_.inv_freq; }
  std::span<const std::uint8_t> rope_axes() const { return options_.rope_axes; }
  float norm_eps() const { return options_.norm_eps; }
  Pooling pooling() const { return options_.pooling; }
  bool relu() const { return options_.relu; }
  ScaleAt scale_at() const { return options_.scale_at; }
  DType kv_dtype() const { return options_.kv_dtype; }
  DType index_dtype() const { return options_.index_dtype; }

  Tail tail() const { return options_.tail; }
  std::int64_t forced_first() const { return options_.forced_first; }
  std::int64_t forced_newest() const { return options_.forced_newest; }
  bool forced_outside() const { return options_.forced_outside; }
  std::int64_t selections() const { return options_.selections; }
  // Of one selection.
  std::int64_t heads_per_selection() const { return options_.index_heads / options_.selections; }
  // The row, 0 .. S - 1, that the query heads of a kv head read.
  std::int64_t selection_of(std::int64_t kv_head) const { return kv_head * options_.selections / options_.kv_heads; }

  // Whether rows are those of contract section 2: one per query, a raw tail, no forced group, a key per group.
  bool is_plain() const {
    return options_.pooling != Pooling::kUnitMax && options_.tail == Tail::kRaw && options_.forced_first == 0 &&
           options_.forced_newest == 0 && options_.selections == 1;
  }

  // Whether index keys arrive finished, one per token, and are stored as given.
  bool finished_keys() const { return options_.pooling != Pooling::kMean; }
  // Tokens of one key that queries are scored against.
  std::int64_t key_tokens() const { return finished_keys() ? 1 : options_.group_tokens; }
  // The keys of so many tokens: of complete groups alone, or of every token.
  std::int64_t index_keys(std::int64_t tokens) const { return tokens / key_tokens(); }
  // Those among them that the groups of a query are scored by.
  std::int64_t scored_keys(std::int64_t visible_tokens) const;

  // K = B / r.
  std::int64_t budget_groups() const { return options_.budget_tokens / options_.group_tokens; }
  // The most groups of a row: K, and beside it what is forced outside of the budget.
  std::int64_t row_groups() const {
    return budget_groups() + (options_.forced_outside ? options_.forced_first + options_.forced_newest : 0);
  }
  // Storage for one row, in entries: B + r - 1; more if groups are forced outside of the budget, B with tail `group`.
  // A row of so many visible tokens, or of fewer, holds all of them.
  std::int64_t row_capacity() const {
    return row_groups() * options_.group_tokens + (options_.tail == Tail::kRaw ? options_.group_tokens - 1 : 0);
  }
  // G = floor(n / r) complete groups; with tail `group` the partial one too.
  std::int64_t groups(std::int64_t visible_tokens) const {
    const std::int64_t r = options_.group_tokens;
    return visible_tokens / r + (options_.tail == Tail::kGroup && visible_tokens % r != 0 ? 1 : 0);
  }
  // The raw tail, n mod r; none with tail `group`.
  std::int64_t tail_tokens(std::int64_t visible_tokens) const {
    return options_.tail == Tail::kRaw ? visible_tokens % options_.group_tokens : 0;
  }
  // What the newest group lacks of r tokens; 0 with a raw tail.
  std::int64_t missing_tokens(std::int64_t visible_tokens) const {
    const std::int64_t partial = options_.tail == Tail::kGroup ? visible_tokens % options_.group_tokens : 0;
    return partial == 0 ? 0 : options_.group_tokens - partial;
  }
  // The row's width without excluded groups: n up to row_capacity(), else B + n mod r. With tail `group` less what the
  // newest group lacks where that is forced; where it is not the row is so much narrower if it is chosen.
  std::int64_t row_width(std::int64_t visible_tokens) const;

  // Errors  InvalidArgument: anchor or tokens negative, or positions at or past kPositions. Errors name `row`.
  Status check_run(VisibleRun run, std::int64_t row = -1) const;

 private:
  explicit Geometry(GeometryOptions options) : options_(std::move(options)) {}
  GeometryOptions options_;  // with every default filled in
};

}  // namespace seriatim
