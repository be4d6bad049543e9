#include "file/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/format.hpp"
#include "file/bytes.hpp"

namespace seriatim::file {

namespace {

// Takes the parser's events one by one and knows at each point of the fixed form what may come next:
//
//     { "__metadata__": { KEY: STRING, ... }, NAME: { "dtype": STRING, "shape": [N, ...], "data_offsets": [N, N] }, ...
//     }
//
// Anything else stops the parser at once, so neither depth nor size of a hostile header is ever followed.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(const SafetensorsLimits& limits, SafetensorsHeader& header) : limits_(limits), header_(header) {}

  Status take_status() { return std::move(status_); }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is no 64-bit integer");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ != At::kShape && at_ != At::kOffsets) return unexpected("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return unexpected("a number past 2^63 - 1");
    }
    const auto integer = static_cast<std::int64_t>(value);
    if (at_ == At::kShape) {
      if (std::ssize(entry_.shape) >= limits_.rank) {
        return stop(Code::kUnsupported, formatted("shape has more than {} extents", limits_.rank));
      }
      entry_.shape.push_back(integer);
      return true;
    }
    if (offset_count_ == 2) return stop(Code::kCorrupt, "data_offsets has more than two numbers");
    (offset_count_++ == 0 ? entry_.begin_bytes : entry_.end_bytes) = integer;
    return true;
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadataValue) {
      header_.metadata[key_] = std::move(text);
      at_ = At::kMetadata;
      return true;
    }
    if (at_ != At::kDtype) return unexpected("a string");
    entry_.dtype = std::move(text);
    at_ = At::kEntry;
    return true;
  }

  bool start_object(std::size_t) override {
    if (at_ == At::kStart) return go(At::kTop);
    if (at_ != At::kTopValue) return unexpected("an object");
    if (key_ == kMetadataKey) return go(At::kMetadata);
    entry_ = {};
    entry_.name = key_;
    fields_ = {};
    offset_count_ = 0;
    return go(At::kEntry);
  }

  bool key(string_t& text) override {
    if (at_ == At::kTop) return top_key(text);
    if (at_ == At::kMetadata) return metadata_key(text);
    return entry_key(text);
  }

  bool end_object() override {
    if (at_ == At::kTop) return go(At::kEnd);
    if (at_ == At::kMetadata) return go(At::kTop);
    for (std::size_t field = 0; field < kFields.size(); ++field) {
      if (!fields_[field]) return stop(Code::kCorrupt, formatted("has no {}", kFields[field]));
    }
    header_.entries.push_back(std::move(entry_));
    return go(At::kTop);
  }

  bool start_array(std::size_t) override {
    if (at_ == At::kShapeValue) return go(At::kShape);
    if (at_ == At::kOffsetsValue) return go(At::kOffsets);
    return unexpected("an array");
  }

  bool end_array() override {
    if (at_ == At::kOffsets && offset_count_ != 2) {
      return stop(Code::kCorrupt, formatted("data_offsets has {} numbers, not two", offset_count_));
    }
    return go(At::kEntry);
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    status_ = Status::error(Code::kCorrupt, "header", formatted("header: is not valid JSON at byte {}", position));
    return false;
  }

 private:
  // What the next event must belong to. The ...Value states follow a key.
  enum class At {
    kStart,
    kTop,
    kTopValue,
    kMetadata,
    kMetadataValue,
    kEntry,
    kDtype,
    kShapeValue,
    kShape,
    kOffsetsValue,
    kOffsets,
    kEnd
  };
  static constexpr std::array<std::string_view, 3> kFields{"dtype", "shape", "data_offsets"};

  bool go(At next) {
    at_ = next;
    return true;
  }

  bool top_key(string_t& text) {
    if (!names_.insert(text).second) {
      return stop_at(printable(text), Code::kCorrupt, "stands in the header twice");
    }
    if (text != kMetadataKey && std::ssize(header_.entries) >= limits_.tensors) {
      return stop_at("header", Code::kUnsupported, formatted("lists more than {} tensors", limits_.tensors));
    }
    key_ = std::move(text);
    return go(At::kTopValue);
  }

  bool metadata_key(string_t& text) {
    if (header_.metadata.contains(text)) {
      return stop_at("header", Code::kCorrupt, formatted("metadata key {} stands twice", printable(text)));
    }
    if (std::ssize(header_.metadata) >= limits_.metadata_entries) {
      return stop_at("header", Code::kUnsupported, formatted("has more than {} metadata", limits_.metadata_entries));
    }
    key_ = std::move(text);
    return go(At::kMetadataValue);
  }

  bool entry_key(const string_t& text) {
    const auto found = std::find(kFields.begin(), kFields.end(), text);
    if (found == kFields.end()) return stop(Code::kCorrupt, formatted("has an unknown key {}", printable(text)));
    const auto field = static_cast<std::size_t>(found - kFields.begin());
    if (std::exchange(fields_[field], true)) return stop(Code::kCorrupt, formatted("has {} twice", text));
    constexpr std::array<At, 3> kNext{At::kDtype, At::kShapeValue, At::kOffsetsValue};
    return go(kNext[field]);
  }

  bool in_entry() const { return at_ >= At::kEntry && at_ <= At::kOffsets; }

  bool stop_at(std::string_view argument, Code code, std::string_view message) {
    status_ = Status::error(code, argument, formatted("{}: {}", argument, message));
    return false;
  }

  bool stop(Code code, std::string_view message) {
    return stop_at(in_entry() ? printable(entry_.name) : "header", code, message);
  }

  // The value `what` came where the form has something else.
  bool unexpected(std::string_view what) {
    switch (at_) {
      case At::kTopValue:
        return stop_at(printable(key_), Code::kCorrupt, formatted("is {}, not an object", what));
      case At::kMetadataValue:
        return stop(Code::kCorrupt, formatted("metadata {} is {}, not a string", printable(key_), what));
      case At::kDtype:
        return stop(Code::kCorrupt, formatted("dtype is {}, not a string", what));
      case At::kShapeValue:
        return stop(Code::kCorrupt, formatted("shape is {}, not an array", what));
      case At::kShape:
        return stop(Code::kCorrupt, formatted("shape holds {}", what));
      case At::kOffsetsValue:
        return stop(Code::kCorrupt, formatted("data_offsets is {}, not an array", what));
      case At::kOffsets:
        return stop(Code::kCorrupt, formatted("data_offsets holds {}", what));
      default:
        return stop(Code::kCorrupt, formatted("is {}, not an object", what));
    }
  }

  const SafetensorsLimits& limits_;
  SafetensorsHeader& header_;
  Status status_;
  At at_ = At::kStart;
  std::set<std::string> names_;   // of the top level
  std::string key_;               // the last key of the top level or of the metadata
  SafetensorsEntry entry_;        // being filled
  std::array<bool, 3> fields_{};  // which of kFields it has
  int offset_count_ = 0;
};

struct FormatDtype {
  std::string_view name;
  std::int64_t bits;
};

// Source: huggingface/safetensors:safetensors/src/tensor.rs (Dtype).
constexpr std::array kFormatDtypes{
    FormatDtype{"BOOL", 8},    FormatDtype{"F4", 4},          FormatDtype{"F6_E2M3", 6},     FormatDtype{"F6_E3M2", 6},
    FormatDtype{"U8", 8},      FormatDtype{"I8", 8},          FormatDtype{"F8_E5M2", 8},     FormatDtype{"F8_E4M3", 8},
    FormatDtype{"F8_E8M0", 8}, FormatDtype{"F8_E4M3FNUZ", 8}, FormatDtype{"F8_E5M2FNUZ", 8}, FormatDtype{"I16", 16},
    FormatDtype{"U16", 16},    FormatDtype{"F16", 16},        FormatDtype{"BF16", 16},       FormatDtype{"I32", 32},
    FormatDtype{"U32", 32},    FormatDtype{"F32", 32},        FormatDtype{"C64", 64},        FormatDtype{"F64", 64},
    FormatDtype{"I64", 64},    FormatDtype{"U64", 64},
};

constexpr std::array kOwnDtypes{DType::kF32, DType::kBf16, DType::kF16, DType::kI32, DType::kI64};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, const SafetensorsLimits& limits) {
  const auto corrupt = [](std::string_view message) { return Status::error(Code::kCorrupt, "header", message); };
  if (json.empty() || json.front() != '{') return corrupt("header: does not begin with '{'");
  // The JSON parser takes a zero byte for the end of its input and would not look at what follows.
  if (json.find('\0') != std::string_view::npos) return corrupt("header: has a zero byte");
  SafetensorsHeader header;
  HeaderEvents events(limits, header);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &events)) return events.take_status();
  return header;
}

std::int64_t safetensors_element_bits(std::string_view dtype) {
  const auto* found = std::find_if(kFormatDtypes.begin(), kFormatDtypes.end(),
                                   [&](const FormatDtype& known) { return known.name == dtype; });
  return found == kFormatDtypes.end() ? 0 : found->bits;
}

std::string_view safetensors_dtype(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBf16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
  }
  return "";
}

std::optional<DType> dtype_of_safetensors(std::string_view dtype) {
  for (const DType own : kOwnDtypes) {
    if (safetensors_dtype(own) == dtype) return own;
  }
  return std::nullopt;
}

}  // namespace seriatim::file
