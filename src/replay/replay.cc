#include "seriatim/replay.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "base/distance.hpp"
#include "base/float_environment.hpp"
#include "capture/filled_cache.hpp"
#include "replay/digest.hpp"
#include "replay/place.hpp"
#include "replay/verdict.hpp"
#include "seriatim/score.hpp"

namespace seriatim {
namespace {

// One replay, step by step.
class Player {
 public:
  Player(const Capture& capture, const ReplayOptions& options)
      : capture_(capture), geometry_(capture.geometry), options_(options) {}

  Result<Replay> run() {
    for (auto step : {&Player::append, &Player::plan_rows, &Player::attend_own_rows, &Player::judge_rows,
                      &Player::compare_outputs}) {
      if (Status s = (this->*step)(); !s.ok()) return s;
    }
    if (Status s = summarize(); !s.ok()) return s;
    return std::move(out_);
  }

 private:
  void report(std::string_view stage, std::int64_t done, std::int64_t total) const {
    if (options_.progress) options_.progress(stage, done, total);
  }

  Status append() {
    if (Status s = choose_place(); !s.ok()) return s;
    return place_->fill([this](std::int64_t tokens) { report("append", tokens, capture_.tokens()); });
  }

  Status choose_place() {
    if ((options_.sharded == nullptr) != (options_.group == nullptr))
      return Status::error(Code::kInvalidArgument, "group", "group: given without the sharded engine, or it without");
    if (options_.sharded != nullptr) {
      place_ = place_sharded(capture_, *options_.sharded, *options_.group);
      return {};
    }
    Engine* engine = options_.engine;
    if (engine == nullptr) {
      auto made = Engine::host();
      if (!made.ok()) return made.status();
      own_engine_.emplace(*std::move(made));
      engine = &*own_engine_;
    }
    engine->clear_done();
    place_ = place_alone(capture_, *engine);
    return {};
  }

  Status plan_rows() {
    const auto queries = static_cast<std::int64_t>(capture_.query_positions.size());
    out_.queries = queries;
    out_.selections = geometry_.selections();
    out_.row_capacity = geometry_.row_capacity();
    out_.rows.assign(static_cast<std::size_t>(rows() * out_.row_capacity), kRowPadding);
    out_.counts.assign(static_cast<std::size_t>(rows()), 0);
    out_.verdicts.resize(static_cast<std::size_t>(rows()));
    for (std::int64_t first = 0; first < queries; first += kReplayQueries) {
      const std::int64_t count = std::min(kReplayQueries, queries - first);
      const IndexQueries index{rows_of(capture_.index_queries, first, count),
                               rows_of(capture_.index_head_weights, first, count), positions(first, count)};
      const Rows to = rows_from(out_.rows, out_.counts, first);
      if (Status s = place_->plan(index, to); !s.ok()) return s;
      report("plan", first + count, queries);
    }
    return {};
  }

  Status attend_own_rows() {
    out_.lse.resize(static_cast<std::size_t>(out_.queries * geometry_.query_heads()));
    return attend_rows(out_.rows, out_.counts, out_.output, out_.lse.data());
  }

  Status attend_rows(std::vector<std::int32_t>& rows, std::vector<std::int32_t>& counts, std::vector<float>& output,
                     float* lse) {
    const std::int64_t heads = geometry_.query_heads();
    const std::int64_t width = heads * geometry_.value_dim();
    output.resize(static_cast<std::size_t>(out_.queries * width));
    for (std::int64_t first = 0; first < out_.queries; first += kReplayQueries) {
      const std::int64_t count = std::min(kReplayQueries, out_.queries - first);
      const AttendQueries queries{rows_of(capture_.queries, first, count), positions(first, count), capture_.sinks};
      const Tensor to = dense_view(static_cast<void*>(output.data() + first * width), DType::kF32,
                                   {count, heads, geometry_.value_dim()});
      const Tensor lse_to =
          lse == nullptr ? Tensor{} : dense_view(static_cast<void*>(lse + first * heads), DType::kF32, {count, heads});
      const Rows from = rows_from(rows, counts, first);
      if (Status s = place_->attend(queries, from, to, lse_to); !s.ok()) return s;
      report("attend", first + count, out_.queries);
    }
    return {};
  }

  Status judge_rows() {
    out_.margin = options_.margin >= 0.0 ? options_.margin : geometry_.index_dtype() == DType::kF32 ? 1e-5 : 1e-2;
    if (capture_.expected_rows.empty()) return {};
    expected_rows_.resize(out_.rows.size());
    std::memcpy(expected_rows_.data(), capture_.expected_rows.data, expected_rows_.size() * sizeof(std::int32_t));
    expected_counts_.resize(out_.counts.size());
    std::vector<float> scores;
    for (std::int64_t row = 0; row < rows(); ++row) {
      const std::int64_t q = row / out_.selections;
      const VisibleRun run = visible(q);
      const auto expected = live_part(padded_row(expected_rows_, row));
      const Rows ours = rows_from(out_.rows, out_.counts, 0);
      if (Status s = score_row(q, row % out_.selections, scores); !s.ok()) return s;
      out_.verdicts[static_cast<std::size_t>(row)] =
          judge_row(geometry_, run, ours.row(row), expected, scores, out_.margin);
      // A row that attention cannot read is compared nowhere else.
      const bool readable = check_ascending(run, expected).ok();
      expected_counts_[static_cast<std::size_t>(row)] = readable ? static_cast<std::int32_t>(expected.size()) : 0;
      report("judge", q + 1, out_.queries);
    }
    return {};
  }

  // Of all groups of one selection; that of a partial group without a key is 0, and is never read.
  Status score_row(std::int64_t q, std::int64_t selection, std::vector<float>& scores) const {
    const std::int64_t tokens = visible(q).tokens;
    const std::int64_t heads = geometry_.heads_per_selection();
    const ConstTensor query = rows_of(row_of(capture_.index_queries, q), selection * heads, heads);
    const ConstTensor weights = capture_.index_head_weights.empty()
                                    ? ConstTensor{}
                                    : rows_of(row_of(capture_.index_head_weights, q), selection * heads, heads);
    const std::int64_t position = capture_.query_positions[static_cast<std::size_t>(q)];
    std::vector<float> scored;
    if (Status s = place_->score(query, weights, position, scored); !s.ok()) return s;
    const auto groups = static_cast<std::size_t>(geometry_.groups(tokens));
    if (geometry_.pooling() != Pooling::kUnitMax) {
      scores = std::move(scored);
      scores.resize(groups);
      return {};
    }
    scored.resize(static_cast<std::size_t>(geometry_.scored_keys(tokens)));
    scores.assign(groups, 0.0f);
    return best_of_units(geometry_, scored, scores);
  }

  Status compare_outputs() {
    if (capture_.expected_output.empty()) return {};
    out_.output_compared = true;
    out_.output_bound = geometry_.kv_dtype() == DType::kF32 ? 1e-5 : 1e-2;
    const double scale = largest_value(capture_);
    out_.difference_own_rows = largest_difference(out_.output, scale, nullptr);
    if (expected_rows_.empty()) {
      out_.difference_expected_rows = largest_difference(out_.output, scale, &out_.worst_query);
      return {};
    }
    std::vector<float> output;
    if (Status s = attend_rows(expected_rows_, expected_counts_, output, nullptr); !s.ok()) return s;
    out_.difference_expected_rows = largest_difference(output, scale, &out_.worst_query);
    return {};
  }

  double largest_difference(const std::vector<float>& output, double scale, std::int64_t* worst_query) const {
    const std::int64_t width = geometry_.query_heads() * geometry_.value_dim();
    double largest = 0.0;
    for (std::int64_t i = 0; i < out_.queries * width; ++i) {
      float expected = 0.0f;
      std::memcpy(&expected, capture_.expected_output.data + i * 4, sizeof expected);
      const double difference =
          distance_over(static_cast<double>(output[static_cast<std::size_t>(i)]), static_cast<double>(expected), scale);
      if (difference > largest) {
        largest = difference;
        if (worst_query != nullptr) *worst_query = i / width;
      }
    }
    return largest;
  }

  Status summarize() {
    const std::int64_t r = geometry_.group_tokens();
    for (std::int64_t row = 0; row < rows(); ++row) {
      const std::int64_t tokens = visible(row / out_.selections).tokens;
      const std::int64_t grouped = out_.counts[static_cast<std::size_t>(row)] - geometry_.tail_tokens(tokens);
      out_.groups_dropped += geometry_.groups(tokens) - (grouped + r - 1) / r;
    }
    out_.rows_digest = digest({std::as_bytes(std::span(out_.rows)), std::as_bytes(std::span(out_.counts))});
    out_.output_digest = digest({std::as_bytes(std::span(out_.output)), std::as_bytes(std::span(out_.lse))});
    return place_->account(out_);
  }

  VisibleRun visible(std::int64_t q) const {
    return {capture_.anchor, capture_.query_positions[static_cast<std::size_t>(q)] - capture_.anchor + 1};
  }
  std::span<const std::int64_t> positions(std::int64_t first, std::int64_t count) const {
    return std::span(capture_.query_positions)
        .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }
  std::int64_t rows() const { return out_.queries * geometry_.selections(); }
  std::span<const std::int32_t> padded_row(const std::vector<std::int32_t>& all, std::int64_t row) const {
    return std::span(all).subspan(static_cast<std::size_t>(row * out_.row_capacity),
                                  static_cast<std::size_t>(out_.row_capacity));
  }
  // Of the queries from `first` on.
  Rows rows_from(std::vector<std::int32_t>& all, std::vector<std::int32_t>& counts, std::int64_t first) const {
    first *= out_.selections;
    return {all.data() + first * out_.row_capacity, out_.row_capacity, counts.data() + first};
  }

  const Capture& capture_;
  const Geometry& geometry_;
  const ReplayOptions& options_;
  std::optional<Engine> own_engine_;
  std::unique_ptr<ReplayPlace> place_;
  std::vector<std::int32_t> expected_rows_;
  std::vector<std::int32_t> expected_counts_;
  Replay out_;
};

}  // namespace

std::int64_t Replay::count(Agreement agreement) const {
  return std::count_if(verdicts.begin(), verdicts.end(),
                       [agreement](const RowVerdict& v) { return v.agreement == agreement; });
}

bool Replay::agrees() const {
  return count(Agreement::kWrong) == 0 && (!output_compared || difference_expected_rows <= output_bound);
}

Result<Replay> replay(const Capture& capture, const ReplayOptions& options) {
  DefaultFloatEnvironment environment;
  try {
    return Player(capture, options).run();
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "replay", "replay: the system refused memory");
  }
}

Status write_replay(const std::string& path, const Capture& capture, const Replay& replay) {
  const Geometry& g = capture.geometry;
  const bool sets = g.selections() > 1;
  const NamedTensor tensors[] = {
      {"rows", sets ? dense_view(replay.rows.data(), DType::kI32, {replay.queries, g.selections(), replay.row_capacity})
                    : dense_view(replay.rows.data(), DType::kI32, {replay.queries, replay.row_capacity})},
      {"counts", sets ? dense_view(replay.counts.data(), DType::kI32, {replay.queries, g.selections()})
                      : dense_view(replay.counts.data(), DType::kI32, {replay.queries})},
      {"output", dense_view(replay.output.data(), DType::kF32, {replay.queries, g.query_heads(), g.value_dim()})},
      {"lse", dense_view(replay.lse.data(), DType::kF32, {replay.queries, g.query_heads()})},
  };
  return write_safetensors(path, {{"seriatim", "replay/1"}, {"source", capture.source}}, tensors);
}

}  // namespace seriatim
