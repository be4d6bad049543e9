// Writing: the header's text, then the tensors' bytes, through a file that appears whole or not at all.

#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/checked.hpp"
#include "base/format.hpp"
#include "file/atomic_file.hpp"
#include "file/bytes.hpp"
#include "file/dense.hpp"
#include "file/safetensors_header.hpp"
#include "seriatim/file.hpp"

namespace seriatim {

namespace {

Status refuse(std::string_view argument, std::string_view why) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, why));
}

// A JSON string with its quotes; absent when the text is not UTF-8.
std::optional<std::string> quoted(const std::string& text) {
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
    const std::optional<std::string> key_text = quoted(key);
    const std::optional<std::string> value_text = quoted(value);
    if (!key_text || !value_text) return refuse("metadata", formatted("{} is not UTF-8", file::printable(key)));
    json += formatted("{}{}:{}", first ? "" : ",", *key_text, *value_text);
    first = false;
  }
  json += '}';
  return {};
}

// Appends one tensor's entry and moves `offset_bytes` behind its data.
Status append_tensor(std::string& json, const NamedTensor& named, std::int64_t& offset_bytes) {
  const std::string shown = file::printable(named.name);
  const ConstTensor& view = named.tensor;
  Status status = file::admit_view(view, shown);
  if (!status.ok()) return status;
  const std::optional<std::string> name = quoted(named.name);
  if (!name) return refuse(shown, "the name is not UTF-8");
  const auto shape = std::span(view.shape).first(static_cast<std::size_t>(view.rank));
  const std::optional<std::int64_t> bytes = file::dense_bytes(shape, 8 * dtype_bytes(view.dtype));
  const std::optional<std::int64_t> end = checked_add(offset_bytes, bytes.value_or(-1));
  if (!bytes || !end) return refuse(shown, "the file would pass 64 bits");
  if (json.size() > 1) json += ',';
  json += formatted("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", *name,
                    file::safetensors_dtype(view.dtype), joined(shape, ","), offset_bytes, *end);
  offset_bytes = *end;
  return {};
}

// The header's text, padded so that the data begin at a multiple of 8.
Result<std::string> header_text(const Metadata& metadata, std::span<const NamedTensor> tensors) {
  if (std::ssize(tensors) > SafetensorsLimits{}.tensors) return refuse("tensors", "more than a reader admits");
  std::string json = "{";
  Status status = append_metadata(json, metadata);
  if (!status.ok()) return status;
  std::set<std::string_view> names;
  std::int64_t offset_bytes = 0;
  for (const NamedTensor& named : tensors) {
    if (named.name == file::kMetadataKey) return refuse(named.name, "is no name for a tensor");
    if (!names.insert(named.name).second) return refuse(file::printable(named.name), "is given twice");
    status = append_tensor(json, named, offset_bytes);
    if (!status.ok()) return status;
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  if (std::ssize(json) > SafetensorsLimits{}.header_bytes) return refuse("metadata", "the header would be too long");
  return json;
}

}  // namespace

Status write_safetensors(const std::string& path, const Metadata& metadata, std::span<const NamedTensor> tensors) {
  return file::guarded([&]() -> Status {
    const Result<std::string> json = header_text(metadata, tensors);
    if (!json.ok()) return json.status();
    Result<file::AtomicFile> out = file::AtomicFile::create(path);
    if (!out.ok()) return out.status();
    const std::uint64_t length = json->size();
    Status status = out->write(std::as_bytes(std::span(&length, 1)));
    if (status.ok()) status = out->write(file::bytes_of(*json));
    for (const NamedTensor& named : tensors) {
      if (!status.ok()) return status;
      status = file::for_each_run(named.tensor, [&](std::span<const std::byte> run) { return out->write(run); });
    }
    return status.ok() ? out->commit() : status;
  });
}

}  // namespace seriatim
