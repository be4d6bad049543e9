#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.hpp"
#include "index/pool_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "index/index_simd.cc"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once per instruction set.
#include <hwy/highway.h>

#include "base/simd_target.hpp"
#if SERIATIM_HAS_SIMD
#include "base/widen-inl.hpp"
#include "index/sincos-inl.hpp"
#endif

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

#if !SERIATIM_HAS_SIMD

SERIATIM_NO_KERNEL_TABLE(PoolKernels, pool_table)

#else

constexpr std::size_t kLanes = hn::MaxLanes(FloatTag());

HWY_INLINE FloatVec round_to(StoredF32, FloatVec v) { return v; }

HWY_INLINE FloatVec round_to(StoredBf16, FloatVec v) {
  constexpr FloatTag d;
  constexpr WordTag words;
  const auto bits = hn::BitCast(words, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(words, kF32QuietBit));
  const auto kept = hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, quiet), hn::BitCast(d, rounded));
  return hn::And(kept, hn::BitCast(d, hn::Set(words, 0xffff0000u)));
}

HWY_INLINE FloatVec round_to(StoredF16, FloatVec v) {
  constexpr FloatTag d;
  constexpr hn::Rebind<hwy::float16_t, FloatTag> half;
  return hn::PromoteTo(d, hn::DemoteTo(half, v));
}

// A vector of which `elements` are there; the others are zeros.
template <class Stored>
HWY_INLINE FloatVec load_some(const std::byte* from, std::size_t elements) {
  if (HWY_LIKELY(elements >= kLanes)) return Stored::load(from);
  alignas(64) std::byte whole[kLanes * Stored::kBytes] = {};
  std::memcpy(whole, from, elements * Stored::kBytes);
  return Stored::load(whole);
}

// The arrays are read and written up to a whole vector past `count`.
HWY_INLINE std::size_t sincos_all(const float* angles, std::size_t count, float* sines, float* cosines) {
  constexpr std::size_t kAngles = hn::MaxLanes(AngleFloats());
  std::size_t asked = 0;
  for (std::size_t i = 0; i < count; i += kAngles) asked += sincos_of(angles + i, sines + i, cosines + i);
  return asked;
}

// One task. The groups' vectors lie in rows of scratch, padded with zeros to whole vectors. Lanes are dims, or pairs of
// dims; the one chain along the dims, that of the norm, has a group each.
template <class Stored, class Raw = Stored>
class Pooling {
 public:
  explicit Pooling(const PoolTask& task)
      : task_(task),
        dim_(static_cast<std::size_t>(task.geometry->index_dim())),
        pairs_(static_cast<std::size_t>(task.geometry->index_rotary_dim()) / 2),
        stride_((dim_ + 15) / 16 * 16),
        groups_(static_cast<std::size_t>(task.groups)),
        rows_(task.scratch),
        angles_(rows_ + static_cast<std::size_t>(kPoolGroups) * stride_),
        sines_(angles_ + (pairs_ + 15) / 16 * 16),
        cosines_(sines_ + (pairs_ + 15) / 16 * 16) {}

  float run() const {
    float sums[kPoolGroups];
    for (std::size_t g = 0; g < groups_; ++g) mean(g);
    sum_squares(sums);
    for (std::size_t g = 0; g < groups_; ++g) {
      norm(g, sums[g]);
      if (task_.turns != nullptr) {
        const float* known = task_.turns + 2 * g * turn_stride();
        rotate(g, known, known + turn_stride());
        continue;
      }
      if (g == 0 || task_.at[g] != task_.at[g - 1]) turn(g);
      rotate(g, sines_, cosines_);
    }
    write();
    return largest();
  }

 private:
  std::size_t turn_stride() const { return static_cast<std::size_t>(turn_floats(*task_.geometry)); }
  float* row(std::size_t g) const { return rows_ + g * stride_; }

  HWY_INLINE void mean(std::size_t g) const {
    constexpr FloatTag d;
    const auto tokens = static_cast<std::size_t>(task_.tokens);
    const std::byte* first = task_.raw + static_cast<std::int64_t>(g) * task_.tokens * task_.stride_bytes;
    const auto count = hn::Set(d, static_cast<float>(task_.tokens));
    for (std::size_t i = 0; i < dim_; i += kLanes) {
      const std::byte* from = first + i * Raw::kBytes;
      auto sum = load_some<Raw>(from, dim_ - i);
      for (std::size_t t = 1; t < tokens; ++t) {
        from += task_.stride_bytes;
        sum = hn::Add(sum, load_some<Raw>(from, dim_ - i));
      }
      hn::StoreU(round_to(Stored(), hn::Div(sum, count)), d, row(g) + i);
    }
  }

  // Several groups' chains at once, because each is as long as its multiply-adds take one after the other.
  template <std::size_t kChains>
  HWY_INLINE void sum_chains(std::size_t g, float* sums) const {
    constexpr hn::CappedTag<float, 1> one;
    hn::Vec<decltype(one)> acc[kChains];
    for (std::size_t c = 0; c < kChains; ++c) acc[c] = hn::Zero(one);
    for (std::size_t i = 0; i < dim_; ++i) {
      for (std::size_t c = 0; c < kChains; ++c) {
        const auto x = hn::LoadU(one, row(g + c) + i);
        acc[c] = hn::MulAdd(x, x, acc[c]);
      }
    }
    for (std::size_t c = 0; c < kChains; ++c) sums[g + c] = hn::GetLane(acc[c]);
  }
  HWY_INLINE void sum_squares(float* sums) const {
    std::size_t g = 0;
    for (; g + 8 <= groups_; g += 8) sum_chains<8>(g, sums);
    for (; g + 4 <= groups_; g += 4) sum_chains<4>(g, sums);
    for (; g < groups_; ++g) sum_chains<1>(g, sums);
  }

  HWY_INLINE void norm(std::size_t g, float sum) const {
    constexpr FloatTag d;
    const float mean_square = sum / static_cast<float>(task_.geometry->index_dim());
    const auto inverse = hn::Set(d, 1.0f / std::sqrt(mean_square + task_.geometry->norm_eps()));
    const auto* weights = reinterpret_cast<const std::byte*>(task_.norm_weight);
    for (std::size_t i = 0; i < dim_; i += kLanes) {
      const auto weight = hn::Add(hn::Set(d, 1.0f), load_some<StoredF32>(weights + i * sizeof(float), dim_ - i));
      const auto scaled = hn::Mul(hn::LoadU(d, row(g) + i), inverse);
      hn::StoreU(round_to(Stored(), hn::Mul(scaled, weight)), d, row(g) + i);
    }
  }

  HWY_INLINE void turn(std::size_t g) const {
    const Coordinates& at = task_.at[g];
    const std::span<const float> inv_freq = task_.geometry->inv_freq();
    const std::span<const std::uint8_t> axes = task_.geometry->rope_axes();
    for (std::size_t i = 0; i < pairs_; ++i)
      angles_[i] = static_cast<float>(at[axes.empty() ? 0 : axes[i]]) * inv_freq[i];
    sincos_all(angles_, pairs_, sines_, cosines_);
  }

  HWY_INLINE void rotate(std::size_t g, const float* sines, const float* cosines) const {
    constexpr FloatTag d;
    float* first = row(g);
    float* second = first + pairs_;
    for (std::size_t i = 0; i < pairs_; i += kLanes) {
      const std::size_t count = std::min(kLanes, pairs_ - i);
      const auto sin = round_to(Stored(), hn::LoadU(d, sines + i));
      const auto cos = round_to(Stored(), hn::LoadU(d, cosines + i));
      const auto x = hn::LoadU(d, first + i);
      const auto y = hn::LoadU(d, second + i);
      const auto turned_x = hn::Sub(round_to(Stored(), hn::Mul(x, cos)), round_to(Stored(), hn::Mul(y, sin)));
      const auto turned_y = hn::Add(round_to(Stored(), hn::Mul(y, cos)), round_to(Stored(), hn::Mul(x, sin)));
      store_some(round_to(Stored(), turned_x), first + i, count);
      store_some(round_to(Stored(), turned_y), second + i, count);
    }
  }
  static HWY_INLINE void store_some(FloatVec v, float* to, std::size_t count) {
    constexpr FloatTag d;
    if (HWY_LIKELY(count == kLanes)) return hn::StoreU(v, d, to);
    alignas(64) float lanes[kLanes];
    hn::Store(v, d, lanes);
    std::copy_n(lanes, count, to);
  }

  // Values that are rounded already, so that storing them is exact.
  HWY_INLINE void write() const {
    constexpr std::size_t kBytes = Stored::kBytes;
    if (kBytes == sizeof(float) && task_.dim_stride_bytes == sizeof(float)) {
      for (std::size_t g = 0; g < groups_; ++g)
        std::memcpy(task_.pooled + static_cast<std::int64_t>(g) * task_.group_stride_bytes, row(g), dim_ * kBytes);
      return;
    }
    for (std::size_t i = 0; i < dim_; ++i) {
      std::byte* to = task_.pooled + static_cast<std::int64_t>(i) * task_.dim_stride_bytes;
      for (std::size_t g = 0; g < groups_; ++g, to += task_.group_stride_bytes) {
        if constexpr (kBytes == 4) {
          std::memcpy(to, row(g) + i, kBytes);
        } else {
          store_element(to, Stored::kDType, row(g)[i]);
        }
      }
    }
  }

  // As integers magnitudes have the order of floats, with infinities and NaN last.
  HWY_INLINE float largest() const {
    constexpr FloatTag d;
    constexpr WordTag words;
    auto most = hn::Zero(words);
    const auto magnitude = hn::Set(words, 0x7fffffffu);
    for (std::size_t g = 0; g < groups_; ++g) {
      for (std::size_t i = 0; i < dim_; i += kLanes) {
        most = hn::Max(most, hn::And(hn::BitCast(words, hn::LoadU(d, row(g) + i)), magnitude));
      }
    }
    const std::uint32_t bits = hn::GetLane(hn::MaxOfLanes(words, most));
    return bits >= kF32InfBits ? std::numeric_limits<float>::infinity() : std::bit_cast<float>(bits);
  }

  const PoolTask& task_;
  const std::size_t dim_;
  const std::size_t pairs_;
  const std::size_t stride_;
  const std::size_t groups_;
  float* const rows_;
  float* const angles_;
  float* const sines_;
  float* const cosines_;
};

float pool(const PoolTask& task) {
  if (task.dtype_of_raw() != task.geometry->index_dtype()) {  // which is f32
    return task.dtype_of_raw() == DType::kF16 ? Pooling<StoredF32, StoredF16>(task).run()
                                              : Pooling<StoredF32, StoredBf16>(task).run();
  }
  switch (task.geometry->index_dtype()) {
#define SERIATIM_POOL(name, dtype, Stored) \
  case dtype:                              \
    return Pooling<Stored>(task).run();
    SERIATIM_POOL_KERNELS(SERIATIM_POOL)
#undef SERIATIM_POOL
    case DType::kI32:
    case DType::kI64:
      break;
  }
  return std::numeric_limits<float>::infinity();
}

std::int64_t sincos(const float* angles, std::int64_t count, float* sines, float* cosines) {
  return static_cast<std::int64_t>(sincos_all(angles, static_cast<std::size_t>(count), sines, cosines));
}

SERIATIM_KERNEL_TABLE(PoolKernels, pool_table, pool, sincos)

#endif  // SERIATIM_HAS_SIMD

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/kernel_dispatch.hpp"
SERIATIM_KERNEL_FAMILY(PoolKernels, pool_table, pool_kernels, pool_reference)
#endif  // HWY_ONCE
