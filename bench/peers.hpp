// What a program would use instead. Each gives the exact set, ascending, with ties to the earlier group, so that the
// same answer is compared.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace seriatim::bench {

struct SelectPeer {
  std::string name;
  void (*select)(std::span<const float> scores, std::int64_t keep, std::vector<std::int32_t>& scratch,
                 std::vector<std::int32_t>& chosen);
};
const std::vector<SelectPeer>& select_peers();

// One single-precision matrix product of OpenBLAS on one thread: c[m][n] = a[m][k] * b, with b as [n][k] or [k][n].
bool has_sgemm();
void sgemm(bool b_is_n_by_k, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b, float* c);

}  // namespace seriatim::bench
