#include "file/safetensors_reader.hpp"

#include <algorithm>

#include "file/bytes.hpp"
#include "file/safetensors_header.hpp"

namespace seriatim::file {

Result<SafetensorsReader> SafetensorsReader::open(const std::string& path, const SafetensorsLimits& limits,
                                                  std::string* header) {
  return guarded([&]() -> Result<SafetensorsReader> {
    auto file = InputFile::open(path, limits.file_bytes);
    if (!file.ok()) return file.status();
    std::string text(std::min<std::size_t>(kSafetensorsLengthBytes, static_cast<std::size_t>(file->size())), '\0');
    const auto read_behind = [&](std::size_t known) {
      return file->read(static_cast<std::int64_t>(known), std::as_writable_bytes(std::span(text)).subspan(known));
    };
    if (Status s = read_behind(0); !s.ok()) return s;
    const auto length = safetensors_header_length(bytes_of(text), file->size(), limits);
    if (!length.ok()) return length.status();
    text.resize(kSafetensorsLengthBytes + *length);
    if (Status s = read_behind(kSafetensorsLengthBytes); !s.ok()) return s;
    auto parsed = parse_safetensors_header(std::string_view(text).substr(kSafetensorsLengthBytes), limits);
    if (!parsed.ok()) return parsed.status();
    SafetensorsReader out;
    out.data_begin_bytes_ = std::ssize(text);
    if (Status s = check_safetensors_entries(parsed->entries, file->size() - out.data_begin_bytes_); !s.ok()) return s;
    out.file_ = *std::move(file);
    out.metadata_ = std::move(parsed->metadata);
    out.entries_ = std::move(parsed->entries);
    if (header != nullptr) *header = std::move(text);
    return out;
  });
}

const SafetensorsEntry* SafetensorsReader::find(std::string_view name) const {
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [name](const SafetensorsEntry& entry) { return entry.name == name; });
  return at == entries_.end() ? nullptr : &*at;
}

Status SafetensorsReader::read(const SafetensorsEntry& entry, std::int64_t offset_bytes,
                               std::span<std::byte> to) const {
  return file_.read(begin_bytes(entry) + offset_bytes, to);
}

}  // namespace seriatim::file
