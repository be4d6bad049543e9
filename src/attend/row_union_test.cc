#include "attend/row_union.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "support/random.hpp"

namespace seriatim {
namespace {

using namespace testing;

using Row = std::vector<std::int32_t>;

std::vector<std::span<const std::int32_t>> spans(const std::vector<Row>& rows) { return {rows.begin(), rows.end()}; }

// Rows that keep so many percent of the first `positions` positions.
std::vector<Row> random_rows(std::size_t rows, std::int32_t positions, std::int64_t percent, std::uint64_t seed) {
  Random random(seed);
  std::vector<Row> all(rows);
  for (Row& row : all) {
    for (std::int32_t p = 0; p < positions; ++p) {
      if (random.below(100) < percent) row.push_back(p);
    }
  }
  return all;
}

TEST(RowUnion, GivesEveryPositionOnceAndEachRowItsOwn) {
  std::int64_t merged = 0;
  for (const std::size_t count : std::initializer_list<std::size_t>{1, 2, 3, 4, 16}) {
    for (const std::int64_t percent : {0, 3, 50, 100}) {
      std::vector<Row> rows = random_rows(count, 700, percent, 81);
      rows.back().resize(rows.back().size() / 2);
      rows.front().push_back(2'147'483'647);
      std::set<std::int32_t> all;
      for (const Row& row : rows) all.insert(row.begin(), row.end());
      const auto given = spans(rows);
      RowUnion row_union(given);
      Row positions;
      std::vector<Row> back(count);
      Chunk chunk;
      for (row_union.next(chunk); chunk.entries > 0; row_union.next(chunk)) {
        positions.insert(positions.end(), chunk.positions.begin(),
                         chunk.positions.begin() + static_cast<std::ptrdiff_t>(chunk.entries));
        for (std::size_t q = 0; q < count; ++q) {
          for (std::size_t i = 0; i < chunk.counts[q]; ++i) back[q].push_back(chunk.positions[chunk.places[q][i]]);
        }
      }
      EXPECT_EQ(positions, Row(all.begin(), all.end()));
      EXPECT_EQ(back, rows);
      merged += static_cast<std::int64_t>(positions.size());
    }
  }
  EXPECT_GT(merged, 5000);
}

TEST(RowUnion, FillsEveryChunkButTheLast) {
  const std::vector<Row> rows = random_rows(3, 1000, 60, 82);
  const auto given = spans(rows);
  RowUnion row_union(given);
  Chunk chunk;
  std::int64_t chunks = 0;
  for (row_union.next(chunk); chunk.entries == 128; row_union.next(chunk)) ++chunks;
  EXPECT_GE(chunks, 6);
  row_union.next(chunk);
  EXPECT_EQ(chunk.entries, 0u);
}

TEST(RowUnion, SharingPaysForRowsThatAreMuchAlike) {
  std::vector<Row> rows = random_rows(1, 4000, 50, 83);
  for (std::size_t q = 1; q < 4; ++q) {
    rows.push_back(rows[0]);
    std::erase_if(rows[q], [&](std::int32_t p) { return p % 20 == static_cast<std::int32_t>(q); });
  }
  EXPECT_TRUE(worth_sharing(spans(rows)));
  EXPECT_FALSE(worth_sharing(spans(random_rows(4, 4000, 50, 84))));
  EXPECT_FALSE(worth_sharing(spans({Row{1, 2, 3}, random_rows(1, 400, 100, 85)[0]})))
      << "a short row does not pay for a long one";
}

}  // namespace
}  // namespace seriatim
