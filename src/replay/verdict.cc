#include "replay/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/distance.hpp"
#include "base/format.hpp"
#include "seriatim/row.hpp"

namespace seriatim {
namespace {

// The complete groups of a canonical row, ascending.
std::vector<std::int64_t> groups_of(const Geometry& geometry, VisibleRun run, std::span<const std::int32_t> row) {
  std::vector<std::int64_t> groups;
  const std::size_t grouped = row.size() - static_cast<std::size_t>(geometry.tail_tokens(run.tokens));
  for (std::size_t i = 0; i < grouped; i += static_cast<std::size_t>(geometry.group_tokens())) {
    groups.push_back((row[i] - run.anchor) / geometry.group_tokens());
  }
  return groups;
}

RowVerdict wrong(std::string reason, std::int64_t group, double margin = INFINITY) {
  return {Agreement::kWrong, margin, group, std::move(reason)};
}

}  // namespace

std::string_view agreement_name(Agreement agreement) {
  switch (agreement) {
    case Agreement::kNotGiven:
      return "not given";
    case Agreement::kExact:
      return "exact";
    case Agreement::kTie:
      return "tie";
    case Agreement::kNear:
      return "near";
    case Agreement::kWrong:
      return "wrong";
  }
  return "unknown";
}

std::span<const std::int32_t> live_part(std::span<const std::int32_t> padded) {
  const auto end = std::find(padded.begin(), padded.end(), kRowPadding);
  return padded.first(static_cast<std::size_t>(end - padded.begin()));
}

RowVerdict judge_row(const Geometry& geometry, VisibleRun run, std::span<const std::int32_t> ours,
                     std::span<const std::int32_t> expected, std::span<const float> scores, double margin) {
  if (std::equal(ours.begin(), ours.end(), expected.begin(), expected.end())) return {.agreement = Agreement::kExact};
  if (Status s = check_row(geometry, run, expected); !s.ok()) return wrong(std::string(s.message()), -1);

  const auto our_groups = groups_of(geometry, run, ours);
  const auto expected_groups = groups_of(geometry, run, expected);
  std::vector<std::int64_t> differing;
  std::set_symmetric_difference(our_groups.begin(), our_groups.end(), expected_groups.begin(), expected_groups.end(),
                                std::back_inserter(differing));
  // Both rows hold the forced groups, whose scores are not read.
  const std::int64_t newest = geometry.groups(run.tokens) - geometry.forced_newest();
  float cut = INFINITY;
  for (const std::int64_t group : our_groups) {
    if (group >= geometry.forced_first() && group < newest)
      cut = std::min(cut, scores[static_cast<std::size_t>(group)]);
  }
  double worst = 0.0;
  for (const std::int64_t group : differing) {
    const double distance =
        relative_distance(static_cast<double>(scores[static_cast<std::size_t>(group)]), static_cast<double>(cut));
    if (!(distance <= margin)) {
      return wrong(formatted("group {} scores {}, the cut is {}", group, scores[static_cast<std::size_t>(group)], cut),
                   group, distance);
    }
    worst = std::max(worst, distance);
  }
  return {.agreement = worst == 0.0 ? Agreement::kTie : Agreement::kNear, .margin = worst};
}

}  // namespace seriatim
