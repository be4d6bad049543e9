// Every implementation gives the bits of the reference: odd shapes, all dtypes, blocks of queries, split by split.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "attend/attend_kernels.hpp"
#include "base/half.hpp"
#include "support/bits.hpp"
#include "support/plain_layer.hpp"
#include "support/random.hpp"

namespace seriatim {
namespace {

using namespace testing;

struct Shape {
  std::int64_t query_heads, kv_heads, head_dim, value_dim;
  bool alias = false;
};

// Real ones, and ones that fill no vector, no tile, or several.
const Shape kShapes[] = {
    {24, 2, 256, 256}, {4, 2, 8, 8},     {1, 1, 5, 3},    {3, 1, 72, 72},           {7, 1, 5, 3},
    {14, 2, 72, 40},   {13, 1, 130, 33}, {40, 1, 64, 96}, {128, 1, 576, 512, true}, {17, 1, 9, 7, true},
    {32, 2, 128, 128}, {5, 5, 33, 1},    {26, 1, 16, 48}};
constexpr DType kFloats[] = {DType::kF32, DType::kBf16, DType::kF16};

// What one implementation gave.
struct Given {
  HostTensor output;
  std::vector<float> lse;
  std::vector<std::int64_t> overflow;
};

// A layer and some queries with rows of their own. Everything may be changed before a run.
class BlockCase {
 public:
  BlockCase(const Shape& shape, DType dtype, DType output, std::int64_t tokens, std::size_t queries, std::uint64_t seed)
      : geometry(admit(shape, dtype)), output_dtype(output), rows(queries), random(seed) {
    query = random_tensor(random, dtype, {count(), geometry.query_heads(), geometry.head_dim()}, 2.0f);
    keys = random_tensor(random, dtype, {tokens, geometry.kv_heads(), geometry.head_dim()});
    if (!shape.alias) values = random_tensor(random, dtype, {tokens, geometry.kv_heads(), geometry.value_dim()});
  }

  std::int64_t count() const { return static_cast<std::int64_t>(rows.size()); }
  std::int64_t tokens() const { return keys.view().shape[0]; }
  PlainLayer layer() const {
    return PlainLayer(geometry, kAnchor, keys, geometry.values_alias_keys() ? nullptr : &values, 48, 5);
  }

  // Row q: the first `width` tokens, each kept with a chance of `percent`.
  void set_row(std::size_t q, std::int64_t width, std::int64_t percent) {
    rows[q].clear();
    for (std::int64_t t = 0; t < std::min(width, tokens()); ++t) {
      if (random.below(100) < percent) rows[q].push_back(static_cast<std::int32_t>(kAnchor + t));
    }
  }

  // Whole blocks of `per_block` queries; heads of one kv head after the other.
  Given run(const AttendKernels& kernels, std::size_t per_block) {
    const PlainLayer laid_out = layer();
    Given given = blank();
    std::vector<BlockQuery> queries = block_queries_of(given);
    std::vector<float> scratch(
        static_cast<std::size_t>(attend_block_floats(geometry, static_cast<std::int64_t>(per_block))) + 1);
    for (std::size_t first = 0; first < rows.size(); first += per_block) {
      const auto block = std::span(queries).subspan(first, std::min(per_block, rows.size() - first));
      for (std::int64_t h = 0; h < geometry.kv_heads(); ++h) {
        kernels.attend_block({&laid_out.view(), h, block, sinks, scratch.data() + 1});
        note_overflow(block, first, given);
      }
    }
    return given;
  }

  // Query by query, a kHeadUnit of heads at a time.
  Given run_heads(const AttendKernels& kernels) {
    const PlainLayer laid_out = layer();
    Given given = blank();
    std::vector<BlockQuery> queries = block_queries_of(given);
    std::vector<float> scratch(static_cast<std::size_t>(attend_block_floats(geometry, 1)));
    for (std::size_t q = 0; q < rows.size(); ++q) {
      for (std::int64_t h = 0; h < geometry.kv_heads(); ++h) {
        for_head_units([&](std::int64_t first, std::int64_t heads) {
          kernels.attend_block({&laid_out.view(), h, {&queries[q], 1}, sinks, scratch.data(), nullptr, first, heads});
          note_overflow({&queries[q], 1}, q, given);
        });
      }
    }
    return given;
  }

  // Query by query, `at_once` splits reduced at a time, the later ones first; each fold a kHeadUnit of heads at a time.
  Given run_splits(const AttendKernels& kernels, std::int64_t at_once) {
    const PlainLayer laid_out = layer();
    Given given = blank();
    std::vector<BlockQuery> queries = block_queries_of(given);
    std::vector<float> scratch(static_cast<std::size_t>(attend_block_floats(geometry, 1)));
    const std::int64_t partial = kernel_partial_floats(geometry);
    std::vector<float> partials(static_cast<std::size_t>(at_once * partial));
    std::vector<float> total(static_cast<std::size_t>(partial));
    for (std::size_t q = 0; q < rows.size(); ++q) {
      const auto splits = (static_cast<std::int64_t>(rows[q].size()) + kSplitEntries - 1) / kSplitEntries;
      for (std::int64_t h = 0; h < geometry.kv_heads(); ++h) {
        const AttendBlock one{&laid_out.view(), h, {&queries[q], 1}, sinks, scratch.data()};
        for (std::int64_t first = 0; first < splits; first += at_once) {
          const std::int64_t here = std::min(at_once, splits - first);
          for (std::int64_t s = here - 1; s >= 0; --s)
            kernels.reduce_splits(one, first + s, 1, partials.data() + s * partial);
          kernels.reduce_splits(one, first, here - 1, partials.data());  // several in one call give the same
          for_head_units([&](std::int64_t first_head, std::int64_t heads) {
            AttendBlock some = one;
            some.first_head = first_head;
            some.heads = heads;
            kernels.fold_splits(some, first, here, partials.data(), total.data());
            if (first + here == splits) note_overflow({&queries[q], 1}, q, given);
          });
        }
      }
    }
    return given;
  }

  static constexpr std::int64_t kAnchor = 1000;
  const Geometry geometry;
  const DType output_dtype;
  std::vector<std::vector<std::int32_t>> rows;
  Random random;
  HostTensor query;
  HostTensor keys;
  HostTensor values;
  std::vector<float> sinks;

 private:
  static Geometry admit(const Shape& shape, DType dtype) {
    GeometryOptions options;
    options.query_heads = shape.query_heads;
    options.kv_heads = shape.kv_heads;
    options.head_dim = shape.head_dim;
    options.value_dim = shape.value_dim;
    options.values_alias_keys = shape.alias;
    options.kv_dtype = dtype;
    return *Geometry::admit(options);
  }

  Given blank() const {
    Given given{HostTensor(output_dtype, {count(), geometry.query_heads(), geometry.value_dim()}), {}, {}};
    given.output.fill(-77.0f);
    given.lse.assign(static_cast<std::size_t>(count() * geometry.query_heads()), -77.0f);
    given.overflow.assign(rows.size(), -1);
    return given;
  }

  std::vector<BlockQuery> block_queries_of(Given& given) const {
    std::vector<BlockQuery> queries;
    for (std::int64_t q = 0; q < count(); ++q) {
      const auto heads = static_cast<std::size_t>(geometry.query_heads());
      queries.push_back({row_of(query.view(), q), rows[static_cast<std::size_t>(q)], row_of(given.output.writable(), q),
                         std::span(given.lse).subspan(static_cast<std::size_t>(q) * heads, heads), -1});
    }
    return queries;
  }

  template <typename Call>
  void for_head_units(Call&& call) const {
    const std::int64_t all = geometry.heads_per_kv();
    for (std::int64_t first = 0; first < all; first += kHeadUnit) call(first, std::min(kHeadUnit, all - first));
  }

  static void note_overflow(std::span<const BlockQuery> block, std::size_t first, Given& given) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (given.overflow[first + i] < 0) given.overflow[first + i] = block[i].overflow;
    }
  }
};

::testing::AssertionResult same(const Given& got, const Given& want) {
  if (got.overflow != want.overflow) return ::testing::AssertionFailure() << "another head is named for an overflow";
  if (auto same = same_bytes(got.output.bytes(), want.output.bytes()); !same) return same << " (output)";
  if (auto same = same_bytes(std::as_bytes(std::span(got.lse)), std::as_bytes(std::span(want.lse))); !same)
    return same << " (lse)";
  return ::testing::AssertionSuccess();
}

// What was looked at, so that a test that compared little or nothing fails.
struct Compared {
  std::int64_t values = 0;
  std::int64_t distinct_outputs = 0;
  std::int64_t overflows = 0;
};

class AttendAgreement : public ::testing::TestWithParam<std::string> {
 protected:
  static bool is_reference() { return GetParam() == "reference"; }
  static const AttendKernels& kernels() { return attend_kernels(*Kernels::named(GetParam())); }
  static const AttendKernels& reference() { return attend_kernels(Kernels::reference()); }

  // In blocks of one, of two and of as many as there may be, and by splits.
  void expect_agreement(BlockCase& attend, const std::string& what) {
    const Given want = attend.run(reference(), 1);
    const std::size_t most =
        std::min<std::size_t>(attend.rows.size(), static_cast<std::size_t>(block_queries(attend.geometry)));
    for (const std::size_t per_block : {std::size_t{1}, std::min<std::size_t>(2, most), most}) {
      EXPECT_TRUE(same(attend.run(kernels(), per_block), want)) << what << ", blocks of " << per_block;
      compared.values += want.output.elements();
    }
    if (!is_reference()) {
      EXPECT_TRUE(same(attend.run_heads(kernels()), want)) << what << ", some heads at a time";
      compared.values += want.output.elements();
    }
    if (kernels().reduces_splits() &&
        std::none_of(attend.rows.begin(), attend.rows.end(), [](const auto& row) { return row.empty(); })) {
      for (const std::int64_t at_once : {1, 3}) {
        EXPECT_TRUE(same(attend.run_splits(kernels(), at_once), want)) << what << ", " << at_once << " splits at once";
        compared.values += want.output.elements();
      }
    }
    compared.distinct_outputs += varies(want.output.bytes()) ? 1 : 0;
    for (const std::int64_t head : want.overflow) compared.overflows += head >= 0 ? 1 : 0;
  }

  Compared compared;
};

TEST_P(AttendAgreement, TheForcedImplementationIsTheOneThatRuns) {
  const auto lower = [](std::string_view name) {
    std::string lowered(name);
    for (char& c : lowered) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lowered;
  };
  EXPECT_EQ(lower(kernels().name), GetParam());
  EXPECT_EQ(&kernels() == &reference(), is_reference());
  EXPECT_EQ(kernels().reduces_splits(), !is_reference());
}

TEST_P(AttendAgreement, OnOddShapesOfEveryDtype) {
  std::uint64_t seed = 1;
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kFloats) {
      const std::string what = std::string(dtype_name(dtype)) + " " + std::to_string(shape.query_heads) + "x" +
                               std::to_string(shape.head_dim);
      ++seed;
      const std::int64_t width = shape.query_heads * shape.head_dim > 10'000 ? 140 : 290;
      BlockCase attend(shape, dtype, kFloats[seed % 3], 300, 3, seed);
      attend.set_row(0, width, 100);
      attend.set_row(1, width + 1, 90);
      attend.set_row(2, width - 10, 60);
      if (seed % 2 == 0) {
        for (std::int64_t h = 0; h < shape.query_heads; ++h) attend.sinks.push_back(2.0f * attend.random.normal());
      }
      expect_agreement(attend, what);
    }
  }
  EXPECT_EQ(compared.distinct_outputs, 39);
  EXPECT_GT(compared.values, 1'000'000);
}

TEST_P(AttendAgreement, OnRowsAroundTheCutsAndOnNone) {
  const std::int64_t widths[] = {0, 1, 3, 127, 128, 129, 255, 256, 257, 0, 384, 385, 1, 128, 30, 17};
  for (const Shape& shape : {Shape{3, 1, 24, 20}, Shape{24, 2, 40, 64}, Shape{1, 1, 16, 32}}) {
    for (const std::int64_t percent : {100, 60}) {
      BlockCase attend(shape, DType::kF32, DType::kF32, 400, std::size(widths), 71);
      for (std::size_t q = 0; q < std::size(widths); ++q) attend.set_row(q, widths[q], percent);
      expect_agreement(attend, std::to_string(percent) + " percent");
      std::erase_if(attend.rows, [](const auto& row) { return row.empty(); });
      attend.sinks.assign(static_cast<std::size_t>(shape.query_heads), 0.5f);
      expect_agreement(attend, std::to_string(percent) + " percent, with sinks");
    }
  }
  EXPECT_EQ(compared.distinct_outputs, 12);
}

TEST_P(AttendAgreement, OnNeighboursThatShareNothing) {
  BlockCase attend({6, 1, 16, 16}, DType::kBf16, DType::kF32, 1500, 8, 72);
  for (std::size_t q = 0; q < 8; ++q) {
    for (std::int64_t t = 0; t < 180; ++t)
      attend.rows[q].push_back(static_cast<std::int32_t>(BlockCase::kAnchor + 8 * t + static_cast<std::int64_t>(q)));
  }
  expect_agreement(attend, "interleaved rows");
  for (std::size_t q = 0; q < 8; ++q) {
    std::iota(attend.rows[q].begin(), attend.rows[q].end(),
              static_cast<std::int32_t>(BlockCase::kAnchor + 180 * static_cast<std::int64_t>(q)));
  }
  expect_agreement(attend, "rows one after the other");
  EXPECT_EQ(compared.distinct_outputs, 2);
}

// Sums that underflow to -0, weights of exactly 0, equal logits, logits whose differences are huge.
TEST_P(AttendAgreement, AtTheEndsOfTheRangeOfF32) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const float logit_scale : {0.0f, 1e-30f, 30.0f, 1e15f}) {
      for (const float value_scale : {1e-44f, 1e-38f, 1e37f}) {
        BlockCase attend({9, 1, 20, 41}, dtype, DType::kF32, 300, 4, 73);
        for (std::size_t q = 0; q < 4; ++q) attend.set_row(q, 300, 80);
        for (std::int64_t i = 0; i < attend.keys.elements(); ++i) attend.keys.set(i, attend.keys.get(i) * logit_scale);
        for (std::int64_t i = 0; i < attend.values.elements(); ++i)
          attend.values.set(i, attend.values.get(i) * value_scale);
        expect_agreement(attend, std::to_string(logit_scale) + ", " + std::to_string(value_scale));
      }
    }
  }
  EXPECT_GT(compared.distinct_outputs, 12);
}

// One entry of value 1 beside a sink of 0: the output is e^x / (1 + e^x) and the lse log(1 + e^x) for a logit x <= 0,
// and e^-x in turn weighs the sink where x > 0.
TEST_P(AttendAgreement, OfTheExponentialAndTheLogarithm) {
  BlockCase attend({128, 1, 1, 1}, DType::kF32, DType::kF32, 1, 400, 76);
  ASSERT_EQ(attend.geometry.softmax_scale(), 1.0f);
  for (std::size_t q = 0; q < attend.rows.size(); ++q) attend.set_row(q, 1, 100);
  attend.sinks.assign(128, 0.0f);
  attend.keys.set(0, 1.0f);
  attend.values.set(0, 1.0f);
  for (const float range : {1e-6f, 1.0f, 20.0f, 110.0f}) {
    for (std::int64_t i = 0; i < attend.query.elements(); ++i) attend.query.set(i, range * attend.random.uniform());
    expect_agreement(attend, "logits up to " + std::to_string(range));
  }
  EXPECT_EQ(compared.distinct_outputs, 4);
}

TEST_P(AttendAgreement, OnOverflowsOfLogitsAndOfOutputs) {
  for (const DType output : kFloats) {
    BlockCase attend({6, 2, 20, 41}, DType::kF32, output, 400, 4, 74);
    for (std::size_t q = 0; q < 4; ++q) attend.set_row(q, 400, q == 3 ? 0 : 90);
    attend.set_row(3, 100, 100);
    // Token 200 makes head 1 of query 0 and head 4 of query 2 infinite; query 3 does not see it.
    attend.keys.set(200 * 40, 1e20f);
    attend.keys.set(200 * 40 + 20, -1e20f);
    attend.query.set((0 * 6 + 1) * 20, 3e30f);
    attend.query.set((2 * 6 + 4) * 20, 3e30f);
    for (std::size_t q = 0; q < 3; ++q) {
      auto& row = attend.rows[q];
      if (!std::binary_search(row.begin(), row.end(), 1200))
        row.insert(std::lower_bound(row.begin(), row.end(), 1200), 1200);
    }
    expect_agreement(attend, "logits");
    for (std::int64_t t = 0; t < 100; ++t) attend.values.set((t * 2 + 1) * 41 + 40, 3e38f);
    expect_agreement(attend, "outputs");
  }
  EXPECT_GT(compared.overflows, 10);
}

// Rows of one entry, whose output is its value.
TEST_P(AttendAgreement, OnOutputsThatPassTheirDtype) {
  for (const DType output : kFloats) {
    for (const std::int64_t dims : {1, 33, 64}) {
      BlockCase attend({6, 2, 20, dims}, DType::kF32, output, 4, 4, 77);
      for (std::size_t q = 0; q < 4; ++q)
        attend.rows[q] = {static_cast<std::int32_t>(BlockCase::kAnchor + static_cast<std::int64_t>(q))};
      const float fits = largest_before_overflow(output);
      const float passes = std::nextafter(fits, std::numeric_limits<float>::infinity());  // infinite for f32
      attend.values.set((0 * 2 + 1) * dims, fits);
      attend.values.set((1 * 2 + 0) * dims + dims - 1, -fits);
      attend.values.set((2 * 2 + 1) * dims + dims - 1, output == DType::kF32 ? fits : passes);
      attend.values.set((3 * 2 + 0) * dims + dims / 2, output == DType::kF32 ? fits : -passes);
      expect_agreement(attend, std::string(dtype_name(output)) + " " + std::to_string(dims));
    }
  }
  EXPECT_EQ(compared.overflows, 2 * 3 * 2);  // queries 2 and 3 of both halves
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Kernels& kernels : Kernels::available()) all.push_back(kernels.name());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttendAgreement, ::testing::ValuesIn(names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace seriatim
