// Approximate scores by AVX512-BF16: vdpbf16ps adds two products to each of 16 lanes. Compiled for it whatever the rest
// is compiled for, and run only where the processor has it.
#include <hwy/base.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "screen/screen_kernels.hpp"

#if HWY_ARCH_X86_64 && (HWY_COMPILER_CLANG >= 900 || HWY_COMPILER_GCC_ACTUAL >= 1000 || HWY_COMPILER_GCC >= 1000)
#define SERIATIM_HAS_AVX512_BF16 1
// Some of its functions leave operands open that do not matter, and warn of it in the callers' name.
#if !HWY_COMPILER_CLANG
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if !HWY_COMPILER_CLANG
#pragma GCC diagnostic pop
#endif
#else
#define SERIATIM_HAS_AVX512_BF16 0
#endif

#if SERIATIM_HAS_AVX512_BF16

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,fma,f16c,avx2,bmi,bmi2")
namespace seriatim {
namespace {

constexpr std::size_t kRows = static_cast<std::size_t>(kScreenRows);
constexpr int kBatch = static_cast<int>(kScreenBatch);
constexpr std::size_t kPanels = 2;  // of a tile: 16 chains, which hide the latency of the products

// The nearest bf16 of each lane, in its upper half; the lower half is anything. A NaN may become a number here, but not
// in what is then left of it.
HWY_INLINE __m512i nearest(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}
HWY_INLINE __m512i upper_half(__m512i bits) { return _mm512_and_si512(bits, _mm512_set1_epi32(-65536)); }

struct KeysF32 {
  static constexpr std::int64_t kBytes = 4;
  static HWY_INLINE __m512 load(const std::byte* from) { return _mm512_loadu_ps(from); }
};
struct KeysF16 {
  static constexpr std::int64_t kBytes = 2;
  static HWY_INLINE __m512 load(const std::byte* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
};

HWY_INLINE void store_norms(__m512 squares, float* norms) {
  const __m512 grown = _mm512_fmadd_ps(squares, _mm512_set1_ps(kNormGrowth), _mm512_set1_ps(kNormFlush));
  _mm512_storeu_ps(norms, _mm512_mul_ps(_mm512_sqrt_ps(grown), _mm512_set1_ps(kNormRound)));
}

HWY_INLINE __m512 add_products(__m512 sums, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sums, (__m512bh)a, (__m512bh)b);
}

// One panel as words, and the norms of its groups.
template <class Keys>
void prepare(const std::byte* panel, std::int64_t dim, std::uint32_t* words, float* norms, float* errors) {
  __m512 squares = _mm512_setzero_ps();
  __m512 left = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < dim; i += 2) {
    const __m512 even = Keys::load(panel + i * 16 * Keys::kBytes);
    const __m512 odd = i + 1 < dim ? Keys::load(panel + (i + 1) * 16 * Keys::kBytes) : _mm512_setzero_ps();
    const __m512i near_even = upper_half(nearest(even));
    const __m512i near_odd = upper_half(nearest(odd));
    const __m512 left_even = _mm512_sub_ps(even, _mm512_castsi512_ps(near_even));
    const __m512 left_odd = _mm512_sub_ps(odd, _mm512_castsi512_ps(near_odd));
    left = _mm512_fmadd_ps(left_even, left_even, left);
    left = _mm512_fmadd_ps(left_odd, left_odd, left);
    const __m512i word = _mm512_or_si512(_mm512_srli_epi32(near_even, 16), near_odd);
    squares = add_products(squares, word, word);
    _mm512_storeu_si512(words + i * 8, word);
  }
  store_norms(squares, norms);
  store_norms(left, errors);
}

void prepare_bf16(const std::byte* panel, std::int64_t dim, std::uint32_t* words, float* norms, float* errors) {
  alignas(64) static constexpr std::uint16_t kZip[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                         8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i zip = _mm512_load_si512(kZip);
  __m512 squares0 = _mm512_setzero_ps();
  __m512 squares1 = _mm512_setzero_ps();
  std::int64_t i = 0;
  const auto word_at = [&](std::int64_t at) {
    const __m512i word = _mm512_permutexvar_epi16(zip, _mm512_loadu_si512(panel + at * 32));
    _mm512_storeu_si512(words + at * 8, word);
    return word;
  };
  for (; i + 4 <= dim; i += 4) {
    const __m512i word0 = word_at(i);
    const __m512i word1 = word_at(i + 2);
    squares0 = add_products(squares0, word0, word0);
    squares1 = add_products(squares1, word1, word1);
  }
  for (; i < dim; i += 2) {
    const __m512i word =
        i + 1 < dim ? word_at(i)
                    : _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + i * 32)));
    _mm512_storeu_si512(words + i * 8, word);
    squares0 = add_products(squares0, word, word);
  }
  store_norms(_mm512_add_ps(squares0, squares1), norms);
  _mm512_storeu_ps(errors, _mm512_setzero_ps());
}

class Screener {
 public:
  explicit Screener(const ScreenBlock& block)
      : block_(block),
        panels_(*block.pooled),
        geometry_(*block.geometry),
        dim_(geometry_.index_dim()),
        words_(screen_words(dim_)),
        heads_(geometry_.index_heads()),
        rows_(block.count * heads_),
        sqrt_dim_(std::sqrt(static_cast<float>(dim_))),
        inverse_sqrt_dim_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim_)))) {}

  void run() {
    for (std::int64_t panel = 0; panel < block_.panels; panel += kBatch) {
      const std::int64_t some = std::min<std::int64_t>(kBatch, block_.panels - panel);
      for (std::int64_t p = 0; p < some; ++p) prepare_one(panel + p, p);
      ask_for(panel + some);
      for (std::int64_t row = 0; row < rows_; row += kScreenRows) {
        some_rows(row, panel, some);
        keep_asking(row);
      }
    }
  }

 private:
  void prepare_one(std::int64_t panel, std::int64_t place) const {
    const std::byte* from = panels_.whole(block_.first_panel + panel, block_.edge);
    std::uint32_t* words = block_.keys + place * words_ * 16;
    float* norms = block_.norms + panel * 16;
    float* errors = block_.errors + panel * 16;
    switch (panels_.dtype()) {
      case DType::kBf16:
        return prepare_bf16(from, dim_, words, norms, errors);
      case DType::kF32:
        return prepare<KeysF32>(from, dim_, words, norms, errors);
      case DType::kF16:
        return prepare<KeysF16>(from, dim_, words, norms, errors);
      case DType::kI32:
      case DType::kI64:
        return;
    }
  }

  // The next panels come into the cache while the rows visit those that are there, a share of them a tile of rows.
  void ask_for(std::int64_t panel) {
    next_panel_ = panel;
    const std::int64_t tiles = (rows_ + kScreenRows - 1) / kScreenRows;
    const std::int64_t bytes = row_bytes(panels_.dtype(), panels_.elements());
    share_ = (bytes / tiles + 63) / 64 * 64;
    bytes_ = bytes;
  }
  void keep_asking(std::int64_t row) const {
    const std::int64_t from = row / kScreenRows * share_;
    const std::int64_t to = std::min(from + share_, bytes_);
    for (int p = 0; p < kBatch && next_panel_ + p < block_.panels; ++p) {
      const std::byte* at = panels_.at(block_.first_panel + next_panel_ + p);
      for (std::int64_t b = from; b < to; b += 64) _mm_prefetch(reinterpret_cast<const char*>(at + b), _MM_HINT_T0);
    }
  }

  void some_rows(std::int64_t row, std::int64_t panel, std::int64_t some) const {
    const auto left = static_cast<std::size_t>(std::min(kScreenRows, rows_ - row));
    constexpr auto kStep = static_cast<std::int64_t>(kPanels);
    for (std::int64_t p = 0; p < some; p += kStep) {
      if (left == kRows) {
        p + kStep <= some ? tile<kRows, kPanels>(row, panel + p, p) : tile<kRows, 1>(row, panel + p, p);
      } else {
        fewer_rows<kRows - 1>(left, row, panel + p, p, p + kStep <= some);
      }
    }
  }

  template <std::size_t kSome>
  void fewer_rows(std::size_t left, std::int64_t row, std::int64_t panel, std::int64_t place, bool pair) const {
    if constexpr (kSome > 0) {
      if (left < kSome) return fewer_rows<kSome - 1>(left, row, panel, place, pair);
      pair ? tile<kSome, kPanels>(row, panel, place) : tile<kSome, 1>(row, panel, place);
    }
  }

  // `panel` of the block, which stands at `place` of the batch, and those after it.
  template <std::size_t kSome, std::size_t kColumns>
  HWY_NOINLINE void tile(std::int64_t row, std::int64_t panel, std::int64_t place) const {
    __m512 dots[kSome][kColumns];
    for (std::size_t r = 0; r < kSome; ++r) {
      for (std::size_t c = 0; c < kColumns; ++c) dots[r][c] = _mm512_setzero_ps();
    }
    const std::uint32_t* query = block_.queries + row * words_;
    const std::uint32_t* keys = block_.keys + place * words_ * 16;
    const auto words = static_cast<std::size_t>(words_);
    for (std::size_t i = 0; i < words; ++i) {
      __m512i key[kColumns];
      for (std::size_t c = 0; c < kColumns; ++c) key[c] = _mm512_loadu_si512(keys + (c * words + i) * 16);
      HWY_UNROLL(8)
      for (std::size_t r = 0; r < kSome; ++r) {
        const __m512i q = _mm512_set1_epi32(static_cast<int>(query[i * kSome + r]));
        for (std::size_t c = 0; c < kColumns; ++c) dots[r][c] = add_products(dots[r][c], key[c], q);
      }
    }
    for (std::size_t c = 0; c < kColumns; ++c) {
      std::int64_t head = row % heads_;
      float* out = block_.scores + row / heads_ * block_.stride + (panel + static_cast<std::int64_t>(c)) * 16;
      __m512 sum = head == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(out);
      for (std::size_t r = 0; r < kSome; ++r) {
        sum = add(sum, dots[r][c], row + static_cast<std::int64_t>(r));
        if (++head == heads_) {
          _mm512_storeu_ps(out, scaled(sum));
          out += block_.stride;
          sum = _mm512_setzero_ps();
          head = 0;
        } else if (r + 1 == kSome) {
          _mm512_storeu_ps(out, sum);
        }
      }
    }
  }

  // As the canonical score goes on from its dots.
  HWY_INLINE __m512 add(__m512 sum, __m512 dot, std::int64_t row) const {
    const ScaleAt place = geometry_.scale_at();
    if (place == ScaleAt::kBeforeRelu || place == ScaleAt::kAfterRelu)
      dot = _mm512_mul_ps(dot, _mm512_set1_ps(inverse_sqrt_dim_));
    if (geometry_.relu()) dot = _mm512_max_ps(dot, _mm512_setzero_ps());
    return block_.head_weights == nullptr ? _mm512_add_ps(sum, dot)
                                          : _mm512_fmadd_ps(_mm512_set1_ps(block_.head_weights[row]), dot, sum);
  }
  HWY_INLINE __m512 scaled(__m512 sum) const {
    return geometry_.scale_at() == ScaleAt::kAfterSum ? _mm512_div_ps(sum, _mm512_set1_ps(sqrt_dim_)) : sum;
  }

  const ScreenBlock& block_;
  const Panels panels_;
  const Geometry& geometry_;
  const std::int64_t dim_;
  const std::int64_t words_;
  const std::int64_t heads_;
  const std::int64_t rows_;
  const float sqrt_dim_;
  const float inverse_sqrt_dim_;
  std::int64_t next_panel_ = 0;
  std::int64_t share_ = 0;
  std::int64_t bytes_ = 0;
};

void score(const ScreenBlock& block) { Screener(block).run(); }

std::int64_t reach(const ScreenReach& task, std::span<std::int32_t> groups) {
  const std::size_t count = task.scores.size();
  const std::size_t room = groups.size();
  const __m512 least = _mm512_set1_ps(task.threshold);
  const __m512 by_norm = _mm512_set1_ps(task.bound.by_norm);
  const __m512 by_error = _mm512_set1_ps(task.bound.by_error);
  const __m512 always = _mm512_set1_ps(task.bound.always);
  std::size_t found = 0;
  for (std::size_t g = 0; g < count; g += 16) {
    const auto lanes = static_cast<__mmask16>(count - g < 16 ? (1u << (count - g)) - 1 : 0xffffu);
    const __m512 norm = _mm512_maskz_loadu_ps(lanes, task.norms + g);
    const __m512 error = _mm512_maskz_loadu_ps(lanes, task.errors + g);
    const __m512 bound = _mm512_fmadd_ps(by_norm, norm, _mm512_fmadd_ps(by_error, error, always));
    const __m512 most = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, task.scores.data() + g), bound);
    unsigned reached = _mm512_mask_cmp_ps_mask(lanes, most, least, _CMP_GE_OQ);
    while (reached != 0) {  // few do
      if (found == room) return static_cast<std::int64_t>(found) + 1;
      groups[found++] = static_cast<std::int32_t>(g + static_cast<std::size_t>(__builtin_ctz(reached)));
      reached &= reached - 1;
    }
  }
  return static_cast<std::int64_t>(found);
}

}  // namespace
}  // namespace seriatim
HWY_POP_ATTRIBUTES

#endif  // SERIATIM_HAS_AVX512_BF16

namespace seriatim {

const ScreenKernels* screen_native() {
#if SERIATIM_HAS_AVX512_BF16
  static constexpr ScreenKernels kTable{"avx512_bf16", true, score, reach};
  static const bool has = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                          __builtin_cpu_supports("avx512bf16") != 0;
  return has ? &kTable : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace seriatim
