// Writing: the header's text, then the tensors' bytes, through a file that appears whole or not at all.

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/checked.hpp"
#include "base/format.hpp"
#include "file/bytes.hpp"
#include "file/dense.hpp"
#include "file/output_file.hpp"
#include "file/safetensors_header.hpp"
#include "seriatim/file.hpp"

namespace seriatim {

namespace {

constexpr std::int64_t kAlignment = 8;  // of the data

Status refuse(std::string_view argument, std::string_view why) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, why));
}

// A JSON string with its quotes; absent when the text is not UTF-8.
std::optional<std::string> json_text(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

Status append_metadata(std::string& json, const Metadata& metadata) {
  if (metadata.empty()) return {};
  if (std::ssize(metadata) > SafetensorsLimits{}.metadata_entries)
    return refuse("metadata", "more than a reader admits");
  json += formatted("\"{}\":{{", file::kMetadataKey);
  bool first = true;
  for (const auto& [key, value] : metadata) {
    const std::optional<std::string> key_text = json_text(key);
    const std::optional<std::string> value_text = json_text(value);
    if (!key_text || !value_text) return refuse("metadata", formatted("{} is not UTF-8", file::printable(key)));
    json += formatted("{}{}:{}", first ? "" : ",", *key_text, *value_text);
    first = false;
  }
  json += '}';
  return {};
}

// Appends one tensor's entry and moves `offset_bytes` behind its data.
Status append_tensor(std::string& json, const file::ListedTensor& listed, std::int64_t& offset_bytes) {
  const std::string shown = file::printable(listed.name);
  const std::optional<std::string> name = json_text(listed.name);
  if (!name) return refuse(shown, "the name is not UTF-8");
  const auto bytes = file::dense_bytes(listed.shape, file::safetensors_element_bits(listed.dtype));
  const std::optional<std::int64_t> end = checked_add(offset_bytes, bytes.value_or(-1));
  if (!bytes || !end) return refuse(shown, "the file would pass 64 bits");
  if (json.size() > 1) json += ',';
  json += formatted("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", *name, listed.dtype,
                    joined(listed.shape, ","), offset_bytes, *end);
  offset_bytes = *end;
  return {};
}

}  // namespace

Result<std::string> file::safetensors_header(const Metadata& metadata, std::span<const ListedTensor> tensors,
                                             std::int64_t alignment) {
  if (std::ssize(tensors) > SafetensorsLimits{}.tensors) return refuse("tensors", "more than a reader admits");
  std::string json = "{";
  Status status = append_metadata(json, metadata);
  if (!status.ok()) return status;
  std::set<std::string_view> names;
  std::int64_t offset_bytes = 0;
  for (const ListedTensor& listed : tensors) {
    if (listed.name == kMetadataKey) return refuse(listed.name, "is no name for a tensor");
    if (!names.insert(listed.name).second) return refuse(printable(listed.name), "is given twice");
    status = append_tensor(json, listed, offset_bytes);
    if (!status.ok()) return status;
  }
  json += '}';
  const auto unit = static_cast<std::size_t>(alignment);
  json.append((unit - (json.size() + kSafetensorsLengthBytes) % unit) % unit, ' ');
  if (std::ssize(json) > SafetensorsLimits{}.header_bytes) return refuse("metadata", "the header would be too long");
  const std::uint64_t length = json.size();
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

Status write_safetensors(const std::string& path, const Metadata& metadata, std::span<const NamedTensor> tensors) {
  return file::guarded([&]() -> Status {
    std::vector<file::ListedTensor> listed;
    for (const NamedTensor& named : tensors) {
      const ConstTensor& view = named.tensor;
      if (Status s = file::admit_view(view, file::printable(named.name)); !s.ok()) return s;
      listed.push_back({named.name, file::safetensors_dtype(view.dtype),
                        std::span(view.shape).first(static_cast<std::size_t>(view.rank))});
    }
    const Result<std::string> header = file::safetensors_header(metadata, listed, kAlignment);
    if (!header.ok()) return header.status();
    Result<file::OutputFile> out = file::OutputFile::create(path);
    if (!out.ok()) return out.status();
    Status status = out->write(file::bytes_of(*header));
    for (const NamedTensor& named : tensors) {
      if (!status.ok()) return status;
      status = file::for_each_run(named.tensor, [&](std::span<const std::byte> run) { return out->write(run); });
    }
    return status.ok() ? out->commit() : status;
  });
}

}  // namespace seriatim
