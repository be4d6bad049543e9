// Pictures of judged rows: an image over time, numbers per row, and the scores of single rows.
#pragma once

#include <cstdint>
#include <vector>

#include "seriatim/check.hpp"
#include "seriatim/status.hpp"

namespace seriatim {

// What a cell of the image shows.
enum class Cell : std::uint8_t {
  kHidden,  // later than the query, or no position of the run
  kLeft,    // visible, not in the row
  kSome,    // partly in the row (a cell may stand for several positions)
  kChosen,  // in the row
  kDense,   // in the row, and everything visible fits the budget
  kTail,    // the raw tail, in the row
};
inline constexpr std::size_t kCells = 6;

// Queries down, positions across.
struct RowImage {
  std::vector<std::int64_t> rows;  // which rows of the selection, ascending
  std::int64_t columns = 0;
  std::int64_t tokens_per_column = 1;
  std::vector<std::uint8_t> cells;     // [rows.size(), columns] of Cell
  std::vector<std::int64_t> tokens;    // [rows.size()] distinct visible tokens in the row
  std::vector<std::int64_t> farthest;  // tokens back to the earliest; 0: none
  std::vector<std::int64_t> middle;    // tokens back to the median
  std::vector<double> overlap;         // part of this row's tokens that the image's row before has; -1 for the first
};

// Takes   the report of the selection: rows with findings are drawn first, others evenly, `most_rows` in all
// Errors  of reading. OutOfMemory. Memory  the image.
Result<RowImage> draw_rows(const Selection& selection, const CheckReport& report, std::int64_t most_rows,
                           std::int64_t most_columns);

// One row, with the scores that decided it.
struct RowDetail {
  std::int64_t row = -1;
  std::vector<std::int64_t> entries;  // up to the padding
  std::vector<std::int64_t> ranked;   // groups by rank: score falling, the earlier first
  std::vector<float> scores;          // of `ranked`
};
// Takes   most_ranked: how many of the best groups to give
Result<RowDetail> row_detail(const Selection& selection, std::int64_t row, std::int64_t most_ranked);

}  // namespace seriatim
