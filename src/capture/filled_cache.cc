#include "capture/filled_cache.hpp"

#include <algorithm>
#include <utility>

#include "base/magnitude.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kAppendTokens = 4096;  // per step of progress; any size gives the same bits

}  // namespace

CacheOptions cache_options_for(const Capture& capture) {
  CacheOptions options;
  options.layers[0].index_norm_weight = capture.index_norm_weight;
  options.capacity_tokens = capture.tokens() + 2 * kAppendTokens;
  return options;
}

Result<FilledCache> fill_cache(const Capture& capture, TokenRange range, std::shared_ptr<PageAllocator> pages,
                               const std::function<void(std::int64_t tokens)>& progress) {
  CacheOptions options = cache_options_for(capture);
  options.allocator = pages.get();
  auto cache = Cache::create(capture.geometry, std::move(options));
  if (!cache.ok()) return cache.status();
  const auto sequence = (*cache)->add(capture.anchor + range.first);
  if (!sequence.ok()) return sequence.status();
  for (std::int64_t done = 0; done < range.count; done += kAppendTokens) {
    const std::int64_t first = range.first + done;
    const std::int64_t count = std::min(kAppendTokens, range.count - done);
    const TokenBatch batch{.first_position = capture.anchor + first,
                           .keys = rows_of(capture.keys, first, count),
                           .values = rows_of(capture.values, first, count),
                           .index_keys = rows_of(capture.index_keys, first, count),
                           .coordinates = nullptr};
    auto step = (*cache)->begin();
    if (!step.ok()) return step.status();
    if (Status s = step->append(*sequence, 0, batch); !s.ok()) return s;
    if (Status s = step->commit(); !s.ok()) return s;
    if (progress) progress(done + count);
  }
  auto snapshot = (*cache)->snapshot(*sequence);
  if (!snapshot.ok()) return snapshot.status();
  const LayerView layer = snapshot->layer(0);
  return FilledCache{std::move(pages), *std::move(cache), *std::move(snapshot), layer};
}

ConstTensor rows_of(const ConstTensor& batch, std::int64_t first, std::int64_t count) {
  ConstTensor part = batch;
  if (batch.empty()) return part;
  part.data = batch.at(first);
  part.shape[0] = count;
  return part;
}

double largest_value(const Capture& capture) {
  ConstTensor values = capture.values.empty() ? capture.keys : capture.values;
  values.shape[2] = capture.geometry.value_dim();
  const float largest = largest_magnitude(values);
  return largest > 0.0f ? static_cast<double>(largest) : 1.0;
}

}  // namespace seriatim
