// The asks of a call as the library sees them. An engine keeps their memory from call to call.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "seriatim/cache.hpp"
#include "seriatim/step.hpp"

namespace seriatim::capi {

struct AskScratch {
  std::vector<LayerView> layers;
  std::vector<PlanAsk> plans;
  std::vector<AttendAsk> attends;

  // Takes   asks: not negative
  void reserve(std::int64_t asks) {
    layers.reserve(static_cast<std::size_t>(asks));
    plans.reserve(static_cast<std::size_t>(asks));
    attends.reserve(static_cast<std::size_t>(asks));
  }

  std::int64_t bytes() const {
    return static_cast<std::int64_t>(layers.capacity() * sizeof(LayerView) + plans.capacity() * sizeof(PlanAsk) +
                                     attends.capacity() * sizeof(AttendAsk));
  }

  // What reserve() takes when there is nothing yet; nothing where 64 bits do not hold it.
  static std::optional<std::int64_t> bytes_for(std::int64_t asks);
};

}  // namespace seriatim::capi
