// When to screen, and a block of queries that is screened.
#pragma once

#include <cstdint>
#include <span>

#include "screen/pick.hpp"
#include "seriatim/step.hpp"
#include "step/query_block.hpp"

namespace seriatim {

// Whether queries of this geometry are ever screened, as far as the machine is not asked.
bool may_screen(Screening screening, const Geometry& geometry);

// Whether automatic screening wins on this machine; measured on first use.
bool screening_wins(Kernels kernels);

// Whether this block is worth screening, from what is known beforehand. `every` says that each of its queries that
// needs scores sees more groups than the budget.
bool worth_screening(Screening screening, const QueryBlock& block, const Geometry& geometry, bool every);

class ScreenedBlock {
 public:
  // The block is packed.
  ScreenedBlock(const QueryBlock& block, const Geometry& geometry, Kernels kernels, Screening screening);

  // False: there is no bound, and nothing more to do here.
  bool pack() const;
  // Any panels at once, with a worker's scratch each. Then close().
  void score(std::int64_t first_panel, std::int64_t panels, PlanScratch& worker) const;
  // False: no bound holds.
  bool close();
  // Of the `index`th query, which sees `groups`, by a worker's scratch. chosen is part of worker.planned; chosen_scores
  // is as large, or empty.
  Picked pick(std::int64_t index, std::int64_t groups, PlanScratch& worker, std::span<std::int32_t> chosen,
              std::span<float> chosen_scores) const;

 private:
  const QueryBlock& block_;
  const Geometry& geometry_;
  const Kernels kernels_;
  const Screening screening_;
  const ScoreKernels& exact_;
  const ScreenKernels& screen_;
  const Panels panels_;
  float most_norm_ = 0.0f;
  float most_error_ = 0.0f;
};

}  // namespace seriatim
