// For tests and fuzzers: does what a reader admitted hold together? Reads every byte of every view, so that a sanitizer
// sees a view that leaves the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "file/dense.hpp"
#include "file/safetensors_header.hpp"
#include "seriatim/file.hpp"

namespace seriatim::file {

// Reads all elements; their sum is of no meaning, but the compiler cannot leave the reads out.
inline std::uint64_t touch(const ConstTensor& view) {
  std::uint64_t sum = 0;
  (void)for_each_run(view, [&](std::span<const std::byte> run) {
    for (const std::byte b : run) sum += std::to_integer<std::uint64_t>(b) + 1;
    return Status{};
  });
  return sum;
}

inline std::int64_t view_bytes(const ConstTensor& view) {
  return dense_bytes(view.shape, 8 * dtype_bytes(view.dtype)).value_or(-1);
}

inline bool lies_within(const ConstTensor& view, std::span<const std::byte> bytes) {
  const std::int64_t size = view_bytes(view);
  return size >= 0 && view.data >= bytes.data() && size <= bytes.data() + bytes.size() - view.data;
}

// Every tensor is found or refused for the reason its entry shows, every view lies within `bytes` and has the length
// its offsets say, and the lengths add up to no more than the file.
inline bool consistent(const SafetensorsFile& file, std::span<const std::byte> bytes) {
  std::int64_t total = 0;
  std::uint64_t sum = 0;
  if (file.names().size() != file.entries().size()) return false;
  for (const SafetensorsEntry& entry : file.entries()) {
    total += entry.end_bytes - entry.begin_bytes;
    const Result<ConstTensor> view = file.find(entry.name);
    const bool viewable = dtype_of_safetensors(entry.dtype).has_value() && entry.shape.size() <= kMaxRank;
    if (view.ok() != viewable) return false;
    if (!viewable && view.status().code() != Code::kUnsupported) return false;
    if (!viewable) continue;
    if (!lies_within(*view, bytes) || view_bytes(*view) != entry.end_bytes - entry.begin_bytes) return false;
    sum += touch(*view);
  }
  volatile std::uint64_t sink = sum;
  (void)sink;
  return total >= 0 && total <= std::ssize(bytes);
}

inline bool consistent(const NpyArray& array, std::span<const std::byte> bytes) {
  const ConstTensor& view = array.view();
  if (view.rank < 1 || view.rank > kMaxRank || !lies_within(view, bytes)) return false;
  volatile std::uint64_t sink = touch(view);
  (void)sink;
  return view.data + view_bytes(view) == bytes.data() + bytes.size();
}

}  // namespace seriatim::file
