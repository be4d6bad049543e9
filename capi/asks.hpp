// A caller's array of asks -> the asks of the library, in memory that an engine keeps from call to call.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "convert.hpp"
#include "seriatim.h"
#include "seriatim/cache.hpp"
#include "seriatim/step.hpp"

namespace seriatim::capi {

// A caller's array of asks, whose elements lie as far apart as the first one's size says.
template <typename Ask>
class AskArray {
 public:
  // Errors  InvalidArgument: the count, NULL. Of the first ask: a size that is none.
  Status open(const Ask* given, std::int64_t count) {
    if (Status s = check_array("asks", given, count, sizeof(Ask)); !s.ok() || count == 0) return s;
    if (Status s = check_output_bytes("asks", given); !s.ok()) return in_ask(0, s);
    first_ = given;
    return check_array("asks", given, count, first_->struct_size);
  }
  // One of them, which may be of another version.
  Status take(std::size_t which, Ask& taken) const {
    const auto* bytes = reinterpret_cast<const std::byte*>(first_) + which * first_->struct_size;
    const auto* given = reinterpret_cast<const Ask*>(bytes);
    if (given->struct_size != first_->struct_size) return invalid("asks", "a struct_size unlike the first one's");
    return take_struct("asks", given, taken);
  }

 private:
  const Ask* first_ = nullptr;
};

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
