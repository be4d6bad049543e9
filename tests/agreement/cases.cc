#include "agreement/cases.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/format.hpp"
#include "support/geometries.hpp"

namespace seriatim::agreement {
namespace {

constexpr std::array kDTypes{DType::kF32, DType::kBf16, DType::kF16};
constexpr std::array kPlaces{ScaleAt::kAfterSum, ScaleAt::kBeforeRelu, ScaleAt::kAfterRelu, ScaleAt::kNowhere};
constexpr std::array kPlaceNames{"after_sum", "before_relu", "after_relu", "nowhere"};

std::vector<std::int64_t> tokens_between(std::int64_t first, std::int64_t last, std::int64_t step = 1) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = first; t <= last; t += step) tokens.push_back(t);
  return tokens;
}

class List {
 public:
  std::vector<Case> take() && { return std::move(cases_); }

  void add(std::string name, Recipe recipe, bool quick = true) {
    cases_.push_back({std::move(name), quick, {}, std::move(recipe), 4001 + cases_.size()});
  }

  void add_captures(const std::string& folder) {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths)
      cases_.push_back({"capture_" + std::filesystem::path(path).stem().string(), true, path, {}, 0});
  }

  // Every token asks, from the first on.
  void add_small() {
    for (const DType dtype : kDTypes) {
      Recipe r{.geometry = testing::small_path(4, dtype),
               .tokens = 193,
               .asked = tokens_between(0, 192),
               .anchor = 5,
               .output_dtype = dtype};
      r.sinks = dtype == DType::kBf16;
      add(formatted("small_{}", dtype_name(dtype)), r);
    }
  }

  // Each r with each dtype, and with that other sizes that no vector divides; all options in turn.
  void add_odd() {
    constexpr std::array<std::int64_t, 5> kGroupTokens{1, 2, 3, 4, 7};
    constexpr std::array<std::int64_t, 5> kHeadDims{5, 72, 17, 40, 33};
    constexpr std::array<std::int64_t, 5> kValueDims{7, 72, 5, 17, 130};
    constexpr std::array<std::int64_t, 4> kHeadsPerKv{1, 3, 7, 12};
    constexpr std::array<std::int64_t, 5> kIndexHeads{1, 3, 4, 2, 5};
    constexpr std::array<std::int64_t, 5> kIndexDims{5, 72, 8, 24, 130};
    constexpr std::array<std::int64_t, 5> kRotaryDims{4, 64, 0, 24, 66};
    constexpr std::array<std::int64_t, 5> kBudgetGroups{130, 9, 50, 33, 64};
    constexpr std::array<std::int64_t, 4> kAnchors{0, 1003, 262'000, Geometry::kPositions - 1000};
    for (std::size_t i = 0; i < 15; ++i) {
      const std::size_t r = i % 5;
      Recipe recipe;
      GeometryOptions& g = recipe.geometry;
      g.group_tokens = kGroupTokens[r];
      g.budget_tokens = kBudgetGroups[(i + i / 5) % 5] * g.group_tokens;
      g.kv_heads = 1 + static_cast<std::int64_t>(i % 2);
      g.query_heads = g.kv_heads * kHeadsPerKv[i % 4];
      g.head_dim = kHeadDims[(r + i / 5) % 5];
      g.value_dim = kValueDims[(r + i / 5) % 5];
      g.index_heads = kIndexHeads[(r + i / 5) % 5];
      g.index_dim = kIndexDims[(r + 2 * (i / 5)) % 5];
      g.index_rotary_dim = kRotaryDims[(r + 2 * (i / 5)) % 5];
      g.relu = i % 3 != 1;
      g.scale_at = kPlaces[i % 4];
      g.kv_dtype = kDTypes[i / 5];
      g.index_dtype = i == 7 ? DType::kF32 : kDTypes[i / 5];
      recipe.tokens = g.budget_tokens + 77;
      recipe.asked = tokens_between(3, recipe.tokens - 2, 23);
      recipe.asked.push_back(recipe.tokens - 1);
      recipe.anchor = kAnchors[(i + i / 5) % 4];
      recipe.output_dtype = kDTypes[(i + 1) % 3];
      recipe.head_weights = i % 2 == 1;
      recipe.sinks = i % 3 == 2;
      add(formatted("odd_r{}_{}", g.group_tokens, dtype_name(g.kv_dtype)), recipe);
    }
  }

  // Each place gives other bits, with relu and without, with signed head weights and without.
  void add_score_options() {
    for (std::size_t place = 0; place < kPlaces.size(); ++place) {
      for (const bool relu : {true, false}) {
        for (const bool weights : {false, true}) {
          Recipe r{.geometry = testing::small_path(4, DType::kF32), .tokens = 120, .asked = tokens_between(40, 119, 7)};
          r.geometry.scale_at = kPlaces[place];
          r.geometry.relu = relu;
          r.geometry.index_heads = 5;
          r.geometry.index_dim = 24;
          r.head_weights = weights;
          add(formatted("score_{}_{}{}", kPlaceNames[place], relu ? "relu" : "linear", weights ? "_weighted" : ""), r);
        }
      }
    }
  }

  void add_adversarial() {
    Recipe ties{.geometry = testing::small_path(4, DType::kF32),
                .tokens = 300,
                .asked = tokens_between(60, 299, 17),
                .distinct_keys = 3};
    ties.geometry.index_rotary_dim = 0;
    add("ties", ties);
    for (const DType dtype :
         kDTypes) {  // products, norms and outputs among the subnormals; in f16 the stored elements too
      Recipe tiny{.geometry = testing::small_path(4, dtype), .tokens = 150, .asked = tokens_between(40, 149, 9)};
      const bool half = dtype == DType::kF16;
      tiny.key_shift = half ? -16 : -110;
      tiny.query_shift = half ? -14 : -20;
      tiny.value_shift = half ? -16 : -127;
      tiny.index_shift = half ? -16 : -70;
      add(formatted("subnormal_{}", dtype_name(dtype)), tiny);
    }
    // Logits hundreds apart: probabilities that are exactly 0, a maximum that moves from split to split.
    Recipe spread{.geometry = testing::small_path(4, DType::kF32),
                  .tokens = 900,
                  .asked = tokens_between(600, 899, 41),
                  .sinks = true};
    spread.geometry.budget_tokens = 520;
    spread.key_shift = 4;
    spread.query_shift = 4;
    add("spread_logits", spread);
    Recipe huge{.geometry = testing::small_path(4, DType::kBf16),
                .tokens = 150,
                .asked = tokens_between(40, 149, 9),
                .value_shift = 120};
    huge.index_shift = 60;
    huge.key_shift = 40;
    huge.query_shift = -40;
    add("huge_values", huge);
    Recipe axes{.geometry = testing::small_path(4, DType::kBf16),
                .tokens = 150,
                .asked = tokens_between(30, 149, 7),
                .coordinates = true};
    axes.geometry.index_rotary_dim = 8;
    axes.geometry.rope_axes = {0, 1, 2, 0};
    add("rope_axes", axes);
  }

  // The counts around B + r - 1, and a tail of every length.
  void add_around_the_budget() {
    for (const DType dtype : kDTypes) {
      Recipe r{
          .geometry = testing::real_options(dtype), .tokens = 2064, .asked = tokens_between(2045, 2057), .anchor = 37};
      r.geometry.query_heads = 4;
      r.geometry.kv_heads = 1;
      r.geometry.head_dim = 16;
      r.geometry.index_dim = 32;
      r.geometry.index_rotary_dim = 16;
      add(formatted("around_the_budget_{}", dtype_name(dtype)), r, dtype == DType::kBf16);
    }
  }

  // One latent head of 512 + 64 dims that 16 query heads share; its first 512 dims are the value.
  void add_latent() {
    for (const DType dtype : kDTypes) {
      Recipe r{.geometry = testing::real_options(dtype), .tokens = 700, .asked = {100, 511, 512, 699}};
      GeometryOptions& g = r.geometry;
      g.group_tokens = 1;
      g.budget_tokens = 512;
      g.query_heads = 16;
      g.kv_heads = 1;
      g.head_dim = 576;
      g.value_dim = 512;
      g.values_alias_keys = dtype != DType::kF16;
      g.index_heads = 8;
      g.pooling = Pooling::kNone;
      g.scale_at = ScaleAt::kNowhere;
      r.head_weights = true;
      r.query_shift = 0;
      add(formatted("latent_{}", dtype_name(dtype)), r, dtype == DType::kBf16);
    }
  }

  void add_real() {
    for (const DType dtype : kDTypes) {
      Recipe r{.geometry = testing::real_options(dtype), .tokens = 3000, .asked = {2049, 2051, 2999}};
      add(formatted("real_{}", dtype_name(dtype)), r, dtype == DType::kBf16);
    }
    Recipe longer{.geometry = testing::real_options(DType::kBf16), .tokens = 20'000, .asked = {9'998, 19'996}};
    longer.geometry.query_heads = 2;
    longer.geometry.kv_heads = 1;
    longer.geometry.head_dim = 8;
    add("real_index_20000_tokens", longer, false);
  }

 private:
  std::vector<Case> cases_;
};

}  // namespace

std::vector<Case> all_cases(const std::string& fixtures) {
  List list;
  list.add_captures(fixtures);
  list.add_small();
  list.add_odd();
  list.add_score_options();
  list.add_adversarial();
  list.add_around_the_budget();
  list.add_latent();
  list.add_real();
  return std::move(list).take();
}

Result<Problem> problem_of(const Case& one) {
  if (!one.capture.empty()) return from_capture(one.capture);
  return generate(one.recipe, one.seed);
}

}  // namespace seriatim::agreement
