#include "attend/attend_ref.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attend/attend_kernels.hpp"
#include "base/exp.hpp"
#include "base/fma.hpp"
#include "base/half.hpp"
#include "base/log.hpp"

namespace seriatim {
namespace {

// One kv head's keys and values for the entries of one split, widened to f32.
struct Tile {
  float* keys = nullptr;    // [entries, head_dim]
  float* values = nullptr;  // [entries, value_dim]
};

void widen(const std::byte* from, DType dtype, std::int64_t elements, float* to) {
  for (std::int64_t i = 0; i < elements; ++i) to[i] = load_element(from + i * dtype_bytes(dtype), dtype);
}

// Nothing but the keys and values of those positions is read.
void read_tile(const LayerView& layer, std::int64_t kv_head, std::span<const std::int32_t> positions, Tile tile) {
  const Geometry& geometry = *layer.geometry;
  for (const std::int32_t position : positions) {
    widen(layer.key(position, kv_head), geometry.kv_dtype(), geometry.head_dim(), tile.keys);
    widen(layer.value(position, kv_head), geometry.kv_dtype(), geometry.value_dim(), tile.values);
    tile.keys += geometry.head_dim();
    tile.values += geometry.value_dim();
  }
}

// What one query head knows of the entries reduced so far: the softmax's maximum and denominator, and the numerators.
struct Partial {
  float max = 0.0f;
  float den = 0.0f;
  float* sums = nullptr;  // [value_dim]
  bool any = false;       // false: nothing reduced yet
};

float dot(ConstTensor query, std::int64_t head, const float* key, std::int64_t dim) {
  float sum = 0.0f;
  for (std::int64_t i = 0; i < dim; ++i) sum = fma32(load_element(query.at(head, i), query.dtype), key[i], sum);
  return sum;
}

// Reduces one split, whose first entry is `first` of the row. Gives false if a logit is not finite.
bool reduce_split(const AttendProblem& problem, std::int64_t head, const Tile& tile, std::int64_t first,
                  std::int64_t entries, float* logits, Partial& split) {
  const Geometry& geometry = *problem.layer->geometry;
  const std::int64_t value_dim = geometry.value_dim();
  bool finite = true;
  for (std::int64_t j = 0; j < entries; ++j) {
    logits[j] =
        dot(problem.query, head, tile.keys + j * geometry.head_dim(), geometry.head_dim()) * geometry.softmax_scale();
    if (problem.biases != nullptr) logits[j] = logits[j] + problem.biases[first + j];
    finite = finite && std::isfinite(logits[j]);
  }
  split.any = true;
  split.max = *std::max_element(logits, logits + entries);
  split.den = 0.0f;
  std::fill_n(split.sums, value_dim, 0.0f);
  for (std::int64_t j = 0; j < entries; ++j) {
    const float p = exp32(logits[j] - split.max);
    split.den = split.den + p;
    for (std::int64_t i = 0; i < value_dim; ++i)
      split.sums[i] = fma32(p, tile.values[j * value_dim + i], split.sums[i]);
  }
  return finite;
}

// Folds a later split into what came before it.
void fold(Partial& total, const Partial& split, std::int64_t value_dim) {
  if (!total.any) {
    std::copy_n(split.sums, value_dim, total.sums);
    total.max = split.max;
    total.den = split.den;
    total.any = true;
    return;
  }
  const float max = std::max(total.max, split.max);
  const float a = exp32(total.max - max);
  const float b = exp32(split.max - max);
  total.den = fma32(total.den, a, split.den * b);
  for (std::int64_t i = 0; i < value_dim; ++i) total.sums[i] = fma32(total.sums[i], a, split.sums[i] * b);
  total.max = max;
}

// Writes one head's output and lse. Gives false, and writes NaN, where it overflowed: f32, or what the output is stored
// as.
bool write_head(const AttendProblem& problem, std::int64_t head, const Partial& total, bool finite) {
  const std::int64_t value_dim = problem.layer->geometry->value_dim();
  for (std::int64_t i = 0; total.any && i < value_dim; ++i) {
    finite = finite && std::isfinite(round_to(problem.output.dtype, total.sums[i] / total.den));
  }
  for (std::int64_t i = 0; i < value_dim; ++i) {
    const float value = !finite     ? std::numeric_limits<float>::quiet_NaN()
                        : total.any ? total.sums[i] / total.den
                                    : 0.0f;
    store_element(problem.output.at(head, i), problem.output.dtype, value);
  }
  if (!problem.lse.empty()) {
    float& lse = problem.lse[static_cast<std::size_t>(head)];
    lse = !finite     ? std::numeric_limits<float>::quiet_NaN()
          : total.any ? total.max + log32(total.den)
                      : -std::numeric_limits<float>::infinity();
  }
  return finite;
}

// Nothing reduced yet, but for a sink.
Partial begin(const AttendProblem& problem, std::int64_t head, float* sums) {
  Partial total{.sums = sums};
  if (problem.sinks.empty()) return total;
  std::fill_n(total.sums, problem.layer->geometry->value_dim(), 0.0f);
  total.max = problem.sinks[static_cast<std::size_t>(head)];
  total.den = 1.0f;
  total.any = true;
  return total;
}

struct Scratch {
  Tile tile;
  float* logits;  // [kSplitEntries]
  float* sums;    // [2][value_dim]

  static Scratch of(const AttendProblem& problem) {
    const Geometry& geometry = *problem.layer->geometry;
    const Tile tile{problem.scratch, problem.scratch + kSplitEntries * geometry.head_dim()};
    float* logits = tile.values + kSplitEntries * geometry.value_dim();
    return {tile, logits, logits + kSplitEntries};
  }
};

}  // namespace

std::int64_t attend_kv_head_ref(const AttendProblem& problem) {
  const Geometry& geometry = *problem.layer->geometry;
  const std::int64_t heads = geometry.heads_per_kv();
  const std::int64_t value_dim = geometry.value_dim();
  const auto [tile, logits, sums] = Scratch::of(problem);
  const auto entries = static_cast<std::int64_t>(problem.row.size());

  std::int64_t first_overflow = -1;
  for (std::int64_t head = problem.kv_head * heads; head < (problem.kv_head + 1) * heads; ++head) {
    Partial total = begin(problem, head, sums);
    Partial split{.sums = sums + value_dim};
    bool finite = true;
    for (std::int64_t first = 0; first < entries; first += kSplitEntries) {
      const std::int64_t count = std::min(kSplitEntries, entries - first);
      read_tile(*problem.layer, problem.kv_head,
                problem.row.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), tile);
      finite = reduce_split(problem, head, tile, first, count, logits, split) && finite;
      fold(total, split, value_dim);
    }
    if (!write_head(problem, head, total, finite) && first_overflow < 0) first_overflow = head;
  }
  return first_overflow;
}

namespace {

// Folds one head's `count` partials into `total`, in order. Gives false if a logit of theirs was not finite.
bool fold_head(const Geometry& geometry, std::int64_t head, const float* partials, std::int64_t count, float* spare,
               Partial& total) {
  const std::int64_t value_dim = geometry.value_dim();
  bool finite = true;
  for (std::int64_t s = 0; s < count; ++s) {
    const PartialParts<const float> parts(geometry, partials + s * attend_partial_floats(geometry));
    if (parts.den[head] == 0.0f) continue;  // past the row's end
    Partial split{.max = parts.max[head], .den = parts.den[head], .sums = spare, .any = true};
    std::copy_n(parts.sums + head * value_dim, value_dim, split.sums);
    finite = finite && !std::isnan(split.max);
    fold(total, split, value_dim);
  }
  return finite;
}

// One head of a partial. NaN in all places where `finite` is false.
void put_partial(const Geometry& geometry, std::int64_t head, const Partial& one, bool finite, float* partial) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const PartialParts<float> parts(geometry, partial);
  float* sums = parts.sums + head * geometry.value_dim();
  parts.max[head] = !finite ? kNaN : one.any ? one.max : -std::numeric_limits<float>::infinity();
  parts.den[head] = !finite ? kNaN : one.any ? one.den : 0.0f;
  if (!finite || !one.any) {
    std::fill_n(sums, geometry.value_dim(), finite ? 0.0f : kNaN);
  } else if (sums != one.sums) {
    std::copy_n(one.sums, geometry.value_dim(), sums);
  }
}

}  // namespace

void split_partial_ref(const AttendProblem& problem, std::int64_t split, float* partial) {
  const Geometry& geometry = *problem.layer->geometry;
  const std::int64_t heads = geometry.heads_per_kv();
  const Scratch scratch = Scratch::of(problem);
  const std::int64_t first = split * kSplitEntries;
  const auto left = problem.row.subspan(static_cast<std::size_t>(first));
  const auto entries = left.first(std::min<std::size_t>(kSplitEntries, left.size()));
  read_tile(*problem.layer, problem.kv_head, entries, scratch.tile);
  for (std::int64_t head = problem.kv_head * heads; head < (problem.kv_head + 1) * heads; ++head) {
    Partial one{.sums = PartialParts<float>(geometry, partial).sums + head * geometry.value_dim()};
    const bool finite = reduce_split(problem, head, scratch.tile, first, static_cast<std::int64_t>(entries.size()),
                                     scratch.logits, one);
    put_partial(geometry, head, one, finite, partial);
  }
}

void fold_state_ref(const AttendProblem& problem, const float* partials, std::int64_t count, float* state) {
  const Geometry& geometry = *problem.layer->geometry;
  const std::int64_t heads = geometry.heads_per_kv();
  const Scratch scratch = Scratch::of(problem);
  for (std::int64_t head = problem.kv_head * heads; head < (problem.kv_head + 1) * heads; ++head) {
    Partial total = begin(problem, head, scratch.sums);
    const bool finite = fold_head(geometry, head, partials, count, scratch.sums + geometry.value_dim(), total);
    put_partial(geometry, head, total, finite, state);
  }
}

std::int64_t fold_partials_ref(const AttendProblem& problem, const float* partials, std::int64_t count) {
  const Geometry& geometry = *problem.layer->geometry;
  const std::int64_t heads = geometry.heads_per_kv();
  const Scratch scratch = Scratch::of(problem);
  std::int64_t first_overflow = -1;
  for (std::int64_t head = problem.kv_head * heads; head < (problem.kv_head + 1) * heads; ++head) {
    Partial total = begin(problem, head, scratch.sums);
    const bool finite = fold_head(geometry, head, partials, count, scratch.sums + geometry.value_dim(), total);
    if (!write_head(problem, head, total, finite) && first_overflow < 0) first_overflow = head;
  }
  return first_overflow;
}

}  // namespace seriatim
