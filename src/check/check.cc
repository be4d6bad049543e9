#include "seriatim/check.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "check/outputs.hpp"
#include "check/repeats.hpp"
#include "check/row_judge.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kUnitRows = 64;
constexpr std::int64_t kWaveUnits = 64;  // between two looks at findings and progress

// What one worker holds.
struct Bench {
  RowJudge judge;
  std::vector<std::int64_t> entries;
  std::vector<float> scores;
};

// What one unit of rows came to.
struct UnitResult {
  std::vector<Finding> findings;
  std::array<CheckReport::Count, kPromises> counts{};
  std::int64_t near_rows = 0;
  double largest_near = 0.0;
  Status status;  // of the first row that could not be read
};

class Checker final : public Task {
 public:
  Checker(const Selection& selection, const Geometry& geometry, const CheckOptions& options)
      : selection_(selection),
        about_(selection.about()),
        options_(options),
        executor_(options.executor != nullptr ? *options.executor : serial_executor()) {
    for (int worker = 0; worker < executor_.concurrency(); ++worker) {
      benches_.push_back({RowJudge(geometry, about_.unit, options.rule, options.margin),
                          std::vector<std::int64_t>(static_cast<std::size_t>(about_.width)),
                          {}});
    }
    report_.rows = about_.rows;
    report_.margin = options.margin;
    report_.rule = options.rule;
    report_.row_faults.assign(static_cast<std::size_t>(about_.rows), 0);
    if (about_.has_scores) digests_.resize(static_cast<std::size_t>(about_.rows));
  }

  Result<CheckReport> run() {
    for (first_ = 0; first_ < about_.rows; first_ += kUnitRows * kWaveUnits) {
      const std::int64_t rows = std::min(kUnitRows * kWaveUnits, about_.rows - first_);
      results_.assign(static_cast<std::size_t>((rows + kUnitRows - 1) / kUnitRows), {});
      executor_.run(std::ssize(results_), *this);
      for (UnitResult& unit : results_) {
        if (!unit.status.ok()) return unit.status;
        take(unit);
      }
      if (options_.progress) options_.progress("rows", first_ + rows, about_.rows);
    }
    if (Status s = judge_pairs(); !s.ok()) return s;
    if (Status s = judge_arithmetic(); !s.ok()) return s;
    std::stable_sort(report_.findings.begin(), report_.findings.end(), [](const Finding& a, const Finding& b) {
      return a.row != b.row ? a.row < b.row : a.promise < b.promise;
    });
    for (std::uint16_t& faults : report_.row_faults) {
      const bool faulty = (faults | CheckReport::kNearBit) != CheckReport::kNearBit;
      if (faulty) ++report_.faulty_rows;
    }
    return std::move(report_);
  }

  void perform(std::int64_t unit, int worker) override {
    UnitResult& result = results_[static_cast<std::size_t>(unit)];
    const std::int64_t first = first_ + unit * kUnitRows;
    const std::int64_t end = std::min(first + kUnitRows, about_.rows);
    try {
      for (std::int64_t row = first; row < end && result.status.ok(); ++row)
        result.status = judge(row, benches_[static_cast<std::size_t>(worker)], result);
    } catch (const std::bad_alloc&) {
      result.status = Status::error(Code::kOutOfMemory, "rows", "rows: the system refused memory");
    }
  }

 private:
  Status judge(std::int64_t row, Bench& bench, UnitResult& result) {
    const VisibleRun visible{about_.anchor, about_.visible[static_cast<std::size_t>(row)]};
    if (Status s = selection_.read_row(row, bench.entries); !s.ok()) return s;
    if (about_.has_scores) {
      bench.scores.resize(static_cast<std::size_t>(visible.tokens / about_.group_tokens));
      if (Status s = selection_.read_scores(row, bench.scores); !s.ok()) return s;
      digests_[static_cast<std::size_t>(row)] = digest_row(visible.tokens, bench.scores, bench.entries);
    }
    const auto outcome =
        bench.judge.judge(row, visible, bench.entries, bench.scores, about_.has_scores, result.findings);
    if (!outcome.ok()) return outcome.status();
    for (std::size_t i = 0; i < kPromises; ++i) {
      if ((outcome->judged | outcome->faults) >> i & 1) ++result.counts[i].judged;
      if (outcome->faults >> i & 1) ++result.counts[i].faults;
    }
    if (outcome->near) {
      ++result.near_rows;
      result.largest_near = std::max(result.largest_near, outcome->near_margin);
    }
    report_.row_faults[static_cast<std::size_t>(row)] =
        static_cast<std::uint16_t>(outcome->faults | (outcome->near ? unsigned{CheckReport::kNearBit} : 0u));
    return {};
  }

  void take(UnitResult& unit) {
    for (std::size_t i = 0; i < kPromises; ++i) {
      report_.counts[i].judged += unit.counts[i].judged;
      report_.counts[i].faults += unit.counts[i].faults;
    }
    report_.near_rows += unit.near_rows;
    report_.largest_near = std::max(report_.largest_near, unit.largest_near);
    for (Finding& finding : unit.findings) keep(std::move(finding));
  }

  void keep(Finding finding) {
    if (kept_[static_cast<std::size_t>(finding.promise)]++ < options_.findings_per_promise)
      report_.findings.push_back(std::move(finding));
  }

  // Findings that come after the pass over the rows.
  void count(std::vector<Finding>& findings, Promise promise, std::int64_t judged) {
    CheckReport::Count& counts = report_.counts[static_cast<std::size_t>(promise)];
    counts = {judged, std::ssize(findings)};
    for (Finding& finding : findings) {
      std::uint16_t& faults = report_.row_faults[static_cast<std::size_t>(finding.row)];
      faults = static_cast<std::uint16_t>(faults | promise_bit(promise));
      keep(std::move(finding));
    }
  }

  Status judge_pairs() {
    if (!about_.has_scores) return {};
    std::vector<Finding> findings;
    std::int64_t judged = 0;
    if (Status s = find_repeats(selection_, digests_, findings, judged); !s.ok()) return s;
    count(findings, Promise::kRepeat, judged);
    return {};
  }

  Status judge_arithmetic() {
    if (options_.against == nullptr || about_.output_heads == 0) return {};
    std::vector<Finding> findings;
    report_.arithmetic.emplace();
    if (Status s = judge_outputs(selection_, *options_.against, options_, findings, *report_.arithmetic); !s.ok())
      return s;
    count(findings, Promise::kArithmetic, report_.arithmetic->rows);
    return {};
  }

  const Selection& selection_;
  const Selection::About& about_;
  const CheckOptions& options_;
  Executor& executor_;
  std::vector<Bench> benches_;
  std::vector<UnitResult> results_;
  std::vector<RowDigest> digests_;
  std::array<std::int64_t, kPromises> kept_{};
  std::int64_t first_ = 0;
  CheckReport report_;
};

}  // namespace

Result<CheckReport> check(const Selection& selection, const CheckOptions& options) {
  DefaultFloatEnvironment environment;
  if (!(options.margin >= 0.0))
    return Status::error(Code::kInvalidArgument, "margin", formatted("margin: {} is below 0", options.margin));
  if (options.findings_per_promise < 0)
    return Status::error(Code::kInvalidArgument, "findings_per_promise", "findings_per_promise: is below 0");
  try {
    GeometryOptions rule;  // heads and dims play no part in the rule
    rule.group_tokens = selection.about().group_tokens;
    rule.budget_tokens = selection.about().budget_tokens;
    const auto geometry = Geometry::admit(std::move(rule));
    if (!geometry.ok()) return geometry.status();
    return Checker(selection, *geometry, options).run();
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "rows", "rows: the system refused memory");
  }
}

}  // namespace seriatim
