// A capture as a judge: its tokens in a cache, our scores and outputs for its queries.

#include <algorithm>
#include <new>
#include <optional>

#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "capture/filled_cache.hpp"
#include "seriatim/attend.hpp"
#include "seriatim/check.hpp"
#include "seriatim/oracle.hpp"
#include "seriatim/row.hpp"
#include "seriatim/score.hpp"
#include "seriatim/step.hpp"

namespace seriatim {
namespace {

Status misfit(std::string_view argument, std::string_view what, std::int64_t row = -1) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what), {row, -1});
}

class Judge final : public JudgedCapture {
 public:
  explicit Judge(Capture capture) : capture_(std::move(capture)) {}

  Status load() {
    auto filled = fill_cache(capture_, all_tokens(capture_), nullptr, {});
    if (!filled.ok()) return filled.status();
    filled_.emplace(*std::move(filled));
    largest_value_ = seriatim::largest_value(capture_);
    return {};
  }

  const Capture& capture() const override { return capture_; }
  double largest_value() const override { return largest_value_; }
  Result<std::unique_ptr<Selection>> rows(const Selection* selection) const override;
  Status output(std::int64_t query, std::span<const std::int32_t> row, std::span<float> ours,
                std::span<double> exact) const override;

  Status scores(std::int64_t query, std::span<float> scores) const {
    const auto at = capture_.query_positions[static_cast<std::size_t>(query)];
    const ConstTensor weights =
        capture_.index_head_weights.empty() ? ConstTensor{} : row_of(capture_.index_head_weights, query);
    return score_groups(capture_.geometry, row_of(capture_.index_queries, query), weights,
                        filled_->layer.pooled_up_to(at), scores);
  }
  std::int64_t visible(std::int64_t query) const {
    return capture_.query_positions[static_cast<std::size_t>(query)] - capture_.anchor + 1;
  }

 private:
  Capture capture_;
  std::optional<FilledCache> filled_;
  double largest_value_ = 1.0;
};

// Somebody's rows with the capture's scores.
class RescoredSelection final : public Selection {
 public:
  RescoredSelection(const Judge& judge, const Selection* selection, std::unique_ptr<Selection> owned)
      : judge_(judge),
        owned_(std::move(owned)),
        rows_(selection != nullptr ? *selection : *owned_),
        about_(rows_.about()) {
    about_.has_scores = true;
  }
  const About& about() const override { return about_; }
  Status read_row(std::int64_t row, std::span<std::int64_t> entries) const override {
    return rows_.read_row(row, entries);
  }
  Status read_scores(std::int64_t row, std::span<float> scores) const override { return judge_.scores(row, scores); }
  Status read_output(std::int64_t row, std::span<float> output) const override {
    return rows_.read_output(row, output);
  }

 private:
  const Judge& judge_;
  std::unique_ptr<Selection> owned_;
  const Selection& rows_;
  About about_;
};

// The capture's own expected rows.
Result<std::unique_ptr<Selection>> expected_of(const Judge& judge) {
  const Capture& capture = judge.capture();
  if (capture.expected_rows.empty())
    return misfit("expected_rows", "the capture has none, so there is nothing to judge");
  Selection::About about;
  about.group_tokens = capture.geometry.group_tokens();
  about.budget_tokens = capture.geometry.budget_tokens();
  about.anchor = capture.anchor;
  about.engine = capture.source;
  std::vector<std::int64_t> visible;
  for (std::int64_t q = 0; q < std::ssize(capture.query_positions); ++q) visible.push_back(judge.visible(q));
  const SelectionViews views{capture.expected_rows,
                             dense_view(static_cast<const void*>(visible.data()), DType::kI64, {std::ssize(visible)}),
                             {},
                             capture.expected_output};
  return view_selection(views, std::move(about));
}

Result<std::unique_ptr<Selection>> Judge::rows(const Selection* selection) const {
  try {
    if (selection == nullptr) {
      auto expected = expected_of(*this);
      if (!expected.ok()) return expected.status();
      return std::unique_ptr<Selection>(std::make_unique<RescoredSelection>(*this, nullptr, *std::move(expected)));
    }
    const Selection::About& about = selection->about();
    const Geometry& g = capture_.geometry;
    if (about.group_tokens != g.group_tokens())
      return misfit("group_tokens", formatted("{} where the capture has {}", about.group_tokens, g.group_tokens()));
    if (about.budget_tokens != g.budget_tokens())
      return misfit("budget_tokens", formatted("{} where the capture has {}", about.budget_tokens, g.budget_tokens()));
    if (about.anchor != capture_.anchor)
      return misfit("anchor", formatted("{} where the capture has {}", about.anchor, capture_.anchor));
    if (about.rows != std::ssize(capture_.query_positions))
      return misfit("rows",
                    formatted("{} where the capture has {} queries", about.rows, capture_.query_positions.size()));
    for (std::int64_t q = 0; q < about.rows; ++q) {
      const std::int64_t given = about.visible[static_cast<std::size_t>(q)];
      if (given != visible(q))
        return misfit("visible", formatted("row {} sees {} tokens, the capture's query {}", q, given, visible(q)), q);
    }
    if (about.output_heads > 0 && (about.output_heads != g.query_heads() || about.output_dim != g.value_dim())) {
      return misfit("output", formatted("{} x {} where the capture has {} heads of {}", about.output_heads,
                                        about.output_dim, g.query_heads(), g.value_dim()));
    }
    return std::unique_ptr<Selection>(std::make_unique<RescoredSelection>(*this, selection, nullptr));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "selection", "selection: the system refused memory");
  }
}

Status Judge::output(std::int64_t query, std::span<const std::int32_t> row, std::span<float> ours,
                     std::span<double> exact) const {
  DefaultFloatEnvironment environment;
  const Geometry& g = capture_.geometry;
  auto engine = Engine::host();
  if (!engine.ok()) return engine.status();
  std::vector<std::int32_t> padded(static_cast<std::size_t>(g.row_capacity()), kRowPadding);
  if (row.size() > padded.size())
    return misfit("row", formatted("{} entries, at most {}", row.size(), padded.size()), query);
  std::copy(row.begin(), row.end(), padded.begin());
  auto count = static_cast<std::int32_t>(row.size());
  const std::int64_t position = capture_.query_positions[static_cast<std::size_t>(query)];
  const AttendQueries queries{rows_of(capture_.queries, query, 1), {&position, 1}, capture_.sinks};
  const Tensor to = dense_view(static_cast<void*>(ours.data()), DType::kF32, {1, g.query_heads(), g.value_dim()});
  if (Status s = engine->attend(filled_->layer, queries, {padded.data(), g.row_capacity(), &count}, to, {}); !s.ok())
    return s;
  std::vector<std::int64_t> tokens;
  for (const std::int32_t entry : row) tokens.push_back(entry - capture_.anchor);
  std::vector<double> lse(static_cast<std::size_t>(g.query_heads()));
  return attend_f64(g, row_of(capture_.queries, query), {capture_.keys, capture_.values}, tokens, capture_.sinks, exact,
                    lse);
}

}  // namespace

Result<std::unique_ptr<JudgedCapture>> judge_with(Capture capture) {
  DefaultFloatEnvironment environment;
  if (!capture.geometry.is_plain()) {
    return Status::error(Code::kUnsupported, "geometry",
                         "geometry: rows of the rule of contract section 2 are judged alone; replay the capture");
  }
  try {
    auto judge = std::make_unique<Judge>(std::move(capture));
    if (Status s = judge->load(); !s.ok()) return s;
    return std::unique_ptr<JudgedCapture>(std::move(judge));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "capture", "capture: the system refused memory");
  }
}

}  // namespace seriatim
