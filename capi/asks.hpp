// A caller's array of asks -> the asks of the library, in memory that an engine keeps from call to call.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "seriatim.h"
#include "seriatim/cache.hpp"
#include "seriatim/step.hpp"

namespace seriatim::capi {

struct Asks {
  std::vector<LayerView> layers;
  std::vector<PlanAsk> plans;
  std::vector<AttendAsk> attends;

  // Takes   count: not negative
  void reserve(std::int64_t count);
  std::int64_t bytes() const;
  // What reserve() takes when there is nothing yet; nothing where 64 bits do not hold it.
  static std::optional<std::int64_t> bytes_for(std::int64_t count);

  // Fills `plans` or `attends`, and `layers`, which they point to.
  // Errors  InvalidArgument: the count, NULL. Of an ask: sizes, layers, tensors and arrays that are none.
  Status take(const seriatim_plan_ask* given, std::int64_t count);
  Status take(const seriatim_attend_ask* given, std::int64_t count);
};

}  // namespace seriatim::capi
