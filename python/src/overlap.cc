#include "overlap.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "errors.hpp"

namespace seriatim::python {

namespace {

constexpr std::int64_t kMostRuns = std::int64_t{1} << 20;

// The bytes of a view as runs without gaps, all of one length.
struct DenseRuns {
  explicit DenseRuns(const ConstTensor& of) : view(of), axes(of.rank), bytes(dtype_bytes(of.dtype)) {
    while (axes > 0 && view.stride_bytes[static_cast<std::size_t>(axes - 1)] == bytes)
      bytes *= view.shape[static_cast<std::size_t>(--axes)];
    for (int axis = 0; axis < axes; ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      reach += (view.shape[at] - 1) * view.stride_bytes[at];
      if (count <= kMostRuns) count *= std::min(view.shape[at], kMostRuns + 1);
    }
    reach += bytes;
  }

  std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(view.data); }
  std::uintptr_t end() const { return begin() + static_cast<std::uintptr_t>(reach); }

  std::vector<std::uintptr_t> starts() const {
    std::vector<std::uintptr_t> all{begin()};
    for (int axis = 0; axis < axes; ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      const std::size_t before = all.size();
      for (std::int64_t i = 1; i < view.shape[at]; ++i) {
        for (std::size_t j = 0; j < before; ++j)
          all.push_back(all[j] + static_cast<std::uintptr_t>(i * view.stride_bytes[at]));
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  const ConstTensor& view;
  int axes;  // those that are not part of a run
  std::int64_t bytes, reach = 0, count = 1;
};

bool has_elements(const ConstTensor& view) {
  return !view.empty() && std::find(view.shape.begin(), view.shape.end(), 0) == view.shape.end();
}

bool overlap(const ConstTensor& a, const ConstTensor& b) {
  if (!has_elements(a) || !has_elements(b)) return false;
  const DenseRuns one(a), other(b);
  if (one.end() <= other.begin() || other.end() <= one.begin()) return false;
  if (one.count > kMostRuns || other.count > kMostRuns) return true;
  const std::vector<std::uintptr_t> left = one.starts(), right = other.starts();
  for (std::size_t i = 0, j = 0; i < left.size() && j < right.size();) {
    if (left[i] + static_cast<std::uintptr_t>(one.bytes) <= right[j]) {
      ++i;
    } else if (right[j] + static_cast<std::uintptr_t>(other.bytes) <= left[i]) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

void refuse_pair(const Part& written, const Part& other) {
  if (overlap(written.view, other.view))
    refuse(written.argument,
           std::string("shares memory with ") + other.argument + "; nothing is both read and written");
}

}  // namespace

void refuse_overlap(const std::vector<Part>& written, const std::vector<Part>& read) {
  for (auto one = written.begin(); one != written.end(); ++one) {
    for (auto other = one + 1; other != written.end(); ++other) refuse_pair(*one, *other);
    for (const Part& other : read) refuse_pair(*one, other);
  }
}

}  // namespace seriatim::python
