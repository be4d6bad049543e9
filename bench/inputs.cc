#include "bench/inputs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/half.hpp"
#include "bench/bench.hpp"
#include "select/sample_place.hpp"

namespace seriatim::bench {

std::uint64_t Random::bits() {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return state_ * 0x2545f4914f6cdd1du;
}

float Random::uniform() { return static_cast<float>(static_cast<std::int64_t>(bits() >> 40) - (1 << 23)) * 0x1p-23f; }

float Random::normal() {
  const float u = 0.5f + 0.49999f * uniform();
  return std::sqrt(-2.0f * std::log(u)) * std::cos(3.14159265f * uniform());
}

std::vector<float> normal_scores(Random& random, std::int64_t count) {
  std::vector<float> scores(static_cast<std::size_t>(count));
  for (float& s : scores) s = random.normal();
  return scores;
}

std::vector<Distribution> score_distributions(Random& random, std::int64_t count) {
  const auto changed = [&](auto change) {
    std::vector<float> scores = normal_scores(random, count);
    for (float& s : scores) s = change(s);
    return scores;
  };
  std::vector<float> up = normal_scores(random, count);
  std::sort(up.begin(), up.end());
  const std::vector<float> down(up.rbegin(), up.rend());
  const float inf = std::numeric_limits<float>::infinity();
  // By one who knows where a selection looks first.
  const auto poisoned = [&](auto change) {
    std::vector<float> scores = normal_scores(random, count);
    for (std::uint32_t i = 0; i < kSampleSize; ++i) {
      float& score = scores[sample_place(i / kSampleRun, static_cast<std::uint32_t>(count)) + i % kSampleRun];
      score = change(score);
    }
    return scores;
  };
  return {{"normal", normal_scores(random, count)},
          {"80 % zeros", changed([&](float s) { return random.uniform() < 0.6f ? 0.0f : std::fabs(s); })},
          {"sorted up", std::move(up)},
          {"sorted down", down},
          {"all equal", std::vector<float>(static_cast<std::size_t>(count), 1.5f)},
          {"top 22 bits shared", changed([&](float) {
             return std::bit_cast<float>(0x3f800000u | static_cast<std::uint32_t>(random.bits() & 0x3ffu));
           })},
          {"half -inf", changed([&](float s) { return random.uniform() < 0.0f ? -inf : s; })},
          {"sampled places high", poisoned([](float s) { return s + 100.0f; })},
          {"sampled places low", poisoned([](float s) { return s - 100.0f; })},
          {"sampled places equal", poisoned([](float) { return 1.0f; })}};
}

std::vector<std::byte> uniform_elements(Random& random, std::int64_t count, DType dtype) {
  const std::int64_t element_bytes = dtype_bytes(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * element_bytes));
  for (std::int64_t i = 0; i < count; ++i)
    store_element(bytes.data() + i * element_bytes, dtype, 1.7320508f * random.uniform());
  return bytes;
}

Geometry real_geometry(DType dtype, std::int64_t budget_tokens) {
  GeometryOptions options;
  options.kv_dtype = dtype;
  options.index_dtype = dtype;
  options.budget_tokens = budget_tokens;
  return *Geometry::admit(options);
}

Geometry latent_geometry(DType dtype) {
  GeometryOptions options;
  options.kv_dtype = dtype;
  options.index_dtype = dtype;
  options.group_tokens = 1;
  options.query_heads = 128;
  options.kv_heads = 1;
  options.head_dim = 576;
  options.value_dim = 512;
  options.values_alias_keys = true;
  options.index_heads = 64;
  options.index_rotary_dim = 0;
  options.pooling = Pooling::kNone;
  options.scale_at = ScaleAt::kNowhere;
  return *Geometry::admit(options);
}

namespace {

constexpr std::int64_t kChunk = 8192;

// Index queries that drift from one to the next, as those of neighbouring tokens do.
std::vector<std::byte> drifting(Random& random, std::int64_t queries, std::int64_t width, double correlation,
                                DType dtype) {
  const std::int64_t element_bytes = dtype_bytes(dtype);
  const auto keep = static_cast<float>(correlation);
  const auto fresh = static_cast<float>(std::sqrt(1.0 - correlation * correlation));
  std::vector<std::byte> bytes(static_cast<std::size_t>(queries * width * element_bytes));
  std::vector<float> state = normal_scores(random, width);
  for (std::int64_t q = 0; q < queries; ++q) {
    for (std::int64_t i = 0; i < width; ++i) {
      float& x = state[static_cast<std::size_t>(i)];
      x = keep * x + fresh * random.normal();
      store_element(bytes.data() + (q * width + i) * element_bytes, dtype, x);
    }
  }
  return bytes;
}

}  // namespace

Layer::Layer(const Geometry& geometry, std::int64_t tokens, std::int64_t queries, double correlation,
             std::uint64_t seed)
    : geometry_(geometry), queries_(queries) {
  Random random(seed);
  CacheOptions options;
  options.capacity_tokens = tokens + kChunk;
  auto cache = Cache::create(geometry_, std::move(options));
  require(cache.ok(), "create a cache");
  cache_ = *std::move(cache);
  const auto sequence = cache_->add();
  require(sequence.ok(), "add a sequence");
  const Geometry& g = geometry_;
  for (std::int64_t first = 0; first < tokens; first += kChunk) {
    const std::int64_t count = std::min(kChunk, tokens - first);
    const auto keys = uniform_elements(random, count * g.kv_heads() * g.head_dim(), g.kv_dtype());
    const auto values =
        uniform_elements(random, g.values_alias_keys() ? 0 : count * g.kv_heads() * g.value_dim(), g.kv_dtype());
    const auto index_keys = uniform_elements(random, count * g.index_dim(), g.index_dtype());
    auto step = cache_->begin();
    require(step.ok(), "begin a step");
    const TokenBatch batch{
        .first_position = first,
        .keys = dense_view(keys.data(), g.kv_dtype(), {count, g.kv_heads(), g.head_dim()}),
        .values = g.values_alias_keys() ? ConstTensor{}
                                        : dense_view(values.data(), g.kv_dtype(), {count, g.kv_heads(), g.value_dim()}),
        .index_keys = dense_view(index_keys.data(), g.index_dtype(), {count, g.index_dim()})};
    require(step->append(*sequence, 0, batch).ok() && step->commit().ok(), "append tokens");
  }
  snapshot_.push_back(*cache_->snapshot(*sequence));
  view_ = snapshot_[0].layer(0);
  index_queries_ = drifting(random, queries, g.index_heads() * g.index_dim(), correlation, g.index_dtype());
  attend_queries_ = uniform_elements(random, queries * g.query_heads() * g.head_dim(), g.kv_dtype());
  if (g.scale_at() == ScaleAt::kNowhere) head_weights_ = normal_scores(random, queries * g.index_heads());
  for (std::int64_t q = 0; q < queries; ++q) positions_.push_back(tokens - queries + q);
}

void Layer::stand_at(std::int64_t position) { std::fill(positions_.begin(), positions_.end(), position); }

IndexQueries Layer::index_queries(std::int64_t first, std::int64_t count) const {
  const Geometry& g = geometry_;
  const std::int64_t bytes_per_row = row_bytes(g.index_dtype(), g.index_heads() * g.index_dim());
  ConstTensor weights;
  if (!head_weights_.empty())
    weights = dense_view(static_cast<const void*>(head_weights_.data() + first * g.index_heads()), DType::kF32,
                         {count, g.index_heads()});
  return {dense_view(index_queries_.data() + first * bytes_per_row, g.index_dtype(),
                     {count, g.index_heads(), g.index_dim()}),
          weights, std::span(positions_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))};
}

AttendQueries Layer::attend_queries(std::int64_t first, std::int64_t count) const {
  const Geometry& g = geometry_;
  const std::int64_t bytes_per_row = row_bytes(g.kv_dtype(), g.query_heads() * g.head_dim());
  return {
      dense_view(attend_queries_.data() + first * bytes_per_row, g.kv_dtype(), {count, g.query_heads(), g.head_dim()}),
      std::span(positions_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
      {}};
}

Engine make_engine(const Layer& layer, Executor& executor, Kernels kernels) {
  auto engine = Engine::host(executor, kernels);
  require(engine.ok() && engine->reserve(layer.geometry(), {layer.tokens(), Geometry::kPositions, 1}).ok(),
          "make an engine");
  return *std::move(engine);
}

Answer::Answer(const Geometry& geometry, std::int64_t count, std::int64_t row_capacity)
    : queries(count),
      heads(geometry.query_heads()),
      value_dim(geometry.value_dim()),
      capacity(row_capacity > 0 ? row_capacity : geometry.row_capacity()),
      positions(static_cast<std::size_t>(count * capacity)),
      counts(static_cast<std::size_t>(count)),
      values(static_cast<std::size_t>(count * heads * value_dim)) {}

Rows Answer::rows() { return {positions.data(), capacity, counts.data()}; }

Tensor Answer::output() {
  return dense_view(static_cast<void*>(values.data()), DType::kF32, {queries, heads, value_dim});
}

}  // namespace seriatim::bench
