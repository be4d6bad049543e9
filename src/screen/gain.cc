#include "screen/gain.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "screen/screen_kernels.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPanelsTimed = 8;
constexpr int kTries = 5;

template <class Run>
double best_of(Run run) {
  double best = 1e9;
  for (int i = 0; i < kTries; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

// The products of 16 heads with a few panels of bf16 keys, which stay in the first cache.
double measure(Kernels kernels) {
  GeometryOptions options;
  options.index_heads = 16;
  options.index_dim = 128;
  options.index_dtype = DType::kBf16;
  const Result<Geometry> admitted = Geometry::admit(options);
  if (!admitted.ok()) return 0.0;
  const Geometry& geometry = *admitted;
  const std::int64_t groups = kPanelsTimed * Panels::kLanes;
  const std::int64_t elements = groups * geometry.index_dim();
  const std::int64_t query = geometry.index_heads() * geometry.index_dim();
  const AlignedBuffer<std::uint16_t> keys(elements);
  for (std::int64_t i = 0; i < elements; ++i)
    keys.data()[i] = static_cast<std::uint16_t>(0x3f00 + i * 37 % 251);  // about 1
  const auto* const page = reinterpret_cast<const std::byte*>(keys.data());
  PooledKeys pooled;
  pooled.pages = &page;
  pooled.page_groups = pooled.groups = groups;
  pooled.dim = geometry.index_dim();
  pooled.dtype = DType::kBf16;

  const ConstTensor queries = dense_view(static_cast<const void*>(keys.data()), DType::kBf16,
                                         {1, geometry.index_heads(), geometry.index_dim()});
  const AlignedBuffer<float> packed(query);
  const AlignedBuffer<float> scores(groups);
  const ScoreKernels& exact = score_kernels(kernels);
  exact.pack(queries, packed.data());
  ScoreBlock full;
  full.geometry = &geometry;
  full.count = 1;
  full.queries = packed.data();
  full.pooled = &pooled;
  full.panels = kPanelsTimed;
  full.scores = scores.data();
  full.stride = groups;

  const std::int64_t words = screen_words(geometry.index_dim());
  const AlignedBuffer<std::uint32_t> near(geometry.index_heads() * words);
  const AlignedBuffer<std::uint32_t> room(kScreenBatch * words * Panels::kLanes);
  const AlignedBuffer<float> norms(2 * groups);
  pack_screen_queries(queries, near.data());
  ScreenBlock fast;
  fast.geometry = &geometry;
  fast.count = 1;
  fast.queries = near.data();
  fast.pooled = &pooled;
  fast.panels = kPanelsTimed;
  fast.keys = room.data();
  fast.scores = scores.data();
  fast.stride = groups;
  fast.norms = norms.data();
  fast.errors = norms.data() + groups;
  const ScreenKernels& screen = screen_kernels(kernels);
  const double exact_time = best_of([&] { exact.score(full); });
  return exact_time / best_of([&] { screen.score(fast); });
}

}  // namespace

double screen_gain(Kernels kernels) {
  if (!screen_kernels(kernels).fast) return 0.0;
  static std::mutex mutex;
  static std::vector<std::pair<std::int64_t, double>> measured;
  const std::scoped_lock lock(mutex);
  for (const auto& [target, gain] : measured) {
    if (target == kernels.target()) return gain;
  }
  try {
    measured.reserve(measured.size() + 1);
    measured.emplace_back(kernels.target(), measure(kernels));
    return measured.back().second;
  } catch (const std::bad_alloc&) {
    return 0.0;
  }
}

}  // namespace seriatim
