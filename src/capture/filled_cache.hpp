// A capture's tokens in a cache: what replaying it and judging by it have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "seriatim/cache.hpp"
#include "seriatim/capture.hpp"
#include "seriatim/status.hpp"

namespace seriatim {

struct FilledCache {
  std::shared_ptr<PageAllocator> pages;  // null: the heap; first, so that it goes last
  std::unique_ptr<Cache> cache;
  Snapshot snapshot;  // all its tokens
  LayerView layer;    // of the snapshot
};

// With room for all tokens and a little more.
CacheOptions cache_options_for(const Capture& capture);

// Some of a capture's tokens, counted from its first.
struct TokenRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
inline TokenRange all_tokens(const Capture& capture) { return {0, capture.tokens()}; }

// Takes   which tokens; where pages come from (null: the heap), and what is told how many tokens are there (may be
// empty) Errors  those of the cache
Result<FilledCache> fill_cache(const Capture& capture, TokenRange range, std::shared_ptr<PageAllocator> pages,
                               const std::function<void(std::int64_t tokens)>& progress);

// `count` rows of a batch from `first` on; empty of an empty one.
ConstTensor rows_of(const ConstTensor& batch, std::int64_t first, std::int64_t count);

// The largest |value| of a capture, 1 where all are zero: what differences of outputs are relative to.
double largest_value(const Capture& capture);

}  // namespace seriatim
