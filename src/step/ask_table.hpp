// Where the queries of a call's asks lie: rows of all asks are numbered through, in the order of the asks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/format.hpp"
#include "seriatim/status.hpp"

namespace seriatim {

// One ask of the call that is under way.
struct AskPart {
  std::int64_t first_query = 0;
  std::int64_t queries = 0;
  std::int64_t visible_tokens = 0;  // the most that one of its queries sees
  std::int64_t first_block = 0;     // blocks of queries are numbered through as the queries are
  std::int64_t blocks = 0;
  float largest_key = 0.0f;  // magnitude of the index keys that its queries see
};

class AskTable {
 public:
  struct Place {
    std::size_t ask = 0;
    std::int64_t number = 0;  // of the query, or block, within the ask
  };

  // Throws bad_alloc.
  void reserve(std::int64_t asks) { parts_.reserve(static_cast<std::size_t>(asks)); }
  std::int64_t capacity() const { return static_cast<std::int64_t>(parts_.capacity()); }

  // A new call; the asks follow in order. No more than capacity().
  void clear() { parts_.clear(); }
  void add(std::int64_t queries, std::int64_t visible_tokens) {
    parts_.push_back({.first_query = this->queries(), .queries = queries, .visible_tokens = visible_tokens});
  }
  // Cuts each ask into blocks of block_queries(part) queries.
  template <typename BlockQueries>
  void cut(const BlockQueries& block_queries) {
    std::int64_t next = 0;
    for (AskPart& part : parts_) {
      const std::int64_t most = block_queries(part);
      part.first_block = next;
      part.blocks = (part.queries + most - 1) / most;
      next += part.blocks;
    }
  }

  std::size_t asks() const { return parts_.size(); }
  const AskPart& operator[](std::size_t ask) const { return parts_[ask]; }
  AskPart& operator[](std::size_t ask) { return parts_[ask]; }

  std::int64_t queries() const { return parts_.empty() ? 0 : parts_.back().first_query + parts_.back().queries; }
  std::int64_t blocks() const { return parts_.empty() ? 0 : parts_.back().first_block + parts_.back().blocks; }
  std::int64_t visible_tokens() const {
    std::int64_t most = 0;
    for (const AskPart& part : parts_) most = std::max(most, part.visible_tokens);
    return most;
  }

  // `query` below queries(), `block` below blocks().
  Place of_query(std::int64_t query) const { return find(query, &AskPart::first_query); }
  Place of_block(std::int64_t block) const { return find(block, &AskPart::first_block); }

 private:
  // The last ask that starts at or before `number`: those without queries before it start there too.
  Place find(std::int64_t number, std::int64_t AskPart::* first) const {
    const auto after =
        std::upper_bound(parts_.begin(), parts_.end(), number,
                         [first](std::int64_t wanted, const AskPart& part) { return wanted < part.*first; });
    const auto ask = static_cast<std::size_t>(after - parts_.begin()) - 1;
    return {ask, number - parts_[ask].*first};
  }

  std::vector<AskPart> parts_;
};

// The same fault, of ask `ask` of a call of so many.
inline Status at_ask(const Status& status, std::size_t ask, std::size_t asks) {
  if (status.ok()) return status;
  const Place place{status.place().row, status.place().index, static_cast<std::int64_t>(ask)};
  if (asks == 1) return Status::error(status.code(), status.argument(), status.message(), place);
  return Status::error(status.code(), status.argument(), formatted("{} (ask {})", status.message(), ask), place);
}

}  // namespace seriatim
