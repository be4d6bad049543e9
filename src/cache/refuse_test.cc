// What the cache refuses, and that a refusal leaves everything as it was.
#include <gtest/gtest.h>

#include <limits>

#include "base/half.hpp"
#include "seriatim/cache.hpp"
#include "support/cache.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;

constexpr std::int64_t kLayers = 2;

// A cache of one sequence at anchor 3 that holds 21 tokens, and what its refusals must leave alone.
class CacheRefuses : public ::testing::Test {
 protected:
  CacheRefuses() {
    append(*cache_, sequence_, ids(1, 21));
    before_ = image(*cache_, sequence_);
  }
  ~CacheRefuses() override {
    EXPECT_FALSE(before_.empty());
    EXPECT_EQ(image(*cache_, sequence_), before_);
    append(*cache_, sequence_, ids(50, 2));  // and it goes on
    std::vector<TokenId> tokens = ids(1, 21);
    tokens.insert(tokens.end(), {50, 51});
    EXPECT_EQ(image(*cache_, sequence_), plain_image(geometry_, options_, 3, tokens));
  }

  // The error of staging `batch`, which must leave the staged state as it was.
  Status refused(const Batch& batch, std::int64_t layer = 0) {
    auto transaction = cache_->begin();
    EXPECT_TRUE(transaction.ok());
    const Batch good = make_batch(geometry_, layer, 24, ids(500, 3));
    EXPECT_TRUE(transaction->append(sequence_, layer, good.view).ok());
    const auto staged = image(*transaction->layer(sequence_, layer));
    const Status status = transaction->append(sequence_, layer, batch.view);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(image(*transaction->layer(sequence_, layer)), staged);
    return status;
  }

  const Geometry geometry_ = admit(small_options());
  const CacheOptions options_ = cache_options(kLayers, 64, 64);
  const std::unique_ptr<Cache> cache_ = make_cache(geometry_, options_);
  const SequenceId sequence_ = *cache_->add(3);
  std::vector<std::byte> before_;
};

TEST_F(CacheRefuses, ElementsThatAreNotFiniteNamingTensorTokenAndElement) {
  struct Case {
    const char* tensor;
    std::vector<std::byte> Batch::* bytes;
    std::int64_t row_elements;
  };
  int refusals = 0;
  for (const auto& [tensor, bytes, row_elements] : {Case{"keys", &Batch::keys, 12}, Case{"values", &Batch::values, 10},
                                                    Case{"index_keys", &Batch::index_keys, 8}}) {
    for (const float fault : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      for (const std::int64_t token : {0, 4}) {
        for (std::int64_t element = 0; element < row_elements; ++element) {
          Batch batch = make_batch(geometry_, 1, 27, ids(80, 5));
          store_element((batch.*bytes).data() + (token * row_elements + element) * 4, DType::kF32, fault);
          const Status status = refused(batch, 1);
          EXPECT_EQ(status.code(), Code::kNotFinite);
          EXPECT_EQ(status.argument(), tensor);
          EXPECT_EQ(status.place().row, token);
          EXPECT_EQ(status.place().index, element);
          ++refusals;
        }
      }
    }
  }
  EXPECT_EQ(refusals, (12 + 10 + 8) * 2 * 4);
}

TEST_F(CacheRefuses, AHoleInThePositions) {
  for (const std::int64_t position : {26, 28, 0, -1}) {
    const Status status = refused(make_batch(geometry_, 0, position, ids(80, 1)));
    EXPECT_EQ(status.code(), Code::kNotContiguous) << position;
    EXPECT_EQ(status.place().row, sequence_);
    EXPECT_EQ(status.place().index, 27);
  }
}

TEST_F(CacheRefuses, MoreTokensThanItWasMadeFor) {
  const Status status = refused(make_batch(geometry_, 0, 27, ids(80, 64 - 24 + 1)));
  EXPECT_EQ(status.code(), Code::kCapacity);
}

TEST_F(CacheRefuses, TensorsThatDoNotFit) {
  const auto expect = [&](const char* argument, auto change) {
    Batch batch = make_batch(geometry_, 0, 27, ids(80, 2));
    change(batch.view);
    const Status status = refused(batch);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << argument << ": " << status.message();
    EXPECT_EQ(status.argument(), argument);
  };
  expect("keys", [](TokenBatch& b) { b.keys.shape[2] = 7; });
  expect("keys", [](TokenBatch& b) { b.keys.dtype = DType::kBf16; });
  expect("keys", [](TokenBatch& b) { b.keys.rank = 2; });
  expect("keys", [](TokenBatch& b) { b.keys.data = nullptr; });
  expect("keys", [](TokenBatch& b) { b.keys.stride_bytes[0] = -4; });
  expect("values", [](TokenBatch& b) { b.values.shape[0] = 1; });
  expect("values", [](TokenBatch& b) { b.values = {}; });
  expect("index_keys", [](TokenBatch& b) { b.index_keys.shape[1] = 4; });
  expect("index_keys", [](TokenBatch& b) { b.index_keys = {}; });
}

TEST_F(CacheRefuses, NamesThatAreNotThere) {
  const Batch batch = make_batch(geometry_, 0, 24, ids(80, 1));
  {
    auto transaction = cache_->begin();
    ASSERT_TRUE(transaction.ok());
    EXPECT_EQ(transaction->append(sequence_ + 1, 0, batch.view).code(), Code::kNotFound);
    EXPECT_EQ(transaction->append(sequence_, kLayers, batch.view).code(), Code::kInvalidArgument);
    EXPECT_EQ(transaction->append(sequence_, -1, batch.view).code(), Code::kInvalidArgument);
    EXPECT_EQ(transaction->layer(sequence_ + 1, 0).status().code(), Code::kNotFound);
    EXPECT_TRUE(cache_->truncate(sequence_, 21).ok());  // refused appends have not touched the sequence
  }
  EXPECT_EQ(cache_->remove(7).code(), Code::kNotFound);
  EXPECT_EQ(cache_->reset(7).code(), Code::kNotFound);
  EXPECT_EQ(cache_->truncate(7, 0).code(), Code::kNotFound);
  EXPECT_EQ(cache_->snapshot(7).status().code(), Code::kNotFound);
  EXPECT_EQ(cache_->truncate(sequence_, 22).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache_->truncate(sequence_, -1).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache_->add(-1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cache_->reset(sequence_, Geometry::kPositions).code(), Code::kInvalidArgument);
}

TEST_F(CacheRefuses, LayersAtDifferentFrontiersAtCommit) {
  auto transaction = cache_->begin();
  ASSERT_TRUE(transaction.ok());
  ASSERT_TRUE(transaction->append(sequence_, 0, make_batch(geometry_, 0, 24, ids(80, 3)).view).ok());
  ASSERT_TRUE(transaction->append(sequence_, 1, make_batch(geometry_, 1, 24, ids(80, 2)).view).ok());
  const Status status = transaction->commit();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.place().row, sequence_);
  EXPECT_EQ(status.place().index, 1);
  EXPECT_EQ(transaction->layer(sequence_, 0)->run.tokens, 24);  // still open
}

TEST_F(CacheRefuses, ASecondTransactionAndChangesBehindTheOpenOnesBack) {
  auto transaction = cache_->begin();
  ASSERT_TRUE(transaction.ok());
  EXPECT_EQ(cache_->begin().status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(transaction->append(sequence_, 0, make_batch(geometry_, 0, 24, ids(80, 3)).view).ok());
  EXPECT_EQ(cache_->truncate(sequence_, 2).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache_->reset(sequence_).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache_->remove(sequence_).code(), Code::kInvalidArgument);
  transaction->rollback();
  EXPECT_EQ(transaction->append(sequence_, 0, make_batch(geometry_, 0, 24, ids(80, 3)).view).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(transaction->commit().code(), Code::kInvalidArgument);
}

TEST(Cache, PositionsEndWhereRowsCanNoLongerNameThem) {
  const Geometry geometry = admit(small_options());
  auto cache = make_cache(geometry, cache_options(1, 64));
  const SequenceId sequence = *cache->add(Geometry::kPositions - 3);
  append(*cache, sequence, ids(1, 3));
  EXPECT_EQ(try_append(*cache, sequence, ids(4, 1)).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache->snapshot(sequence)->run().tokens, 3);
}

TEST(Cache, OptionsThatDoNotFitAreRefusedByName) {
  const Geometry geometry = admit(small_options());
  const auto refusal = [&](auto change) {
    CacheOptions options = cache_options(2, 64);
    change(options);
    auto cache = Cache::create(geometry, options);
    EXPECT_FALSE(cache.ok());
    return std::string(cache.status().argument());
  };
  EXPECT_EQ(refusal([](CacheOptions& o) { o.layers.clear(); }), "layers");
  EXPECT_EQ(refusal([](CacheOptions& o) { o.capacity_tokens = -1; }), "capacity_tokens");
  EXPECT_EQ(refusal([](CacheOptions& o) { o.capacity_tokens = std::numeric_limits<std::int64_t>::max(); }),
            "capacity_tokens");
  EXPECT_EQ(refusal([](CacheOptions& o) { o.page_tokens = 63; }), "page_tokens");
  EXPECT_EQ(refusal([](CacheOptions& o) { o.page_tokens = -64; }), "page_tokens");
  EXPECT_EQ(refusal([](CacheOptions& o) { o.layers[1].index_norm_weight.resize(7); }), "index_norm_weight");
  EXPECT_EQ(refusal([](CacheOptions& o) { o.layers[1].index_norm_weight[2] = std::numeric_limits<float>::infinity(); }),
            "index_norm_weight");
}

}  // namespace
}  // namespace seriatim
