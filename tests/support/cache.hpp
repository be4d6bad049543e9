// What the cache's tests and fuzzers share: tokens made from a number, the plain model of a sequence, images of states.
// What cannot be prepared ends the process with a line on stderr.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "seriatim/cache.hpp"
#include "support/geometries.hpp"

namespace seriatim::cache_testing {

// A token is a number; all its vectors in every layer follow from it.
using TokenId = std::uint64_t;

using testing::small_options;
Geometry admit(const GeometryOptions& options);
std::unique_ptr<Cache> make_cache(const Geometry& geometry, CacheOptions options);
CacheOptions cache_options(std::int64_t layers, std::int64_t capacity_tokens, std::int64_t page_tokens = 0);

// Tokens of one layer, laid out densely, and the batch that hands them over.
struct Batch {
  std::vector<std::byte> keys;
  std::vector<std::byte> values;
  std::vector<std::byte> index_keys;
  std::vector<Coordinates> coordinates;
  TokenBatch view;
};
// `indexed` false leaves the index keys out, `index_only` the keys and values.
Batch make_batch(const Geometry& geometry, std::int64_t layer, std::int64_t first_position,
                 const std::vector<TokenId>& tokens, bool indexed = true, bool index_only = false);

std::vector<TokenId> ids(TokenId first, std::int64_t count);

// Appends to all layers and commits, in one transaction.
void append(Cache& cache, SequenceId sequence, const std::vector<TokenId>& tokens);
// The same, giving the Status of the first call that fails; the transaction is dropped then.
Status try_append(Cache& cache, SequenceId sequence, const std::vector<TokenId>& tokens);

// The largest magnitude of a view's pooled keys, NaN if there is one.
float largest_pooled(const LayerView& view);

// Every byte that a reader of the view may look at: run, keys, values, raw keys, coordinates, pooled keys.
std::vector<std::byte> image(const LayerView& view);
std::vector<std::byte> image(const Snapshot& snapshot);
std::vector<std::byte> image(const Cache& cache, SequenceId sequence);

// The plain definition of a state with these tokens: vectors of tokens and fresh pooling, no pages.
std::vector<std::byte> plain_image(const Geometry& geometry, const CacheOptions& options, std::int64_t anchor,
                                   const std::vector<TokenId>& tokens);

}  // namespace seriatim::cache_testing
