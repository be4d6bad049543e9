// The row of qwen4exp's selection: whole groups and what is always attended, nothing else, cells ascending. llama.cpp
// asks for the budget and a whole tail whatever the tail is, which leaves it pieces of one more group; here what would
// be a piece is left out, and where an output must be filled the last cell is named again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace seriatim::plugin {

// The graph adds 1e9 to the scores of what is always attended.
constexpr float kForcedBias = 5e8f;

// Groups that fit a width beside so many cells that are always attended; the tail's place is kept free for it.
std::int64_t groups_that_fit(std::int64_t width, std::int64_t group_tokens, std::int64_t forced);

// Of one worker.
struct QsaScratch {
  std::vector<float> scores;         // of each group; NaN: not to be chosen
  std::vector<std::int32_t> chosen;  // groups
  std::vector<std::int32_t> select;
  std::vector<std::int32_t> forced;  // cells
};

// Scores of cells, as the graph hands them to TOP_K: a group's at each of its cells, 1e9 more at those that are always
// attended, -inf where nothing is visible.
// Takes   cell_group [cells]: below `groups`; a number outside is a cell that cannot be chosen
// Gives   row, all of it
void qsa_row_of_cells(std::span<const float> scores, std::span<const std::int32_t> cell_group, std::int64_t groups,
                      std::int64_t group_tokens, QsaScratch& scratch, std::span<std::int32_t> row);

// Scores of groups.
// Takes   scratch.scores [groups]; scratch.forced: what is always attended, ascending; group_cells
// [groups][group_tokens]
//         mask [cells] f16
// Gives   how many cells were written to row
std::int64_t qsa_row_of_groups(const std::int32_t* group_cells, std::int64_t group_tokens, const std::uint16_t* mask,
                               QsaScratch& scratch, std::span<std::int32_t> row);

}  // namespace seriatim::plugin
