#include "seriatim/select.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "select/select_kernels.hpp"
#include "select/select_ref.hpp"

namespace seriatim {
namespace {

std::string at_row(std::int64_t row) { return row < 0 ? std::string() : formatted(" of row {}", row); }

Status nan_at_group(std::int64_t group, std::int64_t row) {
  return Status::error(Code::kNotANumber, "scores", formatted("scores: group {}{} is NaN", group, at_row(row)),
                       {row, group});
}

Selected select_by_ref(const SelectTask& task) {
  std::size_t candidates = 0;
  for (std::size_t g = 0; g < task.scores.size(); ++g) {
    if (!std::isnan(task.scores[g])) {
      task.scratch[candidates++] = static_cast<std::int32_t>(g);
    } else if (task.nan == NanPolicy::kRefuse) {
      return {0, static_cast<std::int64_t>(g)};
    }
  }
  const std::int64_t count = select_ref(task.scores, task.keep, task.scratch.first(candidates));
  std::copy_n(task.scratch.begin(), count, task.chosen.begin());
  return {count, -1};
}

}  // namespace

const SelectKernels& select_reference() {
  static constexpr SelectKernels kTable{"reference", select_by_ref};
  return kTable;
}

std::int64_t select_scratch_entries(std::int64_t groups) { return groups; }

Result<std::int64_t> select_with(Kernels kernels, std::span<const float> scores, std::int64_t keep, NanPolicy nan,
                                 std::span<std::int32_t> scratch, std::span<std::int32_t> chosen, std::int64_t row) {
  DefaultFloatEnvironment environment;
  const auto invalid = [row](std::string_view argument, std::string_view what) {
    return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what), {row, -1});
  };
  const auto groups = static_cast<std::int64_t>(scores.size());
  if (groups > std::numeric_limits<std::int32_t>::max())
    return invalid("scores", formatted("{} groups pass i32", groups));
  if (keep < 0) return invalid("keep", formatted("{} is negative", keep));
  if (static_cast<std::int64_t>(chosen.size()) < std::min(keep, groups)) {
    return invalid("chosen", formatted("{} entries for {} groups", chosen.size(), std::min(keep, groups)));
  }
  if (static_cast<std::int64_t>(scratch.size()) < select_scratch_entries(groups)) {
    return invalid("scratch",
                   formatted("{} entries where {} are needed", scratch.size(), select_scratch_entries(groups)));
  }
  const auto used = scratch.first(static_cast<std::size_t>(select_scratch_entries(groups)));
  const Selected selected = select_kernels(kernels).select({scores, keep, nan, used, chosen});
  if (selected.nan_group >= 0) return nan_at_group(selected.nan_group, row);
  return selected.count;
}

Result<std::int64_t> select_with(Kernels kernels, std::span<const float> scores, std::int64_t keep, ForcedGroups forced,
                                 NanPolicy nan, std::span<std::int32_t> scratch, std::span<std::int32_t> chosen,
                                 std::int64_t row) {
  if (forced.first == 0 && forced.newest == 0) return select_with(kernels, scores, keep, nan, scratch, chosen, row);
  const auto invalid = [row](std::string_view argument, std::string_view what) {
    return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what), {row, -1});
  };
  const auto groups = static_cast<std::int64_t>(scores.size());
  if (groups > std::numeric_limits<std::int32_t>::max())
    return invalid("scores", formatted("{} groups pass i32", groups));
  if (keep < 0) return invalid("keep", formatted("{} is negative", keep));
  if (forced.first < 0 || forced.newest < 0 || forced.first > Geometry::kMaxExtent ||
      forced.newest > Geometry::kMaxExtent) {
    return invalid("forced", formatted("{} first and {} newest groups, each 0..{}", forced.first, forced.newest,
                                       Geometry::kMaxExtent));
  }
  if (!forced.outside && forced.first + forced.newest > keep) {
    return invalid("forced", formatted("{} groups inside a budget of {}", forced.first + forced.newest, keep));
  }
  const std::int64_t most = forced.outside ? keep + std::min(forced.first + forced.newest, groups) : keep;
  if (static_cast<std::int64_t>(chosen.size()) < std::min(most, groups))
    return invalid("chosen", formatted("{} entries for {} groups", chosen.size(), std::min(most, groups)));
  const std::int64_t first = std::min(forced.first, groups);
  const std::int64_t newest = std::min(forced.newest, groups - first);
  const auto between =
      scores.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(groups - first - newest));
  const auto count = select_with(kernels, between, forced.outside ? keep : keep - first - newest, nan, scratch,
                                 chosen.subspan(static_cast<std::size_t>(first)), row);
  if (!count.ok()) {
    return count.status().code() == Code::kNotANumber ? nan_at_group(first + count.status().place().index, row)
                                                      : count.status();
  }
  auto* const out = chosen.data();
  std::iota(out, out + first, 0);
  for (std::int64_t i = first; i < first + *count; ++i) out[i] += static_cast<std::int32_t>(first);
  std::iota(out + first + *count, out + first + *count + newest, static_cast<std::int32_t>(groups - newest));
  return first + *count + newest;
}

Result<std::int64_t> select_forced(std::span<const float> scores, std::int64_t keep, ForcedGroups forced, NanPolicy nan,
                                   std::span<std::int32_t> scratch, std::span<std::int32_t> chosen, std::int64_t row) {
  return select_with(default_kernels(), scores, keep, forced, nan, scratch, chosen, row);
}

Result<std::int64_t> select_groups(std::span<const float> scores, std::int64_t keep, NanPolicy nan,
                                   std::span<std::int32_t> scratch, std::span<std::int32_t> chosen, std::int64_t row,
                                   std::span<float> chosen_scores) {
  const std::int64_t most = std::min(keep, static_cast<std::int64_t>(scores.size()));
  if (!chosen_scores.empty() && static_cast<std::int64_t>(chosen_scores.size()) < most) {
    return Status::error(Code::kInvalidArgument, "chosen_scores",
                         formatted("chosen_scores: {} entries for {} groups", chosen_scores.size(), most), {row, -1});
  }
  auto count = select_with(default_kernels(), scores, keep, nan, scratch, chosen, row);
  for (std::size_t i = 0; count.ok() && !chosen_scores.empty() && i < static_cast<std::size_t>(*count); ++i)
    chosen_scores[i] = scores[static_cast<std::size_t>(chosen[i])];
  return count;
}

}  // namespace seriatim
