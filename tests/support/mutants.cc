#include "support/mutants.hpp"

#include <numeric>

#include "seriatim/row.hpp"

namespace seriatim::testing {
namespace {

using Made = std::optional<std::size_t>;

// A block that no fault has touched yet, and that `fits`.
Made pick(
    Random& random, MutableRow& row, const std::function<bool(std::size_t)>& fits = [](std::size_t) { return true; }) {
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < row.blocks.size(); ++i) {
    if (!row.blocks[i].touched && fits(i)) free.push_back(i);
  }
  if (free.empty()) return std::nullopt;
  return free[static_cast<std::size_t>(random.below(std::ssize(free)))];
}

bool has_order(const MutableRow& row) { return row.rule != RowRule::kSet; }

std::int64_t& some_entry(Random& random, Block& block) {
  return block.entries[static_cast<std::size_t>(random.below(std::ssize(block.entries)))];
}

// Replaces one entry of a block, or of the tail, by a value that is none of the row's.
bool overwrite(Random& random, MutableRow& row, std::int64_t value) {
  if (!row.in_pair && !row.tail.empty() && !row.tail_touched && random.below(4) == 0) {
    row.tail_touched = true;
    row.tail[static_cast<std::size_t>(random.below(std::ssize(row.tail)))] = value;
    return true;
  }
  const Made at = pick(random, row);
  if (!at) return false;
  row.blocks[*at].touched = true;
  some_entry(random, row.blocks[*at]) = value;
  return true;
}

bool exchange(Random& random, MutableRow& row, bool tie) {
  if (row.frame.groups <= row.frame.kept || row.blocks.empty()) return false;
  const float cut = row.cut();
  const auto score = [&](std::int64_t group) { return row.scores[static_cast<std::size_t>(group)]; };
  std::vector<std::size_t> newcomers;
  for (std::size_t i = 0; i < row.unchosen.size(); ++i) {
    if (tie ? score(row.unchosen[i]) == cut : score(row.unchosen[i]) < cut) newcomers.push_back(i);
  }
  if (newcomers.empty()) return false;
  const Made at = pick(random, row, [&](std::size_t i) { return !tie || score(row.blocks[i].group) == cut; });
  if (!at) return false;
  const auto newcomer = newcomers[static_cast<std::size_t>(random.below(std::ssize(newcomers)))];
  Block block = row.block_of(row.unchosen[newcomer]);
  block.touched = true;
  row.unchosen.erase(row.unchosen.begin() + static_cast<std::ptrdiff_t>(newcomer));
  row.blocks.erase(row.blocks.begin() + static_cast<std::ptrdiff_t>(*at));
  row.put(std::move(block));
  return true;
}

bool drop_group(Random& random, MutableRow& row) {
  const Made at = pick(random, row);
  if (!at) return false;
  row.blocks.erase(row.blocks.begin() + static_cast<std::ptrdiff_t>(*at));
  return true;
}

bool is_dense(const MutableRow& row) { return row.frame.groups <= row.frame.kept; }

std::vector<Mutant> make_mutants() {
  std::vector<Mutant> all;
  const auto add = [&all](std::string name, Promise promise, std::function<bool(Random&, MutableRow&)> make,
                          bool in_pairs = true) {
    all.push_back({std::move(name), promise, std::move(make), in_pairs});
  };
  // The set first, then parts of it, then places.
  add("a worse group for a better", Promise::kMembership,
      [](Random& random, MutableRow& row) { return exchange(random, row, false); });
  add("the later of two equals", Promise::kTie,
      [](Random& random, MutableRow& row) { return exchange(random, row, true); });
  add("a group too few", Promise::kWidth,
      [](Random& random, MutableRow& row) { return !is_dense(row) && drop_group(random, row); });
  add(
      "a group too many", Promise::kWidth,
      [](Random& random, MutableRow& row) {
        if (is_dense(row) || row.unchosen.empty()) return false;
        const auto at = static_cast<std::ptrdiff_t>(random.below(std::ssize(row.unchosen)));
        row.put(row.block_of(row.unchosen[static_cast<std::size_t>(at)]));
        row.unchosen.erase(row.unchosen.begin() + at);
        return true;
      },
      false);
  add("a group dropped below the budget", Promise::kDense,
      [](Random& random, MutableRow& row) { return is_dense(row) && drop_group(random, row); });

  add("an entry twice", Promise::kDuplicate, [](Random& random, MutableRow& row) {
    const Made from = pick(random, row);
    if (!from) return false;
    row.blocks[*from].touched = true;
    if (overwrite(random, row, some_entry(random, row.blocks[*from]))) return true;
    row.blocks[*from].touched = false;
    return false;
  });
  add(
      "a group twice", Promise::kDuplicate,
      [](Random& random, MutableRow& row) {
        const Made from = pick(random, row);
        if (!from) return false;
        const Made to = pick(random, row, [&](std::size_t i) { return i != *from; });
        if (!to) return false;
        row.blocks[*from].touched = row.blocks[*to].touched = true;
        row.blocks[*to].entries = row.blocks[*from].entries;
        return true;
      },
      false);
  add(
      "an entry once more at the end", Promise::kDuplicate,
      [](Random& random, MutableRow& row) {
        const Made from = pick(random, row);
        if (from) row.extra.push_back(some_entry(random, row.blocks[*from]));
        return from.has_value();
      },
      false);

  add("the future", Promise::kRange, [](Random& random, MutableRow& row) {
    const std::int64_t first = row.frame.first_value + row.frame.units() + (row.frame.partial_group ? 1 : 0);
    return overwrite(random, row, first + random.below(3) * 1000);
  });
  add("before the anchor", Promise::kRange, [](Random& random, MutableRow& row) {
    return row.frame.first_value > 1 && overwrite(random, row, row.frame.first_value - 1);
  });
  add("a negative number", Promise::kRange, [](Random& random, MutableRow& row) { return overwrite(random, row, -7); });
  add("padding in the middle", Promise::kRange, [](Random& random, MutableRow& row) {
    if (!has_order(row)) return false;
    const Made at = pick(random, row, [&](std::size_t i) { return i + 1 < row.blocks.size(); });
    if (!at) return false;
    row.blocks[*at].touched = true;
    some_entry(random, row.blocks[*at]) = kRowPadding;
    return true;
  });
  add(
      "padding among the entries", Promise::kRange,
      [](Random& random, MutableRow& row) {
        if (!has_order(row) || row.blocks.size() < 2 || row.blocks.front().touched ||
            row.blocks.front().entries.empty())
          return false;
        row.blocks.front().touched = true;
        auto& entries = row.blocks.front().entries;
        entries.insert(entries.begin() + random.below(std::ssize(entries)), kRowPadding);
        return true;
      },
      false);

  add("a token of a group missing", Promise::kExpansion, [](Random& random, MutableRow& row) {
    const Made at = row.frame.unit > 1 ? pick(random, row) : std::nullopt;
    if (!at) return false;
    row.blocks[*at].touched = true;
    auto& entries = row.blocks[*at].entries;
    entries.erase(entries.begin() + random.below(std::ssize(entries)));
    return true;
  });
  add("a token of another group", Promise::kExpansion, [](Random& random, MutableRow& row) {
    if (row.frame.unit == 1 || row.unchosen.empty()) return false;
    const Made at = pick(random, row);
    if (!at) return false;
    row.blocks[*at].touched = true;
    row.blocks[*at].entries.pop_back();
    Block part = row.block_of(row.unchosen.back());
    row.unchosen.pop_back();
    part.entries.resize(1);
    part.touched = true;
    row.put(std::move(part));
    return true;
  });
  add(
      "tokens of one group too many", Promise::kExpansion,
      [](Random& random, MutableRow& row) {
        if (row.frame.unit == 1 || row.unchosen.empty()) return false;
        Block part = row.block_of(row.unchosen.back());
        row.unchosen.pop_back();
        part.entries.resize(static_cast<std::size_t>(1 + random.below(row.frame.unit - 1)));
        row.put(std::move(part));
        return true;
      },
      false);
  add("two groups interleaved", Promise::kExpansion, [](Random& random, MutableRow& row) {
    if (row.frame.unit == 1 || !has_order(row)) return false;
    const Made at =
        pick(random, row, [&](std::size_t i) { return i + 1 < row.blocks.size() && !row.blocks[i + 1].touched; });
    if (!at) return false;
    Block& a = row.blocks[*at];
    Block& b = row.blocks[*at + 1];
    a.touched = b.touched = true;
    std::swap(a.entries.back(), b.entries.front());
    return true;
  });

  add("no tail", Promise::kTail, [](Random&, MutableRow& row) {
    if (row.tail.empty() || row.tail_touched) return false;
    row.tail.clear();
    return row.tail_touched = true;
  });
  add("not all of the tail", Promise::kTail, [](Random& random, MutableRow& row) {
    if (row.tail.size() < 2 || row.tail_touched) return false;
    row.tail.erase(row.tail.begin() + random.below(std::ssize(row.tail)));
    return row.tail_touched = true;
  });
  add("the tail first", Promise::kTail, [](Random&, MutableRow& row) {
    if (row.tail.empty() || row.tail_touched || row.blocks.empty() || !has_order(row)) return false;
    return row.tail_touched = row.tail_first = true;
  });
  add("the tail scored", Promise::kTail, [](Random& random, MutableRow& row) {
    return row.frame.partial_group && overwrite(random, row, row.frame.groups);
  });

  add("two groups exchanged", Promise::kOrder, [](Random& random, MutableRow& row) {
    if (row.rule != RowRule::kCanonical && row.rule != RowRule::kRank) return false;
    const Made a = pick(random, row);
    if (!a) return false;
    const Made b = pick(random, row, [&](std::size_t i) { return i != *a; });
    if (!b) return false;
    std::swap(row.blocks[*a], row.blocks[*b]);
    row.blocks[*a].touched = row.blocks[*b].touched = true;
    return true;
  });
  add("a group backwards", Promise::kOrder, [](Random& random, MutableRow& row) {
    const Made at = row.frame.unit > 1 && has_order(row) ? pick(random, row) : std::nullopt;
    if (!at) return false;
    row.blocks[*at].touched = true;
    std::reverse(row.blocks[*at].entries.begin(), row.blocks[*at].entries.end());
    return true;
  });
  add("the tail backwards", Promise::kOrder, [](Random&, MutableRow& row) {
    if (row.tail.size() < 2 || row.tail_touched || !has_order(row)) return false;
    std::reverse(row.tail.begin(), row.tail.end());
    return row.tail_touched = true;
  });
  return all;
}

}  // namespace

MutableRow right_row(Random& random, const Geometry& geometry, RowUnit unit, RowRule rule, VisibleRun run,
                     std::vector<float> scores) {
  MutableRow row{
      .frame = frame_of(geometry, unit, run), .rule = rule, .anchor = run.anchor, .scores = std::move(scores)};
  std::vector<std::int64_t> best(static_cast<std::size_t>(row.frame.groups));
  std::iota(best.begin(), best.end(), std::int64_t{0});
  std::stable_sort(best.begin(), best.end(), [&](std::int64_t a, std::int64_t b) {
    return row.scores[static_cast<std::size_t>(a)] > row.scores[static_cast<std::size_t>(b)];
  });
  const auto kept = best.begin() + row.frame.kept;
  row.unchosen.assign(kept, best.end());
  random.shuffle(std::span(row.unchosen));
  if (rule == RowRule::kArrival) random.shuffle(std::span(best).first(static_cast<std::size_t>(row.frame.kept)));
  for (auto at = best.begin(); at != kept; ++at) row.put(row.block_of(*at));
  for (std::int64_t k = 0; k < row.frame.tail; ++k)
    row.tail.push_back(row.frame.first_value + row.frame.groups * row.frame.unit + k);
  return row;
}

std::vector<std::int64_t> flattened(Random& random, const MutableRow& row) {
  std::vector<std::int64_t> entries;
  if (row.tail_first) entries = row.tail;
  for (const Block& block : row.blocks) entries.insert(entries.end(), block.entries.begin(), block.entries.end());
  if (!row.tail_first) entries.insert(entries.end(), row.tail.begin(), row.tail.end());
  entries.insert(entries.end(), row.extra.begin(), row.extra.end());
  if (row.rule == RowRule::kSet) random.shuffle(std::span(entries));
  return entries;
}

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> all = make_mutants();
  return all;
}

}  // namespace seriatim::testing
