#include "top_k.hpp"

#include <algorithm>
#include <cmath>

#include "seriatim/select.hpp"
#include "step/for_units.hpp"
#include "tensors.hpp"

namespace seriatim::plugin {
namespace {

// A row is worth cutting up when each part is worth waking a thread for.
constexpr std::int64_t kPartCells = std::int64_t{1} << 17;

// Fewer numbers than are to be chosen: the rest is NaN, the lowest cells first. `chosen` of them are there.
void add_nans(std::span<const float> scores, std::int64_t chosen, std::int64_t keep, std::int32_t* out) {
  std::int64_t written = chosen;
  for (std::size_t cell = 0; written < keep; ++cell) {
    if (std::isnan(scores[cell])) out[written++] = static_cast<std::int32_t>(cell);
  }
  std::inplace_merge(out, out + chosen, out + keep);
}

}  // namespace

bool fits_top_k(const ggml_tensor* node) {
  const ggml_tensor* scores = node->src[0];
  return node->op == GGML_OP_TOP_K && scores != nullptr && scores->type == GGML_TYPE_F32 &&
         node->type == GGML_TYPE_I32 && scores->nb[0] == sizeof(float) && ggml_is_contiguous(node) &&
         node->ne[0] <= scores->ne[0] && scores->ne[0] <= std::int64_t{1} << 30 && same_extents(node, scores, 1) &&
         !is_empty_somewhere(node);
}

void TopK::one_row(std::span<const float> scores, std::int64_t keep, std::int32_t* out,
                   std::span<std::int32_t> scratch) {
  const auto chosen = select_groups(
      scores, keep, NanPolicy::kExclude, scratch,
      {out, static_cast<std::size_t>(std::min<std::int64_t>(keep, static_cast<std::int64_t>(scores.size())))});
  if (*chosen < keep) add_nans(scores, *chosen, keep, out);
}

// Each part's best hold the row's best; among them the order of cells is kept, so ties fall as in the whole row.
void TopK::long_row(std::span<const float> scores, std::int64_t keep, std::int32_t* out, Workers& workers) {
  const auto cells = static_cast<std::int64_t>(scores.size());
  const std::int64_t parts = std::min<std::int64_t>(workers.threads(), cells / kPartCells);
  const auto first_of = [&](std::int64_t part) { return part * cells / parts; };
  std::vector<std::int64_t> counts(static_cast<std::size_t>(parts));
  cells_.resize(static_cast<std::size_t>(parts * keep));
  scores_.resize(cells_.size());
  for_units(workers.executor(), parts, [&](std::int64_t part, int worker) {
    const auto first = static_cast<std::size_t>(first_of(part));
    const auto some = scores.subspan(first, static_cast<std::size_t>(first_of(part + 1)) - first);
    const std::span<std::int32_t> chosen(cells_.data() + part * keep, static_cast<std::size_t>(keep));
    counts[static_cast<std::size_t>(part)] =
        *select_groups(some, keep, NanPolicy::kExclude, scratch_[static_cast<std::size_t>(worker)], chosen, -1,
                       {scores_.data() + part * keep, static_cast<std::size_t>(keep)});
  });
  std::int64_t many = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t from = part * keep;
    for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(part)]; ++i, ++many) {
      cells_[static_cast<std::size_t>(many)] =
          cells_[static_cast<std::size_t>(from + i)] + static_cast<std::int32_t>(first_of(part));
      scores_[static_cast<std::size_t>(many)] = scores_[static_cast<std::size_t>(from + i)];
    }
  }
  const auto best = *select_groups({scores_.data(), static_cast<std::size_t>(many)}, keep, NanPolicy::kExclude,
                                   scratch_[0], {out, static_cast<std::size_t>(keep)});
  for (std::int64_t i = 0; i < best; ++i) out[i] = cells_[static_cast<std::size_t>(out[i])];
  if (best < keep) add_nans(scores, best, keep, out);
}

Outcome TopK::compute(const ggml_tensor* node, Workers& workers, const AbortCallback& abort) {
  const ggml_tensor* from = node->src[0];
  const std::int64_t cells = from->ne[0];
  const std::int64_t keep = node->ne[0];
  const std::int64_t rows = ggml_nrows(node);
  scratch_.resize(static_cast<std::size_t>(workers.threads()));
  const auto entries = static_cast<std::size_t>(select_scratch_entries(std::max(cells, workers.threads() * keep)));
  for (auto& own : scratch_) {
    if (own.size() < entries) own.resize(entries);
  }
  const auto scores_of = [&](std::int64_t row) -> std::span<const float> {
    return {reinterpret_cast<const float*>(row_of(from, row)), static_cast<std::size_t>(cells)};
  };
  auto* out = static_cast<std::int32_t*>(node->data);
  if (rows < workers.threads() && cells >= 2 * kPartCells) {
    for (std::int64_t row = 0; row < rows; ++row) {
      if (abort.wants_to_stop()) return Outcome::kAborted;
      long_row(scores_of(row), keep, out + row * keep, workers);
    }
    return Outcome::kDone;
  }
  if (abort.wants_to_stop()) return Outcome::kAborted;
  for_units(workers.executor(), rows, [&](std::int64_t row, int worker) {
    one_row(scores_of(row), keep, out + row * keep, scratch_[static_cast<std::size_t>(worker)]);
  });
  return Outcome::kDone;
}

}  // namespace seriatim::plugin
