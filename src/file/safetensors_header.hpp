// The JSON header of a safetensors file, turned into entries; nothing of a JSON tree is ever held.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "seriatim/file.hpp"

namespace seriatim::file {

struct SafetensorsHeader {
  Metadata metadata;
  std::vector<SafetensorsEntry> entries;
};

// Errors  kCorrupt, kUnsupported (a limit). What the entries say of each other and of the data is not judged here.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, const SafetensorsLimits& limits);

// Judges that: known dtypes, offsets that fit shapes, no overlap, no hole, the data covered exactly. Throws bad_alloc.
// Errors  kCorrupt, kUnsupported.
Status check_safetensors_entries(const std::vector<SafetensorsEntry>& entries, std::int64_t data_bytes);

// Bits of one element of a dtype that the format knows; 0 for any other name.
std::int64_t safetensors_element_bits(std::string_view dtype);

// The format's name of a DType: "F32", "BF16", "F16", "I32", "I64".
std::string_view safetensors_dtype(DType dtype);

// The DType of a name, if this library has one.
std::optional<DType> dtype_of_safetensors(std::string_view dtype);

inline constexpr std::string_view kMetadataKey = "__metadata__";

}  // namespace seriatim::file
