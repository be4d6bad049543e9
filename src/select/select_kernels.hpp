// The select kernels: one per instruction set, and one that is select_ref. All give the same groups.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/kernels.hpp"
#include "seriatim/select.hpp"

namespace seriatim {

// Arguments that select_groups has checked.
struct SelectTask {
  std::span<const float> scores;
  std::int64_t keep = 0;
  NanPolicy nan = NanPolicy::kRefuse;
  std::span<std::int32_t> scratch;
  std::span<std::int32_t> chosen;
};

struct Selected {
  std::int64_t count = 0;       // chosen[0 .. count) is written and nothing else of it
  std::int64_t nan_group = -1;  // under kRefuse the first NaN's group, and then nothing is written
};

struct SelectKernels {
  const char* name;  // of the instruction set that was compiled, "reference" for select_ref

  Selected (*select)(const SelectTask& task);
};

const SelectKernels& select_kernels(Kernels kernels);
const SelectKernels& select_reference();

// select_groups by the given kernels.
Result<std::int64_t> select_with(Kernels kernels, std::span<const float> scores, std::int64_t keep, NanPolicy nan,
                                 std::span<std::int32_t> scratch, std::span<std::int32_t> chosen,
                                 std::int64_t row = -1);
// select_forced by the given kernels.
Result<std::int64_t> select_with(Kernels kernels, std::span<const float> scores, std::int64_t keep, ForcedGroups forced,
                                 NanPolicy nan, std::span<std::int32_t> scratch, std::span<std::int32_t> chosen,
                                 std::int64_t row = -1);

}  // namespace seriatim
