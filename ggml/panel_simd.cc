#include <cstring>

#include "panel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "panel_simd.cc"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once per instruction set.
#include <hwy/highway.h>

#include "base/half.hpp"
#include "base/simd_target.hpp"
#if SERIATIM_HAS_SIMD
#include "attend/key_lanes-inl.hpp"
#include "base/widen-inl.hpp"
#endif

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

using plugin::kBlockBytes;
using plugin::kBlockNumbers;

using plugin::kPanelKeys;
using plugin::panel_row_floats;
using plugin::PanelKernels;

#if !SERIATIM_HAS_SIMD

SERIATIM_NO_KERNEL_TABLE(PanelKernels, panel_table)

#else

namespace {

void widen_stored(const std::byte* row, DType dtype, std::int64_t elements, float* to) {
  const auto count = static_cast<std::size_t>(elements);
  switch (dtype) {
    case DType::kF32:
      return widen<StoredF32>(row, count, to);
    case DType::kBf16:
      return widen<StoredBf16>(row, count, to);
    case DType::kF16:
      return widen<StoredF16>(row, count, to);
    case DType::kI32:
    case DType::kI64:
      return;
  }
}

void widen_blocks(const std::byte* row, std::int64_t elements, float* to) {
  constexpr FloatTag d;
  constexpr hn::Rebind<std::int8_t, FloatTag> narrow;
  constexpr hn::Rebind<std::int32_t, FloatTag> whole;
  for (std::int64_t block = 0; block < elements; block += kBlockNumbers, row += kBlockBytes) {
    const auto factor = hn::Set(d, load_element(row, DType::kF16));
    const auto* numbers = reinterpret_cast<const std::int8_t*>(row + 2);
    for (std::int64_t i = 0; i < kBlockNumbers; i += static_cast<std::int64_t>(kLanes), to += kLanes)
      hn::StoreU(hn::Mul(hn::ConvertTo(d, hn::PromoteTo(whole, hn::LoadU(narrow, numbers + i))), factor), d, to);
  }
}

void turn_rows(const float* rows, std::int64_t dim, float* panel) {
  const auto floats = static_cast<std::size_t>(panel_row_floats(dim));
  const std::byte* at[kPanelKeys];
  for (std::size_t k = 0; k < static_cast<std::size_t>(kPanelKeys); ++k)
    at[k] = reinterpret_cast<const std::byte*>(rows + k * floats);
  for (std::size_t i = 0; i < floats; i += 4) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(kPanelKeys); k += kLanes)
      turn_four(at + k, i * sizeof(float), panel + i * kPanelKeys + k, static_cast<std::size_t>(kPanelKeys));
  }
}

}  // namespace

SERIATIM_KERNEL_TABLE(PanelKernels, panel_table, widen_stored, widen_blocks, turn_rows)

#endif  // SERIATIM_HAS_SIMD

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/kernel_dispatch.hpp"

namespace seriatim::plugin {
namespace {

void widen_ref(const std::byte* row, DType dtype, std::int64_t elements, float* to) {
  for (std::int64_t i = 0; i < elements; ++i) to[i] = load_element(row + i * dtype_bytes(dtype), dtype);
}

void widen_blocks_ref(const std::byte* row, std::int64_t elements, float* to) {
  for (std::int64_t i = 0; i < elements; ++i) {
    const std::byte* block = row + i / kBlockNumbers * kBlockBytes;
    std::int8_t number;
    std::memcpy(&number, block + 2 + i % kBlockNumbers, sizeof number);
    to[i] = static_cast<float>(number) * load_element(block, DType::kF16);
  }
}

void turn_ref(const float* rows, std::int64_t dim, float* panel) {
  for (std::int64_t k = 0; k < kPanelKeys; ++k) {
    for (std::int64_t i = 0; i < panel_row_floats(dim); ++i)
      panel[i * kPanelKeys + k] = rows[k * panel_row_floats(dim) + i];
  }
}

}  // namespace

const PanelKernels& panel_reference() {
  static constexpr PanelKernels kTable{"reference", widen_ref, widen_blocks_ref, turn_ref};
  return kTable;
}

}  // namespace seriatim::plugin

namespace seriatim {
using plugin::panel_reference;
namespace {
HWY_EXPORT(panel_table);
}
}  // namespace seriatim

namespace seriatim::plugin {

const PanelKernels& panel_kernels(Kernels kernels) {
  if (kernels.is_reference()) return panel_reference();
  const PanelKernels* const made = SERIATIM_DISPATCH(seriatim::panel_table, kernels.target())();
  return made == nullptr ? panel_reference() : *made;
}

}  // namespace seriatim::plugin
#endif  // HWY_ONCE
