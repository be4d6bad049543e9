// The whole path in a test: the random tokens and queries of one sequence, a cache that holds it, and every answer.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "seriatim/cache.hpp"
#include "seriatim/index.hpp"
#include "seriatim/step.hpp"
#include "support/bits.hpp"
#include "support/engine_for.hpp"
#include "support/geometries.hpp"
#include "support/random.hpp"

namespace seriatim::testing {

// Tokens and one query per token. Token t stands at position anchor + t.
class Story {
 public:
  Story(const GeometryOptions& options, std::int64_t tokens, std::uint64_t seed, std::int64_t first_position = 0)
      : geometry(*Geometry::admit(options)), anchor(first_position) {
    Random random(seed);
    keys = random_tensor(random, geometry.kv_dtype(), {tokens, geometry.kv_heads(), geometry.head_dim()});
    if (!geometry.values_alias_keys())
      values = random_tensor(random, geometry.kv_dtype(), {tokens, geometry.kv_heads(), geometry.value_dim()});
    index_keys = random_tensor(random, geometry.index_dtype(), {tokens, geometry.index_dim()});
    queries = random_tensor(random, geometry.kv_dtype(), {tokens, geometry.query_heads(), geometry.head_dim()}, 2.0f);
    raw_index_queries =
        random_tensor(random, geometry.index_dtype(), {tokens, geometry.index_heads(), geometry.index_dim()});
    for (std::int64_t i = 0; i < geometry.index_dim(); ++i) norm_weight.push_back(0.25f * random.normal());
    prepare();
  }

  // Norms and rotates the index queries for where their tokens stand.
  void prepare() {
    std::vector<std::int64_t> positions(static_cast<std::size_t>(tokens()));
    std::iota(positions.begin(), positions.end(), anchor);
    index_queries = HostTensor(geometry.index_dtype(), {tokens(), geometry.index_heads(), geometry.index_dim()});
    const auto status =
        prepare_index_queries(geometry, norms(), raw_index_queries.view(), positions.data(),
                              coordinates.empty() ? nullptr : coordinates.data(), index_queries.writable());
    EXPECT_TRUE(status.ok()) << status.message();
  }

  std::int64_t tokens() const { return keys.view().shape[0]; }
  ConstTensor norms() const { return dense_view(norm_weight.data(), DType::kF32, {geometry.index_dim()}); }
  TokenBatch batch(std::int64_t first, std::int64_t count) const {
    TokenBatch batch;
    batch.first_position = anchor + first;
    batch.keys = keys.rows(first, count);
    if (!geometry.values_alias_keys()) batch.values = values.rows(first, count);
    batch.index_keys = index_keys.rows(first, count);
    if (!coordinates.empty()) batch.coordinates = coordinates.data() + first;
    return batch;
  }

  const Geometry geometry;
  std::int64_t anchor;
  HostTensor keys;
  HostTensor values;
  HostTensor index_keys;
  HostTensor queries;
  HostTensor raw_index_queries;
  HostTensor index_queries;
  HostTensor head_weights;  // [tokens, index_heads], or nothing
  std::vector<float> norm_weight;
  std::vector<float> sinks;
  std::vector<Coordinates> coordinates;
};

// A cache of one layer for any number of stories.
class HeldStory {
 public:
  // Takes   hold: how many tokens are appended at once
  HeldStory(const Story& story, std::int64_t hold, std::int64_t page_tokens = 0) : story_(story) {
    CacheOptions options;
    options.layers[0].index_norm_weight = story.norm_weight;
    options.capacity_tokens = 4 * story.tokens() + 4096;
    options.page_tokens = page_tokens;
    auto made = Cache::create(story.geometry, std::move(options));
    EXPECT_TRUE(made.ok()) << made.status().message();
    cache_ = std::move(made).value();
    sequence_ = *cache_->add(story.anchor);
    append(hold);
  }

  void append(std::int64_t count) {
    if (count == 0) return;
    auto transaction = cache_->begin();
    ASSERT_TRUE(transaction.ok()) << transaction.status().message();
    stage(*transaction, count);
    const Status status = transaction->commit();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  // Appends to an open transaction.
  void stage(Transaction& transaction, std::int64_t count) {
    const Status status = transaction.append(sequence_, 0, story_.batch(held_, count));
    ASSERT_TRUE(status.ok()) << status.message();
    held_ += count;
  }

  Cache& cache() { return *cache_; }
  SequenceId sequence() const { return sequence_; }
  std::int64_t held() const { return held_; }
  Snapshot snapshot() const { return *cache_->snapshot(sequence_); }

 private:
  const Story& story_;
  std::unique_ptr<Cache> cache_;
  SequenceId sequence_ = 0;
  std::int64_t held_ = 0;
};

// Rows, outputs and log-sum-exps of so many queries; untouched memory is recognisable.
class Answers {
 public:
  static constexpr std::int32_t kUntouched = -909;

  Answers(const Geometry& geometry, std::int64_t queries)
      : stride(geometry.row_capacity() + 2),
        rows(static_cast<std::size_t>(queries * stride), kUntouched),
        counts(static_cast<std::size_t>(queries), kUntouched),
        output(DType::kF32, {queries, geometry.query_heads(), geometry.value_dim()}),
        lse(DType::kF32, {queries, geometry.query_heads()}) {
    output.fill(-77.0f);
    lse.fill(-77.0f);
  }

  Rows rows_from(std::int64_t query) { return {rows.data() + query * stride, stride, counts.data() + query}; }
  std::span<const std::int32_t> row(std::int64_t query) const {
    return std::span(rows).subspan(static_cast<std::size_t>(query * stride),
                                   static_cast<std::size_t>(counts[static_cast<std::size_t>(query)]));
  }
  bool rows_untouched() const {
    const auto is_untouched = [](std::int32_t x) { return x == kUntouched; };
    return std::all_of(rows.begin(), rows.end(), is_untouched) &&
           std::all_of(counts.begin(), counts.end(), is_untouched);
  }
  bool outputs_untouched() const {
    for (std::int64_t i = 0; i < output.elements(); ++i) {
      if (output.get(i) != -77.0f) return false;
    }
    for (std::int64_t i = 0; i < lse.elements(); ++i) {
      if (lse.get(i) != -77.0f) return false;
    }
    return true;
  }
  // The bytes of everything about one query.
  std::vector<std::byte> of(std::int64_t query) const {
    std::vector<std::byte> all;
    const auto add = [&](std::span<const std::byte> bytes, std::int64_t queries) {
      const auto size = static_cast<std::int64_t>(bytes.size()) / queries;
      const auto part = bytes.subspan(static_cast<std::size_t>(query * size), static_cast<std::size_t>(size));
      all.insert(all.end(), part.begin(), part.end());
    };
    const auto queries = static_cast<std::int64_t>(counts.size());
    add(bytes_of(rows), queries);
    add(bytes_of(counts), queries);
    add(output.bytes(), queries);
    add(lse.bytes(), queries);
    return all;
  }

  std::int64_t stride;
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> counts;
  HostTensor output;
  HostTensor lse;
};

inline ::testing::AssertionResult same_answers(const Answers& got, const Answers& want) {
  if (auto same = same_bits(got.rows, want.rows); !same) return same << " (rows)";
  if (auto same = same_bytes<std::int32_t>(got.counts, want.counts); !same) return same << " (counts)";
  if (auto same = same_bits(got.output.bytes(), want.output.bytes()); !same) return same << " (output)";
  return same_bits(got.lse.bytes(), want.lse.bytes()) << " (lse)";
}

// The queries of some tokens, in the order named.
class Asked {
 public:
  Asked(const Story& story, std::span<const std::int64_t> tokens)
      : story_(story), queries_(pick(story.queries, tokens)), index_queries_(pick(story.index_queries, tokens)) {
    if (story.head_weights.elements() > 0) head_weights_ = pick(story.head_weights, tokens);
    for (const std::int64_t token : tokens) positions_.push_back(story.anchor + token);
  }

  IndexQueries for_plan() const {
    return {index_queries_.view(), head_weights_.elements() > 0 ? head_weights_.view() : ConstTensor{}, positions_};
  }
  AttendQueries for_attend() const { return {queries_.view(), positions_, story_.sinks}; }

 private:
  static HostTensor pick(const HostTensor& from, std::span<const std::int64_t> tokens) {
    const ConstTensor view = from.view();
    const auto count = static_cast<std::int64_t>(tokens.size());
    HostTensor picked = view.rank == 3 ? HostTensor(from.dtype(), {count, view.shape[1], view.shape[2]})
                                       : HostTensor(from.dtype(), {count, view.shape[1]});
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(picked.writable().at(i), view.at(tokens[static_cast<std::size_t>(i)]),
                  static_cast<std::size_t>(view.stride_bytes[0]));
    }
    return picked;
  }

  const Story& story_;
  HostTensor queries_;
  HostTensor index_queries_;
  HostTensor head_weights_;
  std::vector<std::int64_t> positions_;
};

// Plans and attends for `tokens`; their answers go to places `first` and on.
inline Status ask(const LayerView& layer, const Story& story, std::span<const std::int64_t> tokens, Engine& engine,
                  Answers& answers, std::int64_t first = 0) {
  const Asked asked(story, tokens);
  const auto count = static_cast<std::int64_t>(tokens.size());
  const Rows rows = answers.rows_from(first);
  if (Status s = engine.plan(layer, asked.for_plan(), NanPolicy::kRefuse, rows); !s.ok()) return s;
  return engine.attend(layer, asked.for_attend(), rows, answers.output.writable_rows(first, count),
                       answers.lse.writable_rows(first, count));
}

inline std::vector<std::int64_t> every_token(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Everything appended at once and every token's query asked in one call, on one thread.
inline Answers one_call(const Story& story) {
  HeldStory held(story, story.tokens());
  const Snapshot snapshot = held.snapshot();
  Answers answers(story.geometry, story.tokens());
  Engine engine = engine_for(story.geometry, story.tokens());
  const Status status = ask(snapshot.layer(0), story, every_token(0, story.tokens()), engine, answers);
  EXPECT_TRUE(status.ok()) << status.message();
  return answers;
}

// How many rows leave something out.
inline std::int64_t sparse_rows(const Answers& answers) {
  std::int64_t sparse = 0;
  for (std::size_t t = 0; t < answers.counts.size(); ++t)
    sparse += answers.counts[t] < static_cast<std::int32_t>(t) + 1 ? 1 : 0;
  return sparse;
}

}  // namespace seriatim::testing
