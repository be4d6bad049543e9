#include "seriatim/select.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "select/select_ref.hpp"

namespace seriatim {
namespace {

std::string at_row(std::int64_t row) { return row < 0 ? std::string() : fmt::format(" of row {}", row); }

}  // namespace

std::int64_t select_scratch_entries(std::int64_t groups) { return groups; }

Result<std::int64_t> select_groups(std::span<const float> scores, std::int64_t keep, NanPolicy nan,
                                   std::span<std::int32_t> scratch, std::span<std::int32_t> chosen, std::int64_t row) {
  const auto invalid = [row](std::string_view argument, std::string_view what) {
    return Status::error(Code::kInvalidArgument, argument, fmt::format("{}: {}", argument, what), {row, -1});
  };
  const auto groups = static_cast<std::int64_t>(scores.size());
  if (groups > std::numeric_limits<std::int32_t>::max()) return invalid("scores", fmt::format("{} groups pass i32", groups));
  if (keep < 0) return invalid("keep", fmt::format("{} is negative", keep));
  if (static_cast<std::int64_t>(chosen.size()) < std::min(keep, groups)) {
    return invalid("chosen", fmt::format("{} entries for {} groups", chosen.size(), std::min(keep, groups)));
  }
  if (static_cast<std::int64_t>(scratch.size()) < select_scratch_entries(groups)) {
    return invalid("scratch", fmt::format("{} entries where {} are needed", scratch.size(), select_scratch_entries(groups)));
  }
  std::size_t candidates = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    if (!std::isnan(scores[static_cast<std::size_t>(g)])) {
      scratch[candidates++] = static_cast<std::int32_t>(g);
    } else if (nan == NanPolicy::kRefuse) {
      return Status::error(Code::kNotANumber, "scores", fmt::format("scores: group {}{} is NaN", g, at_row(row)), {row, g});
    }
  }
  const std::int64_t count = select_ref(scores, keep, scratch.first(candidates));
  std::copy_n(scratch.begin(), count, chosen.begin());
  return count;
}

}  // namespace seriatim
