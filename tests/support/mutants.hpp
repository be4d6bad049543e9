// For tests: an engine that selects right, and one fault of each promise, made on purpose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "check/row_judge.hpp"
#include "support/random.hpp"

namespace seriatim::testing {

struct Block {
  std::int64_t group = 0;
  std::vector<std::int64_t> entries = {};
  bool touched = false;
};

// A right row, taken apart so that faults can be made in parts that do not meet.
struct MutableRow {
  RowFrame frame;
  RowRule rule = RowRule::kCanonical;
  std::int64_t anchor = 0;
  std::vector<float> scores;       // of every group
  std::vector<Block> blocks = {};  // in the order that the rule asks for
  std::vector<std::int64_t> tail = {};
  std::vector<std::int64_t> extra = {};  // behind the tail
  std::vector<std::int64_t> unchosen = {};
  bool tail_first = false;
  bool in_pair = false;  // then no entry of the tail is overwritten: beside a short group it may be that group's
  bool tail_touched = false;

  Block block_of(std::int64_t group) const {
    Block block{.group = group};
    for (std::int64_t k = 0; k < frame.unit; ++k) block.entries.push_back(frame.first_value + group * frame.unit + k);
    return block;
  }
  bool before(std::int64_t a, std::int64_t b) const {
    const float x = scores[static_cast<std::size_t>(a)];
    const float y = scores[static_cast<std::size_t>(b)];
    return rule == RowRule::kRank && x != y ? x > y : a < b;
  }
  void put(Block block) {
    const auto at = std::find_if(blocks.begin(), blocks.end(), [&](const Block& other) {
      return rule != RowRule::kArrival && before(block.group, other.group);
    });
    blocks.insert(at, std::move(block));
  }
  float cut() const {
    float least = scores[static_cast<std::size_t>(blocks.front().group)];
    for (const Block& block : blocks) least = std::min(least, scores[static_cast<std::size_t>(block.group)]);
    return least;
  }
};

MutableRow right_row(Random& random, const Geometry& geometry, RowUnit unit, RowRule rule, VisibleRun run,
                     std::vector<float> scores);
std::vector<std::int64_t> flattened(Random& random, const MutableRow& row);

// A kind of fault. `make` gives false, and leaves the row alone, where the row has no place for it.
struct Mutant {
  std::string name;
  Promise promise;
  std::function<bool(Random&, MutableRow&)> make;
  // False: together with another fault it may be another row that is wrong otherwise (docs/conformance.md).
  bool in_pairs = true;
};
const std::vector<Mutant>& mutants();

}  // namespace seriatim::testing
