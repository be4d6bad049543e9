#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>
#include <set>

#include "base/float_environment.hpp"
#include "seriatim/check_picture.hpp"
#include "seriatim/row.hpp"

namespace seriatim {
namespace {

std::vector<std::int64_t> rows_to_draw(const CheckReport& report, std::int64_t most) {
  std::set<std::int64_t> rows;
  for (const Finding& finding : report.findings) {
    if (std::ssize(rows) < most) rows.insert(finding.row);
  }
  const std::int64_t evenly = std::min(report.rows, most);
  for (std::int64_t i = 0; i < evenly && std::ssize(rows) < most; ++i) rows.insert(i * report.rows / evenly);
  return {rows.begin(), rows.end()};
}

// The visible tokens of a row, counted from the anchor, ascending, once each.
class TokensOf {
 public:
  TokensOf(const Selection& selection)
      : selection_(selection), entries_(static_cast<std::size_t>(selection.about().width)) {}

  Result<std::vector<std::int64_t>> operator()(std::int64_t row) {
    const Selection::About& about = selection_.about();
    const std::int64_t visible = about.visible[static_cast<std::size_t>(row)];
    const std::int64_t r = about.group_tokens;
    if (Status s = selection_.read_row(row, entries_); !s.ok()) return s;
    std::vector<std::int64_t> tokens;
    for (const std::int64_t entry : entries_) {
      if (about.unit == RowUnit::kToken && entry >= about.anchor && entry - about.anchor < visible)
        tokens.push_back(entry - about.anchor);
      if (about.unit == RowUnit::kToken || entry < 0 || entry >= visible / r) continue;
      for (std::int64_t k = 0; k < r; ++k) tokens.push_back(entry * r + k);
    }
    for (std::int64_t token = visible - visible % r; about.unit == RowUnit::kGroup && token < visible; ++token)
      tokens.push_back(token);
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    return tokens;
  }

 private:
  const Selection& selection_;
  std::vector<std::int64_t> entries_;
};

class Painter {
 public:
  Painter(const Selection::About& about, RowImage& image) : about_(about), image_(image) {}

  void paint(std::int64_t visible, const std::vector<std::int64_t>& tokens) {
    const std::int64_t step = image_.tokens_per_column;
    const std::int64_t tail_from = visible - visible % about_.group_tokens;
    const bool dense = visible < about_.budget_tokens + about_.group_tokens;
    const std::size_t row_begin = image_.cells.size();
    image_.cells.resize(row_begin + static_cast<std::size_t>(image_.columns), static_cast<std::uint8_t>(Cell::kHidden));
    auto token = tokens.begin();
    for (std::int64_t column = 0; column * step < visible; ++column) {
      const std::int64_t end = std::min((column + 1) * step, visible);
      const auto first = token;
      token = std::lower_bound(token, tokens.end(), end);
      const std::int64_t held = token - first;
      const bool tail = held > 0 && *(token - 1) >= tail_from;
      const Cell cell = held == 0                    ? Cell::kLeft
                        : tail                       ? Cell::kTail
                        : held < end - column * step ? Cell::kSome
                        : dense                      ? Cell::kDense
                                                     : Cell::kChosen;
      image_.cells[row_begin + static_cast<std::size_t>(column)] = static_cast<std::uint8_t>(cell);
    }
  }

  void measure(std::int64_t visible, const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& before) {
    image_.tokens.push_back(std::ssize(tokens));
    image_.farthest.push_back(tokens.empty() ? 0 : visible - 1 - tokens.front());
    image_.middle.push_back(tokens.empty() ? 0 : visible - 1 - tokens[tokens.size() / 2]);
    if (image_.overlap.empty() || tokens.empty()) {
      image_.overlap.push_back(-1.0);
      return;
    }
    std::int64_t shared = 0;
    auto other = before.begin();
    for (const std::int64_t token : tokens) {
      other = std::lower_bound(other, before.end(), token);
      if (other != before.end() && *other == token) ++shared;
    }
    image_.overlap.push_back(static_cast<double>(shared) / static_cast<double>(tokens.size()));
  }

 private:
  const Selection::About& about_;
  RowImage& image_;
};

}  // namespace

Result<RowImage> draw_rows(const Selection& selection, const CheckReport& report, std::int64_t most_rows,
                           std::int64_t most_columns) {
  DefaultFloatEnvironment environment;
  try {
    const Selection::About& about = selection.about();
    RowImage image;
    image.rows = rows_to_draw(report, most_rows);
    const std::int64_t longest =
        std::max<std::int64_t>(*std::max_element(about.visible.begin(), about.visible.end()), 1);
    image.tokens_per_column = (longest + most_columns - 1) / most_columns;
    image.columns = (longest + image.tokens_per_column - 1) / image.tokens_per_column;
    TokensOf tokens_of(selection);
    Painter painter(about, image);
    std::vector<std::int64_t> before;
    for (const std::int64_t row : image.rows) {
      auto tokens = tokens_of(row);
      if (!tokens.ok()) return tokens.status();
      const std::int64_t visible = about.visible[static_cast<std::size_t>(row)];
      painter.paint(visible, *tokens);
      painter.measure(visible, *tokens, before);
      before = *std::move(tokens);
    }
    return image;
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "rows", "rows: the system refused memory");
  }
}

Result<RowDetail> row_detail(const Selection& selection, std::int64_t row, std::int64_t most_ranked) {
  DefaultFloatEnvironment environment;
  try {
    const Selection::About& about = selection.about();
    RowDetail detail;
    detail.row = row;
    detail.entries.resize(static_cast<std::size_t>(about.width));
    if (Status s = selection.read_row(row, detail.entries); !s.ok()) return s;
    while (!detail.entries.empty() && detail.entries.back() == kRowPadding) detail.entries.pop_back();
    if (!about.has_scores) return detail;
    std::vector<float> scores(
        static_cast<std::size_t>(about.visible[static_cast<std::size_t>(row)] / about.group_tokens));
    if (Status s = selection.read_scores(row, scores); !s.ok()) return s;
    detail.ranked.resize(scores.size());
    std::iota(detail.ranked.begin(), detail.ranked.end(), std::int64_t{0});
    const auto better = [&](std::int64_t a, std::int64_t b) {
      const float x = scores[static_cast<std::size_t>(a)];
      const float y = scores[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    };
    const auto kept = std::min<std::int64_t>(most_ranked, std::ssize(detail.ranked));
    std::partial_sort(detail.ranked.begin(), detail.ranked.begin() + kept, detail.ranked.end(), better);
    detail.ranked.resize(static_cast<std::size_t>(kept));
    for (const std::int64_t group : detail.ranked) detail.scores.push_back(scores[static_cast<std::size_t>(group)]);
    return detail;
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "rows", "rows: the system refused memory");
  }
}

}  // namespace seriatim
