#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.hpp"
#include "score/score_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "score/score_simd.cc"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once per instruction set.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "base/simd_target.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

#if !SERIATIM_HAS_SIMD

SERIATIM_NO_KERNEL_TABLE(ScoreKernels, score_table)

#else

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using VF = hn::Vec<F32>;
using U32 = hn::RebindToUnsigned<F32>;

constexpr int kWidth = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kVectors = 16 / kWidth;  // of a panel's row
// Rows (heads of queries) of the largest tile, and how many accumulators a tile may have: they, the keys and one
// broadcast must fit the registers, and there must be as many as the multiply-adds that the machine has in flight.
constexpr int kMaxRows = kVectors == 1 ? 8 : 4;
constexpr int kAccumulators = kVectors == 1 ? 24 : kVectors == 2 ? 8 : 16;
constexpr int kBatch = 4;  // panels that all rows visit before the next are read; a tile takes a part of them
constexpr int panels_per_tile(int rows) {
  return static_cast<int>(
      std::bit_floor(static_cast<unsigned>(std::clamp(kAccumulators / (rows * kVectors), 1, kBatch))));
}
// How far ahead panels are asked for: enough to hide memory's latency, little enough for the first cache.
constexpr std::int64_t kAheadBytes = 8192;

// How 16 keys of one dim become f32.
struct KeysF32 {
  using Stored = float;
  static constexpr DType kDType = DType::kF32;
  static HWY_INLINE VF load(F32 d, const float* at) { return hn::LoadU(d, at); }
};
struct KeysBf16 {
  using Stored = std::uint16_t;
  static constexpr DType kDType = DType::kBf16;
  static HWY_INLINE VF load(F32 d, const std::uint16_t* at) {
    const hn::Rebind<std::uint16_t, F32> narrow;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(U32(), hn::LoadU(narrow, at))));
  }
};
struct KeysF16 {
  using Stored = std::uint16_t;
  static constexpr DType kDType = DType::kF16;
  static HWY_INLINE VF load(F32 d, const std::uint16_t* at) {
    const hn::Rebind<std::uint16_t, F32> narrow;
    const hn::Rebind<hwy::float16_t, F32> half;
    return hn::PromoteTo(d, hn::BitCast(half, hn::LoadU(narrow, at)));
  }
};

// What turns the dots of a query's heads into its score.
struct Finish {
  explicit Finish(const Geometry& geometry)
      : sqrt_dim(std::sqrt(static_cast<float>(geometry.index_dim()))),
        inverse_sqrt_dim(static_cast<float>(1.0 / std::sqrt(static_cast<double>(geometry.index_dim())))),
        scale_at(geometry.scale_at()),
        relu(geometry.relu()) {}

  HWY_INLINE VF add(F32 d, VF sum, VF dot, const float* weight) const {
    if (scale_at == ScaleAt::kBeforeRelu) dot = hn::Mul(dot, hn::Set(d, inverse_sqrt_dim));
    if (relu) dot = hn::IfThenZeroElse(hn::Lt(dot, hn::Zero(d)), dot);  // NaN is not below 0 and passes
    if (scale_at == ScaleAt::kAfterRelu) dot = hn::Mul(dot, hn::Set(d, inverse_sqrt_dim));
    return weight == nullptr ? hn::Add(sum, dot) : hn::MulAdd(hn::Set(d, *weight), dot, sum);
  }
  HWY_INLINE VF score(F32 d, VF sum) const {
    return scale_at == ScaleAt::kAfterSum ? hn::Div(sum, hn::Set(d, sqrt_dim)) : sum;
  }

  const float sqrt_dim;
  const float inverse_sqrt_dim;
  const ScaleAt scale_at;
  const bool relu;
};

template <class Keys>
class Scorer {
  using Stored = typename Keys::Stored;
  static constexpr int kBytes = sizeof(Stored);

 public:
  explicit Scorer(const ScoreBlock& block)
      : block_(block),
        panels_(*block.pooled),
        finish_(*block.geometry),
        dim_(block.geometry->index_dim()),
        heads_(block.geometry->heads_per_selection()),
        rows_(block.count * heads_) {}

  void run() const {
    // Few rows are done with a panel as soon as it is there: memory gives four streams far apart sooner than
    // neighbours.
    const bool far = rows_ <= kMaxRows;
    const std::int64_t batches = block_.panels / kBatch;
    const std::int64_t apart = far ? batches : 1;
    const std::int64_t step = far ? 1 : kBatch;
    const std::int64_t rest = block_.first_panel + batches * kBatch;
    const std::int64_t end = block_.first_panel + block_.panels;
    const Stored* run[2 * kBatch] = {};  // a batch, and the one to ask for
    const auto fetch_batch = [&](std::int64_t batch) {
      batch < batches ? fetch(block_.first_panel + batch * step, apart, run + kBatch) : fetch(rest, 1, run + kBatch);
    };
    fetch_batch(0);
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      std::copy_n(run + kBatch, kBatch, run);
      fetch_batch(batch + 1);
      all_rows<kBatch>(block_.first_panel + batch * step, apart, run);
    }
    const Stored* const* left = run + kBatch;
    for (std::int64_t panel = rest; panel < end; ++panel, ++left) {
      const Stored* const one[] = {left[0], panel + 1 < end ? left[1] : left[0]};
      all_rows<1>(panel, 1, one);
    }
  }

 private:
  // The panels from `first` on; past the end whatever was there, good enough to be prefetched.
  void fetch(std::int64_t first, std::int64_t apart, const Stored** panels) const {
    const std::int64_t end = block_.first_panel + block_.panels;
    for (int p = 0; p < kBatch && first + p * apart < end; ++p) {
      panels[p] = reinterpret_cast<const Stored*>(panels_.whole(first + p * apart, block_.edge));
    }
  }

  // `panels`: kPanels to score, the first being `panel` and each so many `apart`, and as many to be prefetched.
  template <int kPanels>
  HWY_INLINE void all_rows(std::int64_t panel, std::int64_t apart, const Stored* const* panels) const {
    std::int64_t row = 0;
    for (; row + kMaxRows <= rows_; row += kMaxRows) some_rows<kMaxRows, kPanels>(row, panel, apart, panels);
    last_rows<kMaxRows - 1, kPanels>(row, panel, apart, panels);
  }

  template <int kRows, int kPanels>
  HWY_INLINE void last_rows(std::int64_t row, std::int64_t panel, std::int64_t apart,
                            const Stored* const* panels) const {
    if constexpr (kRows > 0) {
      if (rows_ - row == kRows) return some_rows<kRows, kPanels>(row, panel, apart, panels);
      last_rows<kRows - 1, kPanels>(row, panel, apart, panels);
    }
  }

  template <int kRows, int kPanels>
  HWY_INLINE void some_rows(std::int64_t row, std::int64_t panel, std::int64_t apart,
                            const Stored* const* panels) const {
    constexpr int kAtOnce = std::min(kPanels, panels_per_tile(kRows));
    for (int p = 0; p < kPanels; p += kAtOnce) tile<kRows, kAtOnce>(row, panel + p * apart, apart, panels + p);
  }

  // The dots of kRows rows with kPanels panels, and what they add to the scores.
  template <int kRows, int kPanels>
  HWY_NOINLINE void tile(std::int64_t row, std::int64_t panel, std::int64_t apart, const Stored* const* panels) const {
    constexpr int kColumns = kPanels * kVectors;
    const F32 d;
    VF dots[kRows][kColumns];
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(16)
      for (int c = 0; c < kColumns; ++c) dots[r][c] = hn::Zero(d);
    }
    const float* query = block_.queries + row * dim_;
    const auto step = [&](std::int64_t i) HWY_ATTR {
      VF keys[kColumns];
      HWY_UNROLL(16)
      for (int c = 0; c < kColumns; ++c) keys[c] = Keys::load(d, panels[c / kVectors] + i * 16 + c % kVectors * kWidth);
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        const VF q = hn::Set(d, query[i * kRows + r]);
        HWY_UNROLL(16)
        for (int c = 0; c < kColumns; ++c) dots[r][c] = hn::MulAdd(q, keys[c], dots[r][c]);
      }
    };
    constexpr int kSteps = 4;
    const std::int64_t ahead = std::min<std::int64_t>(kAheadBytes / (kPanels * 16 * kBytes), dim_);
    std::int64_t i = 0;
    for (; i + kSteps <= dim_; i += kSteps) {
      if (row == 0) {  // the first rows bring the panels in
        const bool next = i + ahead >= dim_;
        const std::int64_t from = (next ? i + ahead - dim_ : i + ahead) * 16;
        HWY_UNROLL(16)
        for (int line = 0; line < kSteps * 16 * kBytes / 64; ++line) {
          HWY_UNROLL(16)
          for (int p = 0; p < kPanels; ++p) hwy::Prefetch(panels[next ? p + kPanels : p] + from + line * (64 / kBytes));
        }
      }
      HWY_UNROLL(4)
      for (int k = 0; k < kSteps; ++k) step(i + k);
    }
    for (; i < dim_; ++i) step(i);
    add_to_scores<kRows, kColumns>(row, block_.scores + (panel - block_.first_panel) * 16, apart * 16, dots);
  }

  // Heads in their order: a sum goes on where an earlier tile of the same query left it.
  template <int kRows, int kColumns>
  HWY_INLINE void add_to_scores(std::int64_t row, float* scores, std::int64_t apart,
                                const VF (&dots)[kRows][kColumns]) const {
    const F32 d;
    HWY_UNROLL(16)
    for (int c = 0; c < kColumns; ++c) {
      std::int64_t head = row % heads_;
      float* out = scores + row / heads_ * block_.stride + c / kVectors * apart + c % kVectors * kWidth;
      VF sum = head == 0 ? hn::Zero(d) : hn::LoadU(d, out);
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        sum = finish_.add(d, sum, dots[r][c], block_.head_weights == nullptr ? nullptr : block_.head_weights + row + r);
        if (++head == heads_) {
          hn::StoreU(finish_.score(d, sum), d, out);
          out += block_.stride;
          sum = hn::Zero(d);
          head = 0;
        } else if (r + 1 == kRows) {
          hn::StoreU(sum, d, out);
        }
      }
    }
  }

  const ScoreBlock& block_;
  const Panels panels_;
  const Finish finish_;
  const std::int64_t dim_;
  const std::int64_t heads_;
  const std::int64_t rows_;
};

void score_f32(const ScoreBlock& block) { Scorer<KeysF32>(block).run(); }
void score_bf16(const ScoreBlock& block) { Scorer<KeysBf16>(block).run(); }
void score_f16(const ScoreBlock& block) { Scorer<KeysF16>(block).run(); }

void score(const ScoreBlock& block) {
  switch (block.pooled->dtype) {
#define SERIATIM_CASE(name, dtype) \
  case dtype:                      \
    return score_##name(block);
    SERIATIM_SCORE_KERNELS(SERIATIM_CASE)
#undef SERIATIM_CASE
    case DType::kI32:
    case DType::kI64:
      return;
  }
}

// Rows in tiles of kMaxRows, the last one narrower; within a tile [dim][row].
template <class Load>
HWY_INLINE void pack_tiles(const ConstTensor& queries, float* packed, Load load) {
  const std::int64_t heads = queries.shape[1];
  const std::int64_t dim = queries.shape[2];
  const std::int64_t rows = queries.shape[0] * heads;
  for (std::int64_t row = 0; row < rows; row += kMaxRows) {
    const std::int64_t tile = std::min<std::int64_t>(kMaxRows, rows - row);
    for (std::int64_t r = 0; r < tile; ++r) {
      const std::byte* from = queries.at((row + r) / heads, (row + r) % heads);
      float* to = packed + row * dim + r;
      for (std::int64_t i = 0; i < dim; ++i) to[i * tile] = load(from + i * queries.stride_bytes[2]);
    }
  }
}

void pack(const ConstTensor& queries, float* packed) {
  switch (queries.dtype) {
    case DType::kF32:
      return pack_tiles(queries, packed, [](const std::byte* at) { return load_element(at, DType::kF32); });
    case DType::kBf16:
      return pack_tiles(queries, packed, [](const std::byte* at) { return load_element(at, DType::kBf16); });
    case DType::kF16:
      return pack_tiles(queries, packed, [](const std::byte* at) { return load_element(at, DType::kF16); });
    case DType::kI32:
    case DType::kI64:
      return;
  }
}

// As integers, in the order of floats: NaN of either sign is told by its magnitude.
float best(const float* scores, std::int64_t count) {
  const hn::ScalableTag<std::int32_t> d;
  const hn::RebindToFloat<decltype(d)> floats;
  using VI = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const VI magnitude = hn::Set(d, 0x7fffffff);
  VI best = hn::Set(d, std::numeric_limits<std::int32_t>::min());
  VI largest = hn::Zero(d);
  const auto take = [&](VI bits) HWY_ATTR {
    best = hn::Max(best, hn::Xor(bits, hn::And(hn::ShiftRight<31>(bits), magnitude)));
    largest = hn::Max(largest, hn::And(bits, magnitude));
  };
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) take(hn::BitCast(d, hn::LoadU(floats, scores + i)));
  for (; i < count; ++i) take(hn::BitCast(d, hn::Set(floats, scores[i])));
  if (hn::GetLane(hn::MaxOfLanes(d, largest)) > 0x7f800000) return std::numeric_limits<float>::quiet_NaN();
  const std::int32_t key = hn::GetLane(hn::MaxOfLanes(d, best));
  return std::bit_cast<float>(key < 0 ? key ^ 0x7fffffff : key);
}

SERIATIM_KERNEL_TABLE(ScoreKernels, score_table, pack, score, best)

#endif  // SERIATIM_HAS_SIMD

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/kernel_dispatch.hpp"
SERIATIM_KERNEL_FAMILY(ScoreKernels, score_table, score_kernels, score_reference)
#endif  // HWY_ONCE
