// What the calls of a BorrowedLayer are admitted by, and small steps over tensors that they share.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>

#include "borrowed_layer.hpp"

namespace seriatim::python {

inline constexpr std::int64_t kBlockQueries = 512;  // queries whose rows are held at once: 4 MiB at a budget of 2,048
inline constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;

inline Status misfit(std::string_view argument, const std::string& what, Place place = {}) {
  return Status::error(Code::kInvalidArgument, argument, std::string(argument) + ": " + what, place);
}

// -1 admits any extent.
template <typename Byte>
Status admit(std::string_view argument, const BasicTensor<Byte>& tensor, DType dtype,
             std::initializer_list<std::int64_t> shape) {
  if (tensor.dtype != dtype) {
    return misfit(argument,
                  "dtype " + std::string(dtype_name(tensor.dtype)) + ", expected " + std::string(dtype_name(dtype)));
  }
  if (tensor.rank != static_cast<int>(shape.size()))
    return misfit(argument, "rank " + std::to_string(tensor.rank) + ", expected " + std::to_string(shape.size()));
  std::size_t axis = 0;
  for (const std::int64_t extent : shape) {
    if (extent >= 0 && tensor.shape[axis] != extent) {
      return misfit(argument, "extent " + std::to_string(tensor.shape[axis]) + " of axis " + std::to_string(axis) +
                                  ", expected " + std::to_string(extent));
    }
    if (tensor.shape[axis] > 1 && tensor.stride_bytes[axis] < 0) return misfit(argument, "a negative stride");
    ++axis;
  }
  return {};
}

// Whether the trailing axes from `axis` on lie densely, one after the other.
template <typename Byte>
bool dense_from(const BasicTensor<Byte>& tensor, int axis) {
  std::int64_t expected = dtype_bytes(tensor.dtype);
  for (int i = tensor.rank - 1; i >= axis; --i) {
    const auto at = static_cast<std::size_t>(i);
    if (tensor.shape[at] > 1 && tensor.stride_bytes[at] != expected) return false;
    expected *= tensor.shape[at];
  }
  return true;
}

inline Status admit_runs(const Runs& runs, std::int64_t sequences, std::int64_t slots) {
  if (static_cast<std::int64_t>(runs.first.size()) != sequences || runs.last.size() != runs.first.size()) {
    return misfit("runs", "not one per sequence");
  }
  for (std::size_t b = 0; b < runs.first.size(); ++b) {
    if (runs.first[b] < 0 || runs.last[b] < runs.first[b] || runs.last[b] > slots) {
      return misfit("runs",
                    "slots " + std::to_string(runs.first[b]) + " to " + std::to_string(runs.last[b]) + " of " +
                        std::to_string(slots),
                    {static_cast<std::int64_t>(b), -1});
    }
  }
  return {};
}

// A call is a task with a unit per piece of work; the first fault in order wins.
template <typename Each>
class Units final : public Task {
 public:
  explicit Units(const Each& each) : each_(each) {}
  void perform(std::int64_t unit, int worker) override { each_(unit, worker); }

 private:
  const Each& each_;
};

template <typename Each>
void for_units(Executor& executor, std::int64_t units, const Each& each) {
  Units<Each> task(each);
  executor.run(units, task);
}

template <typename Byte>
BasicTensor<Byte> slice(BasicTensor<Byte> tensor, std::int64_t first, std::int64_t count) {
  if (tensor.empty()) return tensor;
  tensor.data = tensor.at(first);
  tensor.shape[0] = count;
  return tensor;
}

inline void zero_fill(const Tensor& output) {  // [rows, heads, dim]
  for (std::int64_t i = 0; i < output.shape[0]; ++i) {
    for (std::int64_t h = 0; h < output.shape[1]; ++h) {
      for (std::int64_t d = 0; d < output.shape[2]; ++d)
        std::memset(output.at(i, h, d), 0, static_cast<std::size_t>(dtype_bytes(output.dtype)));
    }
  }
}

}  // namespace seriatim::python
