// The C ABI and the C++ library, fed the same tokens and queries, must give the same bytes: rows, counts, outputs and
// sums, in every dtype and with every optional part of the rule.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "seriatim/oracle.hpp"
#include "seriatim_rule.h"
#include "support/foreign_float_environment.hpp"
#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

template <typename T, void (*kDestroy)(T*)>
struct Destroy {
  void operator()(T* handle) const { kDestroy(handle); }
};
template <typename T, void (*kDestroy)(T*)>
using Handle = std::unique_ptr<T, Destroy<T, kDestroy>>;
using CGeometry = Handle<seriatim_geometry, seriatim_geometry_destroy>;
using CCache = Handle<seriatim_cache, seriatim_cache_destroy>;
using CTransaction = Handle<seriatim_transaction, seriatim_transaction_destroy>;
using CEngine = Handle<seriatim_engine, seriatim_engine_destroy>;

class CError : public seriatim_error {
 public:
  CError() { seriatim_error_init(this); }
};

seriatim_tensor c_tensor(const ConstTensor& view) {
  seriatim_tensor tensor{const_cast<std::byte*>(view.data), static_cast<std::int32_t>(view.dtype), view.rank, {}, {}};
  std::copy(view.shape.begin(), view.shape.end(), tensor.shape);
  std::copy(view.stride_bytes.begin(), view.stride_bytes.end(), tensor.stride_bytes);
  return tensor;
}

seriatim_geometry_options c_options(const GeometryOptions& from) {
  seriatim_geometry_options to;
  seriatim_geometry_options_init(&to);
  to.group_tokens = from.group_tokens;
  to.budget_tokens = from.budget_tokens;
  to.query_heads = from.query_heads;
  to.kv_heads = from.kv_heads;
  to.head_dim = from.head_dim;
  to.value_dim = from.value_dim;
  to.values_alias_keys = from.values_alias_keys ? 1 : 0;
  to.index_heads = from.index_heads;
  to.index_dim = from.index_dim;
  to.index_rotary_dim = from.index_rotary_dim;
  to.rope_theta = from.rope_theta;
  to.rope_axes = from.rope_axes.data();
  to.rope_axes_count = static_cast<std::int64_t>(from.rope_axes.size());
  to.pooling = static_cast<std::int32_t>(from.pooling);
  to.relu = from.relu ? 1 : 0;
  to.scale_at = static_cast<std::int32_t>(from.scale_at);
  to.kv_dtype = static_cast<std::int32_t>(from.kv_dtype);
  to.index_dtype = static_cast<std::int32_t>(from.index_dtype);
  if (from.softmax_scale) to.softmax_scale = *from.softmax_scale;
  return to;
}

const std::int32_t* numbers(const std::vector<Coordinates>& coordinates, std::int64_t first) {
  return coordinates.empty() ? nullptr : coordinates[static_cast<std::size_t>(first)].data();
}

// A story told through the C ABI, in chunks, with every query asked of the staged layer.
class CStory {
 public:
  CStory(const Story& story, const GeometryOptions& options, const char* kernels, std::int32_t threads)
      : story_(story) {
    const seriatim_geometry_options geometry = c_options(options);
    seriatim_geometry* made_geometry = nullptr;
    EXPECT_EQ(seriatim_geometry_create(&geometry, &made_geometry, &error_), SERIATIM_OK) << error_.message;
    geometry_.reset(made_geometry);
    make_cache(kernels);
    seriatim_engine_options engine_options;
    seriatim_engine_options_init(&engine_options);
    engine_options.kernels = kernels;
    engine_options.threads = threads;
    seriatim_engine* engine = nullptr;
    EXPECT_EQ(seriatim_engine_create(&engine_options, &engine, &error_), SERIATIM_OK) << error_.message;
    engine_.reset(engine);
  }

  Answers answers(std::int64_t chunk) {
    Answers all(story_.geometry, story_.tokens());
    for (std::int64_t first = 0; first < story_.tokens(); first += chunk)
      answer(first, std::min(chunk, story_.tokens() - first), all);
    return all;
  }

 private:
  void make_cache(const char* kernels) {
    seriatim_layer_options layer{story_.norm_weight.data(), static_cast<std::int64_t>(story_.norm_weight.size()), 1, 0};
    seriatim_cache_options options;
    seriatim_cache_options_init(&options);
    options.layers = &layer;
    options.capacity_tokens = 4 * story_.tokens() + 4096;
    options.kernels = kernels;
    seriatim_cache* cache = nullptr;
    EXPECT_EQ(seriatim_cache_create(geometry_.get(), &options, &cache, &error_), SERIATIM_OK) << error_.message;
    cache_.reset(cache);
    EXPECT_EQ(seriatim_cache_add(cache, story_.anchor, &sequence_, &error_), SERIATIM_OK) << error_.message;
  }

  void answer(std::int64_t first, std::int64_t count, Answers& all) {
    seriatim_transaction* step = nullptr;
    ASSERT_EQ(seriatim_cache_begin(cache_.get(), &step, &error_), SERIATIM_OK) << error_.message;
    const CTransaction transaction(step);
    const seriatim_tensor keys = c_tensor(story_.keys.rows(first, count));
    const bool alias = story_.geometry.values_alias_keys();
    const seriatim_tensor values = alias ? seriatim_tensor{} : c_tensor(story_.values.rows(first, count));
    const seriatim_tensor index_keys = c_tensor(story_.index_keys.rows(first, count));
    ASSERT_EQ(seriatim_transaction_append(step, sequence_, 0, story_.anchor + first, &keys, alias ? nullptr : &values,
                                          &index_keys, numbers(story_.coordinates, first), &error_),
              SERIATIM_OK)
        << error_.message;
    const seriatim_layer layer{nullptr, step, nullptr, sequence_, 0};
    ask(layer, first, count, all);
    ASSERT_EQ(seriatim_transaction_commit(step, &error_), SERIATIM_OK) << error_.message;
  }

  void ask(const seriatim_layer& layer, std::int64_t first, std::int64_t count, Answers& all) {
    std::vector<std::int64_t> positions;
    for (std::int64_t t = first; t < first + count; ++t) positions.push_back(story_.anchor + t);
    const Rows places = all.rows_from(first);
    const seriatim_rows rows{places.positions, places.stride, places.counts};
    const seriatim_const_rows planned{places.positions, places.stride, places.counts};
    const bool weighted = story_.head_weights.elements() > 0;
    const seriatim_tensor weights = weighted ? c_tensor(story_.head_weights.rows(first, count)) : seriatim_tensor{};
    const seriatim_plan_ask plan{
        sizeof plan,      layer, c_tensor(story_.index_queries.rows(first, count)), weighted ? &weights : nullptr,
        positions.data(), count};
    ASSERT_EQ(seriatim_plan(engine_.get(), &plan, 1, SERIATIM_NAN_REFUSE, &rows, &error_), SERIATIM_OK)
        << error_.message;
    const seriatim_attend_ask attend{sizeof attend,
                                     layer,
                                     c_tensor(story_.queries.rows(first, count)),
                                     positions.data(),
                                     count,
                                     story_.sinks.data(),
                                     static_cast<std::int64_t>(story_.sinks.size())};
    const seriatim_tensor output = c_tensor(all.output.rows(first, count));
    const seriatim_tensor lse = c_tensor(all.lse.rows(first, count));
    ASSERT_EQ(seriatim_attend(engine_.get(), &attend, 1, &planned, &output, &lse, &error_), SERIATIM_OK)
        << error_.message;
  }

  const Story& story_;
  CError error_;
  CGeometry geometry_;
  CCache cache_;
  CEngine engine_;
  std::int64_t sequence_ = -1;
};

void expect_the_same(const Story& story, const GeometryOptions& options) {
  const Answers wanted = one_call(story);
  ASSERT_GT(sparse_rows(wanted), 20);
  for (const std::int64_t chunk : {std::int64_t{1}, std::int64_t{37}, story.tokens()}) {
    EXPECT_TRUE(same_answers(CStory(story, options, nullptr, 2).answers(chunk), wanted)) << "chunks of " << chunk;
  }
  EXPECT_TRUE(same_answers(CStory(story, options, "reference", 1).answers(50), wanted));
}

TEST(CAbi, GivesTheBitsOfCxxInEveryDtype) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const std::int64_t r : {1, 3, 4}) {
      const GeometryOptions options = small_path(r, dtype);
      expect_the_same(Story(options, 130, 11, 5), options);
    }
  }
}

TEST(CAbi, GivesItsBitsInAnyFloatingPointEnvironmentAndLeavesItAsItWas) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const GeometryOptions options = small_path(4, dtype);
    const Story story(options, 130, 15);
    const Answers wanted = one_call(story);
    for (const Foreign foreign : kEveryForeign) {
      Answers got(story.geometry, story.tokens());
      bool untouched = false;
      {
        ForeignFloatEnvironment environment(foreign);
        got = CStory(story, options, nullptr, 2).answers(37);
        untouched = environment.untouched();
      }
      EXPECT_TRUE(same_answers(got, wanted)) << foreign_name(foreign);
      EXPECT_TRUE(untouched) << foreign_name(foreign);
    }
  }
}

TEST(CAbi, GivesTheBitsOfCxxWithWeightsSinksAndAliasedValues) {
  GeometryOptions options = small_path();
  options.values_alias_keys = true;
  options.relu = false;
  options.scale_at = ScaleAt::kBeforeRelu;
  options.softmax_scale = 0.7f;
  Story story(options, 130, 12);
  Random random(13);
  story.head_weights = random_tensor(random, DType::kF32, {130, 3});
  for (int head = 0; head < 4; ++head) story.sinks.push_back(random.normal());
  expect_the_same(story, options);
}

TEST(CAbi, GivesTheBitsOfCxxWithCoordinatesAndWithoutPooling) {
  GeometryOptions options = small_path();
  options.rope_axes = {0, 2};
  const Story unplaced(small_path(), 130, 14);
  Story story(options, 0, 14, 3);  // without coordinates there is nothing to make its own tokens of
  story.keys = unplaced.keys;
  story.values = unplaced.values;
  story.index_keys = unplaced.index_keys;
  story.queries = unplaced.queries;
  story.raw_index_queries = unplaced.raw_index_queries;
  for (std::int32_t t = 0; t < 130; ++t) story.coordinates.push_back({t / 3, t, 7 * t % 50});
  story.prepare();
  expect_the_same(story, options);
  GeometryOptions finished = small_path(1);
  finished.pooling = Pooling::kNone;
  expect_the_same(Story(finished, 130, 16), finished);
}

TEST(CAbi, GivesTheBitsOfCxxInTheOracleAndInPooling) {
  const GeometryOptions options = small_path();
  const Story story(options, 130, 17);
  const seriatim_geometry_options c = c_options(options);
  seriatim_geometry* geometry = nullptr;
  CError error;
  ASSERT_EQ(seriatim_geometry_create(&c, &geometry, &error), SERIATIM_OK);
  const CGeometry held(geometry);
  HostTensor ours(DType::kF32, {4, 6});
  HostTensor theirs(DType::kF32, {4, 6});
  std::vector<float> our_lse(4);
  std::vector<float> their_lse(4);
  const std::int64_t visible = story.geometry.row_capacity();
  const seriatim_tensor query = c_tensor(row_of(story.queries.view(), 3));
  const seriatim_tensor keys = c_tensor(story.keys.view());
  const seriatim_tensor values = c_tensor(story.values.view());
  const seriatim_tensor output = c_tensor(seriatim::as_const(ours.writable()));
  ASSERT_EQ(
      seriatim_dense_attend(geometry, visible, &query, &keys, &values, nullptr, 0, &output, our_lse.data(), 4, &error),
      SERIATIM_OK)
      << error.message;
  ASSERT_TRUE(dense_attend(story.geometry, visible, row_of(story.queries.view(), 3),
                           {story.keys.view(), story.values.view()}, {}, theirs.writable(), their_lse)
                  .ok());
  EXPECT_TRUE(same_bits(ours.bytes(), theirs.bytes()));
  EXPECT_TRUE(same_bits(our_lse, their_lse));

  HostTensor our_pooled(DType::kF32, {32, 8});
  HostTensor their_pooled(DType::kF32, {32, 8});
  const seriatim_tensor weight = c_tensor(story.norms());
  const seriatim_tensor raw = c_tensor(story.index_keys.view());
  const seriatim_tensor pooled = c_tensor(seriatim::as_const(our_pooled.writable()));
  ASSERT_EQ(seriatim_pool_keys(geometry, &weight, &raw, 0, nullptr, &pooled, &error), SERIATIM_OK) << error.message;
  ASSERT_TRUE(
      pool_keys(story.geometry, story.norms(), story.index_keys.view(), 0, nullptr, their_pooled.writable()).ok());
  EXPECT_TRUE(same_bits(our_pooled.bytes(), their_pooled.bytes()));
}

}  // namespace
}  // namespace seriatim
