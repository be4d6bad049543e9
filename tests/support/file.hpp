// Shared by the tests of this module: files made in memory, and the corpus.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "file/bytes.hpp"
#include "support/folder.hpp"

namespace seriatim::file {

// Bytes in a heap block of exactly their size, so that ASan sees a read past either end.
using Bytes = std::vector<std::byte>;

inline Bytes to_bytes(std::string_view text) {
  const auto bytes = bytes_of(text);
  return {bytes.begin(), bytes.end()};
}

// A safetensors file of this header and so many data bytes.
inline Bytes framed(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof length);
  text += header;
  text.append(data_bytes, '\x5A');
  return to_bytes(text);
}

inline Bytes slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return to_bytes(text);
}

inline std::filesystem::path corpus(std::string_view name) { return std::filesystem::path(SERIATIM_CORPUS_DIR) / name; }

// Calls `visit` with every file that differs from `whole` in one byte.
template <typename Visit>
void for_each_one_byte_change(const Bytes& whole, Visit&& visit) {
  Bytes changed = whole;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (unsigned value = 0; value < 256; ++value) {
      changed[i] = std::byte(value);
      if (changed[i] != whole[i]) visit(changed, i);
    }
    changed[i] = whole[i];
  }
}

}  // namespace seriatim::file
