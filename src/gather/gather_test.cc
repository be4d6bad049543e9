#include "seriatim/gather.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "support/bits.hpp"
#include "support/plain_layer.hpp"
#include "support/random.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr float kGuard = -123.0f;

GeometryOptions small_cache(DType dtype = DType::kF32, std::int64_t value_dim = 3, bool alias = false) {
  GeometryOptions options;
  options.query_heads = 2;
  options.kv_heads = 2;
  options.head_dim = 5;
  options.value_dim = value_dim;
  options.values_alias_keys = alias;
  options.kv_dtype = dtype;
  return options;
}

// Random tokens, and the tile that some of them should give.
class GatherCase {
 public:
  explicit GatherCase(const GeometryOptions& options, std::int64_t tokens = 200) : geometry(*Geometry::admit(options)) {
    Random random(71);
    keys = random_tensor(random, geometry.kv_dtype(), {tokens, 2, geometry.head_dim()});
    if (!geometry.values_alias_keys())
      values = random_tensor(random, geometry.kv_dtype(), {tokens, 2, geometry.value_dim()});
  }

  PlainLayer layer(std::int64_t anchor, std::int64_t page_tokens, std::int64_t first_slot) const {
    return PlainLayer(geometry, anchor, keys, geometry.values_alias_keys() ? nullptr : &values, page_tokens,
                      first_slot);
  }

  // Gathers `positions` and expects their tokens in that order, and nothing past them.
  void expect_tile(const PlainLayer& layer, std::int64_t kv_head, const std::vector<std::int32_t>& positions) const {
    const auto entries = static_cast<std::int64_t>(positions.size());
    std::vector<float> got_keys(static_cast<std::size_t>(entries * geometry.head_dim() + 4), kGuard);
    std::vector<float> got_values(static_cast<std::size_t>(entries * geometry.value_dim() + 4), kGuard);
    gather_tile(layer.view(), kv_head, positions, {got_keys.data(), got_values.data()});
    const HostTensor& from = geometry.values_alias_keys() ? keys : values;
    std::vector<float> want_keys;
    std::vector<float> want_values;
    for (const std::int32_t position : positions) {
      const std::int64_t row = (position - layer.view().run.anchor) * 2 + kv_head;
      for (std::int64_t i = 0; i < geometry.head_dim(); ++i)
        want_keys.push_back(keys.get(row * geometry.head_dim() + i));
      const std::int64_t value_stride = geometry.values_alias_keys() ? geometry.head_dim() : geometry.value_dim();
      for (std::int64_t i = 0; i < geometry.value_dim(); ++i) want_values.push_back(from.get(row * value_stride + i));
    }
    want_keys.insert(want_keys.end(), 4, kGuard);
    want_values.insert(want_values.end(), 4, kGuard);
    EXPECT_TRUE(same_bits(got_keys, want_keys)) << "keys of kv head " << kv_head;
    EXPECT_TRUE(same_bits(got_values, want_values)) << "values of kv head " << kv_head;
  }

  const Geometry geometry;
  HostTensor keys;
  HostTensor values;
};

TEST(Gather, GivesTheTokensInTheOrderAskedFor) {
  const GatherCase gather(small_cache());
  const PlainLayer layer = gather.layer(0, 16, 0);
  for (const std::int64_t kv_head : {0, 1}) {
    gather.expect_tile(layer, kv_head, {0});
    gather.expect_tile(layer, kv_head, {3, 4, 5, 6, 90, 199});
    gather.expect_tile(layer, kv_head, {150, 2, 77});
  }
}

TEST(Gather, FindsASlotOnAnyPage) {
  const GatherCase gather(small_cache());
  for (const std::int64_t page_tokens : {1, 3, 16, 500}) {
    for (const std::int64_t first_slot : {std::int64_t{0}, page_tokens / 2, page_tokens - 1}) {
      const PlainLayer layer = gather.layer(1'000'003, page_tokens, first_slot);
      std::vector<std::int32_t> positions;
      for (std::int32_t t = 0; t < 128; ++t) positions.push_back(1'000'003 + t + t / 2);
      gather.expect_tile(layer, 1, positions);
    }
  }
}

TEST(Gather, WidensHalvesExactly) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    const GatherCase gather(small_cache(dtype));
    gather.expect_tile(gather.layer(0, 16, 0), 1, {5, 6, 7, 100});
  }
}

TEST(Gather, ReadsAliasedValuesFromTheKeys) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const GatherCase gather(small_cache(dtype, 4, true));
    gather.expect_tile(gather.layer(0, 16, 3), 0, {0, 1, 60});
  }
}

TEST(Gather, ReadsNoPageButThoseOfItsPositions) {
  const GatherCase gather(small_cache());
  PlainLayer layer = gather.layer(0, 16, 0);
  for (std::int64_t page = 0; page < layer.pages(); ++page) {
    if (page != 2 && page != 9) layer.forbid_page(page);
  }
  gather.expect_tile(layer, 0, {32, 47, 150});
}

}  // namespace
}  // namespace seriatim
