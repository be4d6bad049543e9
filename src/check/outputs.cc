#include "check/outputs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/format.hpp"
#include "seriatim/row.hpp"

namespace seriatim {
namespace {

// The set that an engine chose, as attention reads it; empty where it cannot.
std::vector<std::int32_t> readable_row(const Selection::About& about, VisibleRun run,
                                       std::vector<std::int64_t>& entries) {
  std::vector<std::int32_t> row;
  const std::int64_t tail_from = run.tokens - run.tokens % about.group_tokens;
  for (const std::int64_t entry : entries) {
    if (entry == kRowPadding) continue;
    if (about.unit == RowUnit::kToken) {
      if (entry < run.anchor || entry >= run.anchor + run.tokens) return {};
      row.push_back(static_cast<std::int32_t>(entry));
      continue;
    }
    if (entry < 0 || entry >= tail_from / about.group_tokens) return {};
    for (std::int64_t k = 0; k < about.group_tokens; ++k)
      row.push_back(static_cast<std::int32_t>(run.anchor + entry * about.group_tokens + k));
  }
  for (std::int64_t token = tail_from; about.unit == RowUnit::kGroup && token < run.tokens; ++token)
    row.push_back(static_cast<std::int32_t>(run.anchor + token));
  std::sort(row.begin(), row.end());
  if (std::adjacent_find(row.begin(), row.end()) != row.end()) return {};
  return row;
}

// How many f32 lie between two; the largest count where one is NaN.
std::int64_t ulp_between(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::int64_t{1} << 32;
  const auto place = [](float value) {
    const auto bits = std::bit_cast<std::int32_t>(value);
    return bits < 0 ? -static_cast<std::int64_t>(bits & 0x7fffffff) : static_cast<std::int64_t>(bits);
  };
  return std::abs(place(a) - place(b));
}

double apart(double a, double b, double scale) {
  const double distance = std::fabs(a - b) / scale;
  return std::isnan(distance) ? INFINITY : distance;
}

struct RowDistance {
  double relative = 0.0;
  double relative_f64 = 0.0;
  double own_f64 = 0.0;
  std::int64_t ulp = 0;
  std::int64_t element = 0;  // of the largest `relative`
};

RowDistance measure(std::span<const float> theirs, std::span<const float> ours, std::span<const double> exact,
                    double scale) {
  RowDistance row;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const double relative = apart(static_cast<double>(theirs[i]), static_cast<double>(ours[i]), scale);
    if (relative > row.relative) {
      row.relative = relative;
      row.element = static_cast<std::int64_t>(i);
    }
    row.relative_f64 = std::max(row.relative_f64, apart(static_cast<double>(theirs[i]), exact[i], scale));
    row.own_f64 = std::max(row.own_f64, apart(static_cast<double>(ours[i]), exact[i], scale));
    row.ulp = std::max(row.ulp, ulp_between(theirs[i], ours[i]));
  }
  return row;
}

}  // namespace

Status judge_outputs(const Selection& selection, const JudgedCapture& against, const CheckOptions& options,
                     std::vector<Finding>& findings, ArithmeticReport& report) {
  const Selection::About& about = selection.about();
  const Geometry& g = against.capture().geometry;
  const double scale = against.largest_value();
  report.bound = g.kv_dtype() == DType::kF32 ? 1e-5 : 1e-2;
  const auto width = static_cast<std::size_t>(about.output_heads * about.output_dim);
  std::vector<std::int64_t> entries(static_cast<std::size_t>(about.width));
  std::vector<float> theirs(width);
  std::vector<float> ours(width);
  std::vector<double> exact(width);
  for (std::int64_t q = 0; q < about.rows; ++q) {
    if (options.progress) options.progress("outputs", q, about.rows);
    const VisibleRun run{about.anchor, about.visible[static_cast<std::size_t>(q)]};
    if (Status s = selection.read_row(q, entries); !s.ok()) return s;
    const auto row = readable_row(about, run, entries);
    if (row.empty() || std::ssize(row) > g.row_capacity()) continue;
    if (Status s = selection.read_output(q, theirs); !s.ok()) return s;
    if (Status s = against.output(q, row, ours, exact); !s.ok()) return s;
    const RowDistance distance = measure(theirs, ours, exact, scale);
    ++report.rows;
    if (report.worst_row < 0 || distance.relative > report.relative) report.worst_row = q;
    report.relative = std::max(report.relative, distance.relative);
    report.relative_f64 = std::max(report.relative_f64, distance.relative_f64);
    report.own_f64 = std::max(report.own_f64, distance.own_f64);
    report.ulp = std::max(report.ulp, distance.ulp);
    if (distance.relative <= report.bound) continue;
    const auto at = static_cast<std::size_t>(distance.element);
    findings.push_back(
        {.promise = Promise::kArithmetic,
         .row = q,
         .entry = distance.element,
         .score = theirs[at],
         .other_score = ours[at],
         .scored = true,
         .margin = distance.relative,
         .what = formatted("head {} dim {} is {}, the canonical output {} ({} ulp, {:.3g} of the largest |value|)",
                           distance.element / about.output_dim, distance.element % about.output_dim, theirs[at],
                           ours[at], distance.ulp, distance.relative)});
  }
  return {};
}

}  // namespace seriatim
