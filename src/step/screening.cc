#include "step/screening.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>

#include "base/format.hpp"
#include "screen/gain.hpp"

namespace seriatim {
namespace {

// Where screening was seen to win, keys of bf16 alone: docs/performance.md has what it was measured by.
constexpr double kLeastGain = 1.3;            // of the products alone
constexpr std::int64_t kLeastProducts = 512;  // of a query with one key
constexpr std::int64_t kLeastRows = 64;       // fewer are bound by reading the keys, which screening reads too
constexpr std::int64_t kLeastGroups = 8192;
constexpr std::int64_t kLeastScores = 256 * kLeastGroups;  // rows times groups
constexpr std::int64_t kLeastBudgets = 4;                  // groups, in budgets
constexpr std::int64_t kGatherFlops = 8192;  // what fetching one key that lies alone costs, in multiply-adds

Result<Screening> choose() {
  const char* const word = std::getenv("SERIATIM_SCREEN");
  if (word == nullptr || *word == '\0') return Screening::kAutomatic;
  for (std::size_t i = 0; i < std::size(kScreeningNames); ++i) {
    if (kScreeningNames[i] == word) return static_cast<Screening>(i);
  }
  return Status::error(Code::kInvalidArgument, "SERIATIM_SCREEN",
                       formatted("SERIATIM_SCREEN: {:.32} is none of auto, off and on", word));
}

// The largest of some norms, a NaN above all: their bits have that order.
float largest(const float* norms, std::int64_t count) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::bit_cast<std::uint32_t>(norms[i]));
  return std::bit_cast<float>(most);
}

}  // namespace

Result<Screening> chosen_screening() {
  static const Result<Screening> choice = choose();
  return choice;
}

bool may_screen(Screening screening, const Geometry& geometry) {
  if (screening == Screening::kOff || !geometry.is_plain()) return false;
  if (geometry.index_dim() > kScreenMostDims || geometry.index_heads() > kScreenMostHeads) return false;
  return screening == Screening::kOn ||
         (geometry.index_dtype() == DType::kBf16 && geometry.index_heads() * geometry.index_dim() >= kLeastProducts);
}

bool screening_wins(Kernels kernels) { return screen_gain(kernels) >= kLeastGain; }

bool worth_screening(Screening screening, const QueryBlock& block, const Geometry& geometry, bool every) {
  if (block.groups() == 0 || !every) return false;
  if (screening == Screening::kOn) return true;
  PlanScratch& scratch = block.scratch();
  const std::int64_t rows = block.count() * geometry.index_heads();
  if (rows < kLeastRows || block.groups() < kLeastGroups || rows * block.groups() < kLeastScores ||
      block.groups() < kLeastBudgets * geometry.budget_groups()) {
    return false;
  }
  if (scratch.blocks_to_leave == 0) return true;
  --scratch.blocks_to_leave;
  return false;
}

ScreenedBlock::ScreenedBlock(const QueryBlock& block, const Geometry& geometry, Kernels kernels, Screening screening)
    : block_(block),
      geometry_(geometry),
      kernels_(kernels),
      screening_(screening),
      exact_(score_kernels(kernels)),
      screen_(screen_kernels(kernels)),
      panels_(block.pooled()) {}

bool ScreenedBlock::pack() const {
  ScreenScratch& scratch = block_.scratch().screen;
  const bool exact_keys = geometry_.index_dtype() == DType::kBf16;
  for (std::int64_t q = 0; q < block_.count(); ++q) {
    ScreenBound& bound = scratch.bounds.data()[q];
    bound =
        screen_bound(geometry_, row_of(block_.queries(), q), block_.head_weights(q), exact_keys, scratch.query.data());
    if (!bound.holds(0.0f, 0.0f)) return false;
  }
  pack_screen_queries(block_.queries(), scratch.queries.data());
  return true;
}

void ScreenedBlock::score(std::int64_t first_panel, std::int64_t panels, PlanScratch& worker) const {
  const PlanScratch& scratch = block_.scratch();
  const std::int64_t first_lane = first_panel * Panels::kLanes;
  ScreenBlock task;
  task.geometry = &geometry_;
  task.count = block_.count();
  task.queries = scratch.screen.queries.data();
  task.head_weights = block_.head_weights(0);
  task.pooled = &block_.pooled();
  task.first_panel = first_panel;
  task.panels = panels;
  task.edge = worker.edge.data();
  task.keys = worker.screen.keys.data();
  task.scores = scratch.scores.data() + first_lane;
  task.stride = block_.stride();
  task.norms = scratch.screen.norms.data() + first_lane;
  task.errors = scratch.screen.errors.data() + first_lane;
  screen_.score(task);
}

bool ScreenedBlock::close() {
  const ScreenScratch& scratch = block_.scratch().screen;
  most_norm_ = largest(scratch.norms.data() + panels_.lead(), block_.groups());
  most_error_ = largest(scratch.errors.data() + panels_.lead(), block_.groups());
  for (std::int64_t q = 0; q < block_.count(); ++q) {
    if (!scratch.bounds.data()[q].holds(most_norm_, most_error_)) return false;
  }
  return true;
}

Picked ScreenedBlock::pick(std::int64_t index, std::int64_t groups, PlanScratch& worker, std::span<std::int32_t> chosen,
                           std::span<float> chosen_scores) const {
  const PlanScratch& shared = block_.scratch();
  ConstTensor one = block_.queries();
  one.data = one.at(index);
  one.shape[0] = 1;
  PickTask task{kernels_};
  exact_.pack(one, worker.screen.query.data());
  task.screen = &screen_;
  task.rescore = {&geometry_,
                  &exact_,
                  worker.screen.query.data(),
                  block_.head_weights(index),
                  &block_.pooled(),
                  worker.screen.gathered.data()};
  task.reach.scores = block_.scores(index, 0, groups);
  task.reach.norms = shared.screen.norms.data() + panels_.lead();
  task.reach.errors = shared.screen.errors.data() + panels_.lead();
  task.reach.bound = shared.screen.bounds.data()[index];
  task.widest = task.reach.bound.of(most_norm_, most_error_);
  task.keep = geometry_.budget_groups();
  task.most_rescored = groups;
  if (screening_ == Screening::kAutomatic) {
    // No more than what would cost a quarter of scoring all.
    const std::int64_t flops = geometry_.index_heads() * geometry_.index_dim();
    task.most_rescored = groups * flops / (4 * (flops + kGatherFlops));
  }
  task.scratch = &worker.screen;
  task.select_scratch = {worker.planned.data() + chosen.size(),
                         static_cast<std::size_t>(worker.planned.size()) - chosen.size()};
  return seriatim::pick(task, chosen, chosen_scores);
}

}  // namespace seriatim
