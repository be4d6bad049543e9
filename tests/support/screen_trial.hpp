// One query over some keys, scored both ways, for tests and the fuzzer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/half.hpp"
#include "score/score_ref.hpp"
#include "screen/pick.hpp"
#include "select/select_kernels.hpp"
#include "seriatim/select.hpp"

namespace seriatim {

class ScreenTrial {
 public:
  // Takes   keys [groups][index_dim], query [index_heads][index_dim], weights [index_heads] or none. They are rounded
  // to
  //         the geometry's index_dtype. lead: lanes before the first group, which hold a NaN
  ScreenTrial(const Geometry& geometry, const std::vector<float>& keys, const std::vector<float>& query,
              std::vector<float> weights, std::int64_t lead = 0)
      : geometry_(geometry),
        dim_(geometry.index_dim()),
        heads_(geometry.index_heads()),
        groups_(static_cast<std::int64_t>(keys.size()) / dim_),
        weights_(std::move(weights)),
        bytes_(dtype_bytes(geometry.index_dtype())) {
    const std::int64_t lanes = (lead + groups_ + 15) / 16 * 16;
    panels_ = AlignedBuffer<std::byte>(lanes * dim_ * bytes_);
    page_ = panels_.data();
    pooled_.pages = &page_;
    pooled_.page_groups = lanes;
    pooled_.first_slot = lead;
    pooled_.groups = groups_;
    pooled_.dim = dim_;
    pooled_.dtype = geometry.index_dtype();
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const std::int64_t g = lane - lead;
      for (std::int64_t i = 0; i < dim_; ++i) {
        const bool mine = g >= 0 && g < groups_;
        const float x = mine ? keys[static_cast<std::size_t>(g * dim_ + i)] : std::nanf("");
        store_element(panels_.data() + (lane / 16 * 16 * dim_ + i * 16 + lane % 16) * bytes_, pooled_.dtype, x);
      }
    }
    query_ = AlignedBuffer<std::byte>(heads_ * dim_ * bytes_);
    for (std::int64_t i = 0; i < heads_ * dim_; ++i)
      store_element(query_.data() + i * bytes_, pooled_.dtype, query[static_cast<std::size_t>(i)]);

    canonical_.resize(static_cast<std::size_t>(groups_));
    const ConstTensor weights_view =
        weights_.empty() ? ConstTensor{} : dense_view(static_cast<const void*>(weights_.data()), DType::kF32, {heads_});
    score_ref(geometry_, query_view({heads_, dim_}), weights_view, pooled_, canonical_);
  }

  void screen(const ScreenKernels& kernels) {
    const std::int64_t words = screen_words(dim_);
    const Panels panels(pooled_);
    const std::int64_t lanes = panels.count() * 16;
    scratch_.grow(screen_shape(geometry_, lanes, 1));
    const AlignedBuffer<std::byte> edge(score_edge_bytes(geometry_));
    approximate_ = AlignedBuffer<float>(lanes);
    pack_screen_queries(query_view({1, heads_, dim_}), scratch_.queries.data());
    bound_ = screen_bound(geometry_, query_view({heads_, dim_}), head_weights(), pooled_.dtype == DType::kBf16,
                          scratch_.query.data());
    ScreenBlock block;
    block.geometry = &geometry_;
    block.count = 1;
    block.queries = scratch_.queries.data();
    block.head_weights = head_weights();
    block.pooled = &pooled_;
    block.panels = panels.count();
    block.edge = edge.data();
    block.keys = scratch_.keys.data();
    block.scores = approximate_.data();
    block.stride = lanes;
    block.norms = scratch_.norms.data();
    block.errors = scratch_.errors.data();
    kernels.score(block);
    screen_ = &kernels;
    holds_ = true;
    widest_ = 0.0f;
    for (std::int64_t g = 0; g < groups_; ++g) {
      holds_ = holds_ && bound_.holds(norm(g), error(g)) && words > 0;
      widest_ = std::max(widest_, bound_of(g));
    }
  }

  std::int64_t groups() const { return groups_; }
  const std::vector<float>& canonical() const { return canonical_; }
  float approximate(std::int64_t g) const { return approximate_.data()[pooled_.first_slot + g]; }
  float norm(std::int64_t g) const { return scratch_.norms.data()[pooled_.first_slot + g]; }
  float error(std::int64_t g) const { return scratch_.errors.data()[pooled_.first_slot + g]; }
  float bound_of(std::int64_t g) const { return bound_.of(norm(g), error(g)); }
  // Whether the bounds say anything: no sum can overflow and nothing is NaN.
  bool holds() const { return holds_; }

  // The largest distance of the two scores, in bounds.
  double tightness() const {
    double most = 0.0;
    for (std::int64_t g = 0; g < groups_; ++g) {
      const double canonical = static_cast<double>(canonical_[static_cast<std::size_t>(g)]);
      const double distance = std::fabs(static_cast<double>(approximate(g)) - canonical);
      most = std::max(most, std::isnan(distance) ? 1e300 : distance / static_cast<double>(bound_of(g)));
    }
    return most;
  }

  // The set by screening, or nothing where it is not known; by canonical scores.
  std::optional<std::vector<std::int32_t>> picked(Kernels kernels, std::int64_t keep) {
    const ScoreKernels& exact = score_kernels(kernels);
    const AlignedBuffer<float> packed(heads_ * dim_);
    exact.pack(query_view({1, heads_, dim_}), packed.data());
    scratch_.unsure = AlignedBuffer<std::int32_t>(keep);
    scratch_.unsure_exact = AlignedBuffer<float>(keep);
    scratch_.listed = AlignedBuffer<std::int32_t>(groups_);
    scratch_.exact = AlignedBuffer<float>(groups_);
    PickTask task{kernels};
    task.screen = screen_;
    task.rescore = {&geometry_, &exact, packed.data(), head_weights(), &pooled_, scratch_.gathered.data()};
    task.reach.scores = {approximate_.data() + pooled_.first_slot, static_cast<std::size_t>(groups_)};
    task.reach.norms = scratch_.norms.data() + pooled_.first_slot;
    task.reach.errors = scratch_.errors.data() + pooled_.first_slot;
    task.reach.bound = bound_;
    task.widest = widest_;
    task.keep = keep;
    task.most_rescored = most_rescored < 0 ? groups_ : most_rescored;
    task.scratch = &scratch_;
    std::vector<std::int32_t> room(static_cast<std::size_t>(select_scratch_entries(groups_)));
    task.select_scratch = room;
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(keep));
    const Picked picked = pick(task, chosen);
    rescored = picked.rescored;
    if (!picked.known) return std::nullopt;
    return chosen;
  }
  std::vector<std::int32_t> selected(std::int64_t keep) const {
    std::vector<std::int32_t> room(static_cast<std::size_t>(select_scratch_entries(groups_)));
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(keep));
    chosen.resize(static_cast<std::size_t>(*select_groups(canonical_, keep, NanPolicy::kExclude, room, chosen)));
    return chosen;
  }

  std::int64_t most_rescored = -1;  // of picked(); less than 0: all
  std::int64_t rescored = 0;        // by the last picked()

 private:
  ConstTensor query_view(std::initializer_list<std::int64_t> shape) const {
    return dense_view(static_cast<const void*>(query_.data()), pooled_.dtype, shape);
  }
  const float* head_weights() const { return weights_.empty() ? nullptr : weights_.data(); }

  const Geometry geometry_;
  const std::int64_t dim_, heads_, groups_;
  const std::vector<float> weights_;
  const std::int64_t bytes_;
  AlignedBuffer<std::byte> panels_, query_;
  const std::byte* page_ = nullptr;
  PooledKeys pooled_;
  std::vector<float> canonical_;
  AlignedBuffer<float> approximate_;
  ScreenScratch scratch_;
  ScreenBound bound_{};
  const ScreenKernels* screen_ = nullptr;
  float widest_ = 0.0f;
  bool holds_ = false;
};

// A geometry of whose numbers only those of the index matter here.
inline Geometry screen_geometry(std::int64_t heads, std::int64_t dim, DType dtype, bool relu = true,
                                ScaleAt scale_at = ScaleAt::kAfterSum) {
  GeometryOptions options;
  options.pooling = Pooling::kNone;
  options.group_tokens = 1;
  options.budget_tokens = 1;
  options.index_heads = heads;
  options.index_dim = dim;
  options.index_rotary_dim = 0;
  options.index_dtype = dtype;
  options.relu = relu;
  options.scale_at = scale_at;
  return *Geometry::admit(options);
}

}  // namespace seriatim
