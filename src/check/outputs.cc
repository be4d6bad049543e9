#include "check/outputs.hpp"

#include <algorithm>
#include <cmath>

#include "base/distance.hpp"
#include "base/format.hpp"
#include "base/magnitude.hpp"
#include "base/ulp_distance.hpp"
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

struct RowDistance {
  double relative = 0.0;
  double relative_f64 = 0.0;
  double own_f64 = 0.0;
  double ulp = 0.0;
  std::int64_t element = 0;  // of the largest `relative`
};

int significand_bits(DType dtype) { return dtype == DType::kF32 ? 24 : dtype == DType::kF16 ? 11 : 8; }

RowDistance measure(std::span<const float> theirs, std::span<const float> ours, std::span<const double> exact,
                    std::size_t head_dim, DType dtype, double scale) {
  RowDistance row;
  double ulp = 0.0;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    if (i % head_dim == 0) {
      const float largest =
          row_kernels(default_kernels())
              .largest(std::as_bytes(ours.subspan(i)).data(), static_cast<std::int64_t>(head_dim), DType::kF32);
      ulp = f32_ulp_at(largest > 0.0f ? static_cast<double>(largest) : scale) *
            std::ldexp(1.0, 24 - significand_bits(dtype));
    }
    const auto their = static_cast<double>(theirs[i]);
    const auto our = static_cast<double>(ours[i]);
    const double relative = distance_over(their, our, scale);
    if (relative > row.relative) {
      row.relative = relative;
      row.element = static_cast<std::int64_t>(i);
    }
    row.relative_f64 = std::max(row.relative_f64, distance_over(their, exact[i], scale));
    row.own_f64 = std::max(row.own_f64, distance_over(our, exact[i], scale));
    row.ulp = std::max(row.ulp, distance_over(their, our, ulp));
  }
  return row;
}

}  // namespace

Status judge_outputs(const Selection& selection, const JudgedCapture& against, const CheckOptions& options,
                     std::vector<Finding>& findings, ArithmeticReport& report) {
  const Selection::About& about = selection.about();
  const Geometry& g = against.capture().geometry;
  const double scale = against.largest_value();
  report.dtype = g.kv_dtype();
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
    const RowDistance distance =
        measure(theirs, ours, exact, static_cast<std::size_t>(about.output_dim), g.kv_dtype(), scale);
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
         .what = formatted("head {} dim {} is {}, the canonical output {} ({:.3g} ulp of {} at the head's "
                           "largest, {:.3g} of the largest |value|)",
                           distance.element / about.output_dim, distance.element % about.output_dim, theirs[at],
                           ours[at], distance.ulp, dtype_name(g.kv_dtype()), distance.relative)});
  }
  return {};
}

}  // namespace seriatim
