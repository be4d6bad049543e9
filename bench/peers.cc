#include "bench/peers.hpp"

#include <algorithm>
#include <numeric>
#include <queue>

#ifdef SERIATIM_OPENBLAS
#include <cblas.h>
#endif

namespace seriatim::bench {
namespace {

struct Better {
  std::span<const float> scores;
  bool operator()(std::int32_t a, std::int32_t b) const {
    const float x = scores[static_cast<std::size_t>(a)];
    const float y = scores[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  }
};

void number(std::span<const float> scores, std::vector<std::int32_t>& scratch) {
  scratch.resize(scores.size());
  std::iota(scratch.begin(), scratch.end(), 0);
}

void emit(const std::vector<std::int32_t>& best, std::int64_t keep, std::vector<std::int32_t>& chosen) {
  chosen.assign(best.begin(), best.begin() + keep);
  std::sort(chosen.begin(), chosen.end());
}

void by_nth_element(std::span<const float> scores, std::int64_t keep, std::vector<std::int32_t>& scratch,
                    std::vector<std::int32_t>& chosen) {
  number(scores, scratch);
  std::nth_element(scratch.begin(), scratch.begin() + keep, scratch.end(), Better{scores});
  emit(scratch, keep, chosen);
}

void by_partial_sort(std::span<const float> scores, std::int64_t keep, std::vector<std::int32_t>& scratch,
                     std::vector<std::int32_t>& chosen) {
  number(scores, scratch);
  std::partial_sort(scratch.begin(), scratch.begin() + keep, scratch.end(), Better{scores});
  emit(scratch, keep, chosen);
}

// The worst of the best stands on top; a later group enters only if it is strictly better.
void by_heap(std::span<const float> scores, std::int64_t keep, std::vector<std::int32_t>& scratch,
             std::vector<std::int32_t>& chosen) {
  const Better better{scores};
  scratch.clear();
  for (std::int32_t g = 0; g < static_cast<std::int32_t>(scores.size()); ++g) {
    if (static_cast<std::int64_t>(scratch.size()) < keep) {
      scratch.push_back(g);
      std::push_heap(scratch.begin(), scratch.end(), better);
    } else if (better(g, scratch.front())) {
      std::pop_heap(scratch.begin(), scratch.end(), better);
      scratch.back() = g;
      std::push_heap(scratch.begin(), scratch.end(), better);
    }
  }
  emit(scratch, keep, chosen);
}

void by_stable_sort(std::span<const float> scores, std::int64_t keep, std::vector<std::int32_t>& scratch,
                    std::vector<std::int32_t>& chosen) {
  number(scores, scratch);
  std::stable_sort(scratch.begin(), scratch.end(), [scores](std::int32_t a, std::int32_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  emit(scratch, keep, chosen);
}

}  // namespace

const std::vector<SelectPeer>& select_peers() {
  static const std::vector<SelectPeer> peers{{"std::nth_element + sort", by_nth_element},
                                             {"std::partial_sort + sort", by_partial_sort},
                                             {"bounded heap + sort", by_heap},
                                             {"std::stable_sort + sort", by_stable_sort}};
  return peers;
}

#ifdef SERIATIM_OPENBLAS

bool has_sgemm() { return true; }

void sgemm(bool b_is_n_by_k, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b, float* c) {
  openblas_set_num_threads(1);
  const auto i = [](std::int64_t x) { return static_cast<blasint>(x); };
  cblas_sgemm(CblasRowMajor, CblasNoTrans, b_is_n_by_k ? CblasTrans : CblasNoTrans, i(m), i(n), i(k), 1.0f, a, i(k), b,
              b_is_n_by_k ? i(k) : i(n), 0.0f, c, i(n));
}

#else

bool has_sgemm() { return false; }
void sgemm(bool, std::int64_t, std::int64_t, std::int64_t, const float*, const float*, float*) {}

#endif

}  // namespace seriatim::bench
