#include "agreement/problem.hpp"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "replay/digest.hpp"
#include "seriatim/replay.hpp"

namespace seriatim::agreement {
namespace {

using testing::Random;

// A float put together from 64 random bits without any rounding: sign and fraction uniform, the exponent such that the
// magnitude is nearly uniform in 0..2, then scaled by 2^shift.
float draw(Random& random, int shift) {
  const std::uint64_t bits = random.next();
  const auto fraction = static_cast<std::uint32_t>(bits) & 0x007fffffu;
  const auto sign = static_cast<std::uint32_t>(bits >> 23 & 1u) << 31;
  const int below_one = std::countr_zero(bits >> 24 | 0x100u);  // 0 in half of the draws, 1 in a quarter ... 8 at most
  const int exponent = 127 + shift - below_one;
  if (exponent < 1) return std::bit_cast<float>(sign | fraction >> 4);  // subnormal
  return std::bit_cast<float>(sign | static_cast<std::uint32_t>(exponent) << 23 | fraction);
}

HostTensor draw_tensor(Random& random, DType dtype, std::initializer_list<std::int64_t> shape, int shift) {
  HostTensor tensor(dtype, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, draw(random, shift));
  return tensor;
}

// Makes group g a copy of group g mod distinct.
void repeat_groups(HostTensor& index_keys, std::int64_t group_tokens, std::int64_t distinct) {
  const auto bytes = static_cast<std::size_t>(index_keys.view().stride_bytes[0]);
  for (std::int64_t t = 0; t < index_keys.view().shape[0]; ++t) {
    const std::int64_t from = t / group_tokens % distinct * group_tokens + t % group_tokens;
    std::memmove(index_keys.writable().at(t), index_keys.view().at(from), bytes);
  }
}

// The recipes are the program's own, so what they ask for must be possible.
void must(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "agreement: %s: %.*s\n", what, static_cast<int>(status.message().size()),
               status.message().data());
  std::exit(2);
}

Geometry admitted(const GeometryOptions& options) {
  const auto geometry = Geometry::admit(options);
  must(geometry.status(), "geometry");
  return *geometry;
}

void finish_index_queries(Problem& p) {
  if (p.geometry.pooling() == Pooling::kNone) return;  // whoever finishes the keys finishes the queries
  std::vector<Coordinates> coordinates;
  if (!p.coordinates.empty()) {
    for (const std::int64_t position : p.positions)
      coordinates.push_back(p.coordinates[static_cast<std::size_t>(position - p.anchor)]);
  }
  const HostTensor raw = p.index_queries;
  const ConstTensor norms = seriatim::as_const(dense_view(p.norm_weight.data(), DType::kF32, {p.geometry.index_dim()}));
  must(prepare_index_queries(p.geometry, norms, raw.view(), p.positions.data(),
                             coordinates.empty() ? nullptr : coordinates.data(), p.index_queries.writable()),
       "index queries");
}

HostTensor copy_of(const ConstTensor& view) {
  if (view.empty()) return {};
  HostTensor copy = view.rank == 2 ? HostTensor(view.dtype, {view.shape[0], view.shape[1]})
                                   : HostTensor(view.dtype, {view.shape[0], view.shape[1], view.shape[2]});
  const auto bytes = static_cast<std::size_t>(copy.view().stride_bytes[0]);  // a capture's tensors are dense
  for (std::int64_t i = 0; i < view.shape[0]; ++i) std::memcpy(copy.writable().at(i), view.at(i), bytes);
  return copy;
}

}  // namespace

Problem generate(const Recipe& recipe, std::uint64_t seed) {
  Random random(seed);
  Problem p(admitted(recipe.geometry));
  const Geometry& g = p.geometry;
  const auto queries = static_cast<std::int64_t>(recipe.asked.size());
  p.anchor = recipe.anchor;
  p.output_dtype = recipe.output_dtype;
  p.keys = draw_tensor(random, g.kv_dtype(), {recipe.tokens, g.kv_heads(), g.head_dim()}, recipe.key_shift);
  if (!g.values_alias_keys())
    p.values = draw_tensor(random, g.kv_dtype(), {recipe.tokens, g.kv_heads(), g.value_dim()}, recipe.value_shift);
  p.index_keys = draw_tensor(random, g.index_dtype(), {recipe.tokens, g.index_dim()}, recipe.index_shift);
  if (recipe.distinct_keys > 0) repeat_groups(p.index_keys, g.group_tokens(), recipe.distinct_keys);
  p.queries = draw_tensor(random, g.kv_dtype(), {queries, g.query_heads(), g.head_dim()}, recipe.query_shift);
  p.index_queries = draw_tensor(random, g.index_dtype(), {queries, g.index_heads(), g.index_dim()}, 0);
  if (recipe.head_weights) p.head_weights = draw_tensor(random, DType::kF32, {queries, g.index_heads()}, 0);
  for (std::int64_t i = 0; i < g.index_dim(); ++i) p.norm_weight.push_back(draw(random, -2));
  for (std::int64_t h = 0; recipe.sinks && h < g.query_heads(); ++h) p.sinks.push_back(draw(random, 1));
  for (std::int64_t t = 0; recipe.coordinates && t < recipe.tokens; ++t) {
    p.coordinates.push_back({static_cast<std::int32_t>(random.below(4096)), static_cast<std::int32_t>(random.below(64)),
                             static_cast<std::int32_t>(random.below(64))});
  }
  for (const std::int64_t token : recipe.asked) p.positions.push_back(recipe.anchor + token);
  finish_index_queries(p);
  return p;
}

Result<Problem> from_capture(const std::string& path) {
  const auto capture = Capture::open(path);
  if (!capture.ok()) return capture.status();
  Problem p(capture->geometry);
  p.anchor = capture->anchor;
  p.keys = copy_of(capture->keys);
  p.values = copy_of(capture->values);
  p.index_keys = copy_of(capture->index_keys);
  p.queries = copy_of(capture->queries);
  p.index_queries = copy_of(capture->index_queries);
  p.head_weights = copy_of(capture->index_head_weights);
  p.norm_weight = capture->index_norm_weight;
  p.positions = capture->query_positions;
  return p;
}

std::string inputs_digest(const Problem& p) {
  return digest({p.keys.bytes(), p.values.bytes(), p.index_keys.bytes(), p.queries.bytes(), p.index_queries.bytes(),
                 p.head_weights.bytes(), std::as_bytes(std::span(p.norm_weight)), std::as_bytes(std::span(p.sinks)),
                 std::as_bytes(std::span(p.coordinates)), std::as_bytes(std::span(p.positions))});
}

}  // namespace seriatim::agreement
