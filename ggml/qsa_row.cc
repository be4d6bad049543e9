#include "qsa_row.hpp"

#include <algorithm>
#include <limits>

#include "seriatim/select.hpp"

namespace seriatim::plugin {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint16_t kHidden = 0xfc00;

// The best groups, ascending.
std::span<const std::int32_t> choose(QsaScratch& scratch, std::int64_t keep) {
  const auto groups = static_cast<std::int64_t>(scratch.scores.size());
  scratch.select.resize(static_cast<std::size_t>(select_scratch_entries(groups)));
  scratch.chosen.resize(static_cast<std::size_t>(std::min(keep, groups)));
  const std::int64_t count = *select_groups(scratch.scores, keep, NanPolicy::kExclude, scratch.select, scratch.chosen);
  return std::span(scratch.chosen).first(static_cast<std::size_t>(count));
}

// More than fit: those of the lowest cells, as ties go.
void cut_forced(QsaScratch& scratch, std::size_t width) {
  if (scratch.forced.size() > width) scratch.forced.resize(width);
}

}  // namespace

std::int64_t groups_that_fit(std::int64_t width, std::int64_t group_tokens, std::int64_t forced) {
  return std::max<std::int64_t>(width - std::max(forced, group_tokens - 1), 0) / group_tokens;
}

void qsa_row_of_cells(std::span<const float> scores, std::span<const std::int32_t> cell_group, std::int64_t groups,
                      std::int64_t group_tokens, QsaScratch& scratch, std::span<std::int32_t> row) {
  scratch.scores.assign(static_cast<std::size_t>(groups), kNaN);
  scratch.forced.clear();
  const auto group_of = [&](std::size_t cell) {
    return cell_group[cell] >= 0 && cell_group[cell] < groups ? cell_group[cell] : -1;
  };
  for (std::size_t cell = 0; cell < scores.size(); ++cell) {
    if (scores[cell] >= kForcedBias) {
      scratch.forced.push_back(static_cast<std::int32_t>(cell));
    } else if (scores[cell] > -std::numeric_limits<float>::infinity() && group_of(cell) >= 0) {
      scratch.scores[static_cast<std::size_t>(group_of(cell))] = scores[cell];
    }
  }
  cut_forced(scratch, row.size());
  const auto forced = static_cast<std::int64_t>(scratch.forced.size());
  const auto width = static_cast<std::int64_t>(row.size());
  const auto chosen = choose(scratch, groups_that_fit(width, group_tokens, forced));
  std::vector<float>& of_group = scratch.scores;  // becomes 1 for those that were chosen
  std::fill(of_group.begin(), of_group.end(), 0.0f);
  for (const std::int32_t group : chosen) of_group[static_cast<std::size_t>(group)] = 1.0f;
  std::size_t written = 0, next_forced = 0;
  for (std::size_t cell = 0; cell < scores.size() && written < row.size(); ++cell) {
    const bool is_forced =
        next_forced < scratch.forced.size() && scratch.forced[next_forced] == static_cast<std::int32_t>(cell);
    if (is_forced) ++next_forced;
    const bool is_chosen = !is_forced && scores[cell] > -std::numeric_limits<float>::infinity() &&
                           scores[cell] < kForcedBias && group_of(cell) >= 0 &&
                           of_group[static_cast<std::size_t>(group_of(cell))] == 1.0f;
    if (is_forced || is_chosen) row[written++] = static_cast<std::int32_t>(cell);
  }
  std::fill(row.begin() + static_cast<std::ptrdiff_t>(written), row.end(), written == 0 ? 0 : row[written - 1]);
}

std::int64_t qsa_row_of_groups(const std::int32_t* group_cells, std::int64_t group_tokens, const std::uint16_t* mask,
                               QsaScratch& scratch, std::span<std::int32_t> row) {
  cut_forced(scratch, row.size());
  const auto chosen = choose(scratch, groups_that_fit(static_cast<std::int64_t>(row.size()), group_tokens,
                                                      static_cast<std::int64_t>(scratch.forced.size())));
  std::int64_t written = 0;
  bool ascending = true;
  const auto put = [&](std::int32_t cell) {
    ascending = ascending && (written == 0 || row[static_cast<std::size_t>(written - 1)] < cell);
    row[static_cast<std::size_t>(written++)] = cell;
  };
  for (const std::int32_t group : chosen) {
    for (std::int64_t i = 0; i < group_tokens; ++i) {
      const std::int32_t cell = group_cells[group * group_tokens + i];
      if (mask[cell] != kHidden) put(cell);
    }
  }
  for (const std::int32_t cell : scratch.forced) put(cell);
  const auto end = row.begin() + static_cast<std::ptrdiff_t>(written);
  if (ascending) return written;
  std::sort(row.begin(), end);  // cells that were reused, or of several sequences
  return std::unique(row.begin(), end) - row.begin();
}

}  // namespace seriatim::plugin
