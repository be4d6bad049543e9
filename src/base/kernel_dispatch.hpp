// SERIATIM_DISPATCH(function, target): the function that HWY_EXPORT(function) compiled for one instruction set.
//
// Highway's own dynamic dispatch reads one choice for the whole process; the agreement tests and callers that force an
// implementation need several at once, so the choice is passed as a value. Include inside HWY_ONCE, after highway.h.
#pragma once

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

namespace seriatim {

// A macro, because the table's layout depends on the targets that the including file is compiled for.
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
#define SERIATIM_DISPATCH(function, target) (*(HWY_DISPATCH_TABLE(function)[(target) == 0 ? 0 : 0]))
#else
#define SERIATIM_DISPATCH(function, target)                 \
  (*([](std::int64_t bit) {                                 \
    hwy::ChosenTarget chosen;                               \
    chosen.Update(bit);                                     \
    return HWY_DISPATCH_TABLE(function)[chosen.GetIndex()]; \
  }(target)))
#endif

}  // namespace seriatim

// The one definition of a family's choice, inside HWY_ONCE and at file scope: `choose(Kernels)` gives the table that
// `table()` made for the instruction set, or the reference where that set has none.
#define SERIATIM_KERNEL_FAMILY(Table, table, choose, reference)             \
  namespace seriatim {                                                      \
  namespace {                                                               \
  HWY_EXPORT(table);                                                        \
  }                                                                         \
  const Table& choose(Kernels kernels) {                                    \
    if (kernels.is_reference()) return reference();                         \
    const Table* const made = SERIATIM_DISPATCH(table, kernels.target())(); \
    return made == nullptr ? reference() : *made;                           \
  }                                                                         \
  }
