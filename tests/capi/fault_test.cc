// Every request for memory that a call of the C ABI makes fails once: the call says OUT_OF_MEMORY (or did without),
// nothing escapes, leaks or changes, and the same call then succeeds.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "seriatim_rule.h"
#include "support/folder.hpp"
#include "support/heap.hpp"

namespace seriatim {
namespace {

using testing::arm_heap_fault;
using testing::disarm_heap_fault;
using testing::heap_live_bytes;

constexpr std::int64_t kTokens = 60;
constexpr std::int64_t kDim = 16;

// Calls `call` with the first request refused, then the second, and so on, until none is; after a failure `changed`
// must not differ. Gives  how many were refused.
int refuse_each(const std::function<seriatim_status(seriatim_error*)>& call, bool all,
                const std::function<std::int64_t()>& state) {
  seriatim_error error;
  seriatim_error_init(&error);
  for (int first = 0; first < 10'000; ++first) {
    const std::int64_t before = state();
    arm_heap_fault(first, all);
    const seriatim_status status = call(&error);
    const bool fired = disarm_heap_fault();
    if (status == SERIATIM_OK) {
      EXPECT_TRUE(!fired || !all) << "without a fault left, or despite one that was got around";
      return first;
    }
    EXPECT_TRUE(fired);
    EXPECT_EQ(status, SERIATIM_OUT_OF_MEMORY) << error.message;
    EXPECT_EQ(error.code, SERIATIM_OUT_OF_MEMORY);
    EXPECT_EQ(state(), before) << "after request " << first;
    if (::testing::Test::HasFailure()) return first;
  }
  ADD_FAILURE() << "it never succeeds";
  return -1;
}

class CAbiFault : public ::testing::TestWithParam<bool> {
 protected:
  CAbiFault() {
    seriatim_kernels_name(0);  // what a process makes once
    seriatim_geometry_options options;
    seriatim_geometry_options_init(&options);
    options.query_heads = 2;
    options.kv_heads = 1;
    options.head_dim = options.index_dim = kDim;
    options.index_heads = 1;
    options.index_rotary_dim = 8;
    options.budget_tokens = 16;
    EXPECT_EQ(seriatim_geometry_create(&options, &geometry_, nullptr), SERIATIM_OK);
    seriatim_cache_options cache;
    seriatim_cache_options_init(&cache);
    cache.capacity_tokens = 4096;
    EXPECT_EQ(seriatim_cache_create(geometry_, &cache, &cache_, nullptr), SERIATIM_OK);
    EXPECT_EQ(seriatim_cache_add(cache_, 0, &sequence_, nullptr), SERIATIM_OK);
    values_.resize(2 * kTokens * kDim);
    std::iota(values_.begin(), values_.end(), -7.0f);
  }
  ~CAbiFault() override {
    seriatim_cache_destroy(cache_);
    seriatim_geometry_destroy(geometry_);
  }

  seriatim_tensor tensor(std::int32_t rank, std::int64_t a, std::int64_t b, std::int64_t c) {
    const std::int64_t shape[3] = {a, b, c};
    seriatim_tensor made;
    EXPECT_EQ(seriatim_tensor_dense(values_.data(), SERIATIM_F32, rank, shape, &made, nullptr), SERIATIM_OK);
    return made;
  }

  seriatim_status feed(seriatim_error* error) {
    const seriatim_tensor keys = tensor(3, kTokens, 1, kDim);
    const seriatim_tensor index_keys = tensor(2, kTokens, kDim, 0);
    seriatim_transaction* step = nullptr;
    seriatim_status status = seriatim_cache_begin(cache_, &step, error);
    if (status == SERIATIM_OK)
      status = seriatim_transaction_append(step, sequence_, 0, 0, &keys, &keys, &index_keys, nullptr, error);
    if (status == SERIATIM_OK) status = seriatim_transaction_commit(step, error);
    seriatim_transaction_destroy(step);
    return status;
  }

  bool all() const { return GetParam(); }

  seriatim_geometry* geometry_ = nullptr;
  seriatim_cache* cache_ = nullptr;
  std::int64_t sequence_ = -1;
  std::vector<float> values_;
};

TEST_P(CAbiFault, MakingHandlesLeaksNothing) {
  seriatim_geometry_options options;
  seriatim_geometry_options_init(&options);
  seriatim_geometry* geometry = nullptr;
  EXPECT_GT(refuse_each([&](seriatim_error* error) { return seriatim_geometry_create(&options, &geometry, error); },
                        all(), heap_live_bytes),
            0);
  seriatim_geometry_destroy(geometry);
  seriatim_cache_options cache_options;
  seriatim_cache_options_init(&cache_options);
  cache_options.layer_count = 3;
  cache_options.capacity_tokens = 512;
  seriatim_cache* cache = nullptr;
  EXPECT_GT(refuse_each(
                [&](seriatim_error* error) { return seriatim_cache_create(geometry_, &cache_options, &cache, error); },
                all(), heap_live_bytes),
            3);
  seriatim_cache_destroy(cache);
  seriatim_engine* engine = nullptr;
  EXPECT_GT(refuse_each([&](seriatim_error* error) { return seriatim_engine_create(nullptr, &engine, error); }, all(),
                        heap_live_bytes),
            1);
  seriatim_engine_destroy(engine);
}

TEST_P(CAbiFault, AFailedStepOfACacheChangesNothing) {
  const auto tokens = [&] {
    seriatim_snapshot* snapshot = nullptr;
    EXPECT_EQ(seriatim_cache_snapshot(cache_, sequence_, &snapshot, nullptr), SERIATIM_OK);
    const seriatim_layer layer{snapshot, nullptr, nullptr, 0, 0};
    std::int64_t anchor = 0;
    std::int64_t count = -1;
    EXPECT_EQ(seriatim_layer_run(&layer, &anchor, &count, nullptr), SERIATIM_OK);
    seriatim_snapshot_destroy(snapshot);
    return count;
  };
  EXPECT_GT(refuse_each([&](seriatim_error* error) { return feed(error); }, all(), tokens), 3);
  EXPECT_EQ(tokens(), kTokens);
  std::int64_t forked = -1;
  EXPECT_GT(refuse_each([&](seriatim_error* error) { return seriatim_cache_fork(cache_, sequence_, &forked, error); },
                        all(), tokens),
            0);
  seriatim_snapshot* snapshot = nullptr;
  EXPECT_GT(
      refuse_each([&](seriatim_error* error) { return seriatim_cache_snapshot(cache_, sequence_, &snapshot, error); },
                  all(), heap_live_bytes),
      0);
  seriatim_snapshot_destroy(snapshot);
}

TEST_P(CAbiFault, AFailedFileCallLeavesCacheAndFile) {
  ASSERT_EQ(feed(nullptr), SERIATIM_OK);
  const file::Folder folder;
  const std::string path = folder / "saved";
  const auto nothing = [] { return std::int64_t{0}; };
  EXPECT_GT(
      refuse_each([&](seriatim_error* error) { return seriatim_cache_save(cache_, path.c_str(), nullptr, -1, error); },
                  all(), nothing),
      3);
  seriatim_restored pair{-1, -1};
  std::int64_t count = -1;
  const auto untouched = [&] { return count; };
  EXPECT_GT(refuse_each(
                [&](seriatim_error* error) {
                  return seriatim_cache_restore(cache_, path.c_str(), SERIATIM_RESTORE_COPY, &pair, 1, &count, error);
                },
                all(), untouched),
            3);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(seriatim_cache_file_verify(path.c_str(), nullptr), SERIATIM_OK);
}

TEST_P(CAbiFault, AFailedBindingLeavesTheLayerAsItWas) {
  const seriatim_tensor keys = tensor(3, kTokens, 1, kDim);
  seriatim_borrowed_tensors tensors;
  seriatim_borrowed_tensors_init(&tensors);
  tensors.keys = tensors.values = &keys;
  seriatim_borrowed* borrowed = nullptr;
  EXPECT_GT(refuse_each([&](seriatim_error* error) { return seriatim_borrowed_create(geometry_, &borrowed, error); },
                        all(), heap_live_bytes),
            0);
  const auto tokens = [&] {
    const seriatim_layer layer{nullptr, nullptr, borrowed, 0, 0};
    std::int64_t anchor = 0;
    std::int64_t count = -1;
    EXPECT_EQ(seriatim_layer_run(&layer, &anchor, &count, nullptr), SERIATIM_OK);
    return count;
  };
  EXPECT_GT(
      refuse_each([&](seriatim_error* error) { return seriatim_borrowed_bind(borrowed, 0, kTokens, &tensors, error); },
                  all(), tokens),
      0);
  EXPECT_EQ(tokens(), kTokens);
  seriatim_borrowed_destroy(borrowed);
}

// An engine that was never reserved takes what a call lacks; one that was takes nothing.
TEST_P(CAbiFault, AFailedPlanWritesNoRow) {
  ASSERT_EQ(feed(nullptr), SERIATIM_OK);
  seriatim_snapshot* snapshot = nullptr;
  ASSERT_EQ(seriatim_cache_snapshot(cache_, sequence_, &snapshot, nullptr), SERIATIM_OK);
  const std::int64_t positions[2] = {kTokens - 1, 30};
  const seriatim_layer layer{snapshot, nullptr, nullptr, 0, 0};
  const seriatim_plan_ask plan{sizeof plan, layer, tensor(3, 2, 1, kDim), nullptr, positions, 2};
  const seriatim_attend_ask attend{sizeof attend, layer, tensor(3, 2, 2, kDim), positions, 2, nullptr, 0};
  std::vector<std::int32_t> entries(2 * 19, 77);
  std::vector<std::int32_t> counts(2, 77);
  std::vector<float> results(2 * 2 * kDim, 77.0f);
  const std::int64_t shape[3] = {2, 2, kDim};
  seriatim_tensor output;
  ASSERT_EQ(seriatim_tensor_dense(results.data(), SERIATIM_F32, 3, shape, &output, nullptr), SERIATIM_OK);
  const seriatim_rows rows{entries.data(), 19, counts.data()};
  const seriatim_const_rows planned{entries.data(), 19, counts.data()};
  seriatim_engine* engine = nullptr;
  ASSERT_EQ(seriatim_engine_create(nullptr, &engine, nullptr), SERIATIM_OK);
  const auto first_count = [&] { return std::int64_t{counts[0]}; };
  EXPECT_GT(
      refuse_each(
          [&](seriatim_error* error) { return seriatim_plan(engine, &plan, 1, SERIATIM_NAN_REFUSE, &rows, error); },
          all(), first_count),
      1);
  EXPECT_EQ(counts[0], 16);
  const auto first_result = [&] { return static_cast<std::int64_t>(results[0]); };
  EXPECT_GT(
      refuse_each(
          [&](seriatim_error* error) { return seriatim_attend(engine, &attend, 1, &planned, &output, nullptr, error); },
          all(), first_result),
      0);
  seriatim_engine_destroy(engine);

  seriatim_step_limits limits;
  seriatim_step_limits_init(&limits);
  limits.visible_tokens = kTokens;
  limits.queries = 2;
  limits.asks = 1;
  ASSERT_EQ(seriatim_engine_create(nullptr, &engine, nullptr), SERIATIM_OK);
  EXPECT_GT(
      refuse_each([&](seriatim_error* error) { return seriatim_engine_reserve(engine, geometry_, &limits, error); },
                  all(), [] { return std::int64_t{0}; }),
      1);
  arm_heap_fault(0, true);
  const seriatim_status planned_status = seriatim_plan(engine, &plan, 1, SERIATIM_NAN_REFUSE, &rows, nullptr);
  const seriatim_status attended = seriatim_attend(engine, &attend, 1, &planned, &output, nullptr, nullptr);
  EXPECT_FALSE(disarm_heap_fault());
  EXPECT_EQ(planned_status, SERIATIM_OK);
  EXPECT_EQ(attended, SERIATIM_OK);
  seriatim_engine_destroy(engine);
  seriatim_snapshot_destroy(snapshot);
}

TEST_P(CAbiFault, ScoringWithoutMemoryWritesNoScore) {
  const seriatim_tensor query = tensor(2, 1, kDim, 0);
  const seriatim_tensor pooled = tensor(2, 20, kDim, 0);
  std::vector<float> scores(20, 77.0f);
  const auto first = [&] { return static_cast<std::int64_t>(scores[0]); };
  EXPECT_GT(refuse_each(
                [&](seriatim_error* error) {
                  return seriatim_score_groups(geometry_, &query, nullptr, &pooled, scores.data(), 20, error);
                },
                all(), first),
            0);
  EXPECT_NE(scores[0], 77.0f);
}

INSTANTIATE_TEST_SUITE_P(Requests, CAbiFault, ::testing::Values(false, true),
                         [](const auto& each) { return each.param ? "FromOneOn" : "OneAtATime"; });

}  // namespace
}  // namespace seriatim
