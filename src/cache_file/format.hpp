// The cache's file as docs/cache_file.md describes it: names, metadata, header bytes, checksums.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/layout.hpp"
#include "seriatim/file.hpp"
#include "seriatim/geometry.hpp"

namespace seriatim::cache_file {

inline constexpr std::string_view kVersionKey = "seriatim";
inline constexpr std::string_view kKind = "cache/";
inline constexpr std::string_view kVersion = "cache/2";       // what is written
inline constexpr std::string_view kOlderVersion = "cache/1";  // what is read besides
inline constexpr std::int64_t kDataAlignment = 4096;          // of the first data byte, as written; reading needs none
inline constexpr std::int64_t kMaxHeaderBytes = 1 << 20;

enum Section : std::size_t {
  kTokenPages,
  kPooledPages,
  kTokenPageHashes,
  kPooledPageHashes,
  kSequences,
  kTokenTable,
  kPooledTable,
  kChecksums,
  kIndexNormWeights,
  kInvFreq,
  kIndexed,
  kRopeAxes,
  kSectionCount,
};

struct SectionKind {
  std::string_view name;
  std::string_view dtype;
  std::int64_t element_bytes;
  std::size_t rank;
};

// In the order in which they are written.
inline constexpr std::array<SectionKind, kSectionCount> kSections{{{"token_pages", "U8", 1, 2},
                                                                   {"pooled_pages", "U8", 1, 2},
                                                                   {"token_page_hashes", "U64", 8, 1},
                                                                   {"pooled_page_hashes", "U64", 8, 1},
                                                                   {"sequences", "I64", 8, 2},
                                                                   {"token_table", "I64", 8, 1},
                                                                   {"pooled_table", "I64", 8, 1},
                                                                   {"checksums", "U64", 8, 1},
                                                                   {"index_norm_weights", "F32", 4, 2},
                                                                   {"inv_freq", "F32", 4, 1},
                                                                   {"indexed", "U8", 1, 1},
                                                                   {"rope_axes", "U8", 1, 1}}};

// Columns of `sequences`.
enum SequenceColumn : std::size_t { kId, kAnchor, kTokens, kFirstSlot, kFirstGroupSlot, kSequenceColumns };

// Checksums: the header, then every section but the pages and the checksums themselves, then all of these.
inline constexpr std::size_t kChecksumCount = kSectionCount - 3 + 2;

using Shapes = std::array<std::vector<std::int64_t>, kSectionCount>;
// Bytes of every section but the pages.
using SmallSections = std::array<std::vector<std::byte>, kSectionCount>;

// XXH3, 64 bits, seed 0.
std::uint64_t hash(std::span<const std::byte> bytes);

// What a state depends on, as metadata. What it depends on besides has sections of its own.
Metadata describe(const Geometry& geometry, std::int64_t page_tokens);

// Geometry options that have what `metadata` says; the rest is filled in so that it can be admitted.
// Errors  Corrupt: a key that is missing or malformed.
Result<GeometryOptions> options_of(const Metadata& metadata);
// Errors  Corrupt.
Result<std::int64_t> integer_of(const Metadata& metadata, std::string_view key);

// 1 or 2. Errors  Corrupt: not a cache's file. Unsupported: another version.
Result<int> version_of(const Metadata& metadata);

// What precedes the data. Errors  as file::safetensors_header.
Result<std::string> header_bytes(const Metadata& metadata, const Shapes& shapes,
                                 std::int64_t alignment = kDataAlignment);

// All checksums; small[kChecksums] is not looked at.
std::array<std::uint64_t, kChecksumCount> checksums(std::string_view header, const SmallSections& small);

template <typename T>
std::vector<std::byte> bytes_of(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

// Errors  Corrupt, with the section as argument.
Status corrupt(std::string_view section, std::string_view what, Place place = {});

}  // namespace seriatim::cache_file
