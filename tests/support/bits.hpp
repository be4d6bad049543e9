// Comparison of bits, where the contract promises bits. Success always means that something was looked at.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "seriatim/status.hpp"

namespace seriatim::testing {

// FNV-1a. Equal digests of large results stand for equal bytes.
inline std::uint64_t digest(std::span<const std::byte> bytes, std::uint64_t seed = 0xcbf29ce484222325u) {
  std::uint64_t hash = seed;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  return hash;
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

// True where at least two elements differ: a buffer that nothing was written to does not pass as a result.
template <typename T>
bool varies(std::span<const T> values) {
  return std::any_of(values.begin(), values.end(),
                     [&](const T& v) { return std::memcmp(&v, values.data(), sizeof v) != 0; });
}

// Equal bytes, of whatever content. Nothing at all is not equal to nothing.
template <typename T>
::testing::AssertionResult same_bytes(std::span<const T> got, std::span<const T> want) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " elements where " << want.size() << " are due";
  }
  if (got.empty()) return ::testing::AssertionFailure() << "nothing was compared";
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(T)) == 0) continue;
    auto failure = ::testing::AssertionFailure() << "element " << i << " of " << got.size() << " differs: ";
    if constexpr (std::is_same_v<T, std::byte>) {
      return failure << std::to_integer<int>(got[i]) << " where " << std::to_integer<int>(want[i]) << " is due";
    } else {
      return failure << got[i] << " where " << want[i] << " is due";
    }
  }
  return ::testing::AssertionSuccess();
}

// Equal bits of a result that has content.
template <typename T>
::testing::AssertionResult same_bits(std::span<const T> got, std::span<const T> want) {
  if (auto same = same_bytes(got, want); !same) return same;
  if (want.size() > 1 && !varies(want))
    return ::testing::AssertionFailure() << "every element is the same: no result to compare";
  return ::testing::AssertionSuccess();
}

template <typename T>
::testing::AssertionResult same_bits(const std::vector<T>& got, const std::vector<T>& want) {
  return same_bits(std::span<const T>(got), std::span<const T>(want));
}

// The error's code, the argument it names and, unless -2, its place.
inline ::testing::AssertionResult fails_with(const Status& status, Code code, std::string_view argument,
                                             std::int64_t row = -2, std::int64_t index = -2) {
  const Place place = status.place();
  if (status.code() == code && status.argument() == argument && (row == -2 || place.row == row) &&
      (index == -2 || place.index == index) && status.message().find(argument) != std::string_view::npos) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << code_name(status.code()) << " of '" << status.argument() << "' at row "
                                       << place.row << ", index " << place.index << ": " << status.message();
}

}  // namespace seriatim::testing
