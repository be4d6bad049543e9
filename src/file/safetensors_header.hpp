// The JSON header of a safetensors file, turned into entries and made of them; nothing of a JSON tree is ever held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "seriatim/file.hpp"

namespace seriatim::file {

inline constexpr std::size_t kSafetensorsLengthBytes = 8;  // before the JSON

// The length of the JSON, from the file's first bytes (fewer than 8 only if the file has no more).
// Errors  kCorrupt, kUnsupported (the limit).
Result<std::size_t> safetensors_header_length(std::span<const std::byte> first, std::int64_t file_bytes,
                                              const SafetensorsLimits& limits);

struct SafetensorsHeader {
  Metadata metadata;
  std::vector<SafetensorsEntry> entries;
};

// Errors  kCorrupt, kUnsupported (a limit). What the entries say of each other and of the data is not judged here.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, const SafetensorsLimits& limits);

// Judges that: known dtypes, offsets that fit shapes, no overlap, no hole, the data covered exactly. Throws bad_alloc.
// Errors  kCorrupt, kUnsupported.
Status check_safetensors_entries(const std::vector<SafetensorsEntry>& entries, std::int64_t data_bytes);

// A tensor that a header is to list.
struct ListedTensor {
  std::string_view name;
  std::string_view dtype;  // one that the format knows
  std::span<const std::int64_t> shape;
};

// What precedes the data: the length, and the JSON of the tensors one behind the other in the order given, padded with
// spaces so that the data begin at a multiple of `alignment`. Throws bad_alloc.
// Errors  kInvalidArgument (the tensor's name, or "metadata"): a name twice or "__metadata__", text that is not UTF-8,
//         sizes past 64 bits, more than a reader admits.
Result<std::string> safetensors_header(const Metadata& metadata, std::span<const ListedTensor> tensors,
                                       std::int64_t alignment);

// Bits of one element of a dtype that the format knows; 0 for any other name.
std::int64_t safetensors_element_bits(std::string_view dtype);

// The format's name of a DType: "F32", "BF16", "F16", "I32", "I64".
std::string_view safetensors_dtype(DType dtype);

// The DType of a name, if this library has one.
std::optional<DType> dtype_of_safetensors(std::string_view dtype);

inline constexpr std::string_view kMetadataKey = "__metadata__";

}  // namespace seriatim::file
