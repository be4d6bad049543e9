// The set of one query from its approximate scores: docs/decisions/0015-screening.md says why it is the canonical one.
#pragma once

#include <cstdint>
#include <span>

#include "screen/rescore.hpp"
#include "screen/screen_kernels.hpp"
#include "screen/screen_scratch.hpp"

namespace seriatim {

struct PickTask {
  Kernels kernels;
  const ScreenKernels* screen = nullptr;
  Rescore rescore = {};
  ScreenReach reach = {};  // of every group that the query sees; the threshold is found here
  float widest = 0.0f;     // no group's bound is wider
  std::int64_t keep = 0;   // less than there are groups
  std::int64_t most_rescored = 0;
  ScreenScratch* scratch = nullptr;
  std::span<std::int32_t> select_scratch = {};  // select_scratch_entries of the groups
};

struct Picked {
  bool known = false;  // false: too many groups may be in the set
  std::int64_t rescored = 0;
};

// Takes   a bound that holds() for every group seen
// Gives   where known, chosen [keep]: the groups that select_groups would choose by canonical scores; and chosen_scores
//         [keep], unless it is empty: those scores, for which none of them is surely in without
Picked pick(const PickTask& task, std::span<std::int32_t> chosen, std::span<float> chosen_scores = {});

}  // namespace seriatim
