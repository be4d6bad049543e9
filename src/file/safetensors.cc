// Reading: the frame of the file, what the header claims of the data, and views.

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/format.hpp"
#include "file/bytes.hpp"
#include "file/dense.hpp"
#include "file/input_file.hpp"
#include "file/safetensors_header.hpp"
#include "seriatim/file.hpp"

namespace seriatim {

namespace {

Status corrupt(std::string_view argument, std::string_view message) {
  return Status::error(Code::kCorrupt, argument, formatted("{}: {}", argument, message));
}

// One tensor on its own: a known dtype, offsets in order and as far apart as the shape says.
Status check_extent(const SafetensorsEntry& entry) {
  const std::string name = file::printable(entry.name);
  const std::int64_t bits = file::safetensors_element_bits(entry.dtype);
  if (bits == 0) {
    return Status::error(Code::kUnsupported, name,
                         formatted("{}: dtype {} is not known", name, file::printable(entry.dtype)));
  }
  if (entry.begin_bytes > entry.end_bytes) {
    return corrupt(name, formatted("data_offsets {} and {} are reversed", entry.begin_bytes, entry.end_bytes));
  }
  const std::optional<std::int64_t> bytes = file::dense_bytes(entry.shape, bits);
  if (!bytes) return corrupt(name, "shape and dtype make no whole number of bytes within 64 bits");
  if (*bytes != entry.end_bytes - entry.begin_bytes) {
    return corrupt(name, formatted("data_offsets hold {} bytes, shape and dtype need {}",
                                   entry.end_bytes - entry.begin_bytes, *bytes));
  }
  return {};
}

// All tensors together: in the order of their offsets each begins where the one before ended, up to the end of the
// data.
Status check_coverage(const std::vector<SafetensorsEntry>& entries, std::int64_t data_bytes) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(entries[a].begin_bytes, entries[a].end_bytes) <
           std::pair(entries[b].begin_bytes, entries[b].end_bytes);
  });
  std::int64_t covered = 0;
  for (const std::size_t i : order) {
    const std::string name = file::printable(entries[i].name);
    if (entries[i].end_bytes > data_bytes) {
      return corrupt(name, formatted("ends at byte {} of {} data bytes", entries[i].end_bytes, data_bytes));
    }
    if (entries[i].begin_bytes != covered) {
      const char* what = entries[i].begin_bytes < covered ? "overlaps another" : "leaves a hole before it";
      return corrupt(name, formatted("{}: begins at {}, not {}", what, entries[i].begin_bytes, covered));
    }
    covered = entries[i].end_bytes;
  }
  if (covered != data_bytes) {
    return corrupt("data", formatted("{} bytes lie behind the last tensor", data_bytes - covered));
  }
  return {};
}

}  // namespace

Result<std::size_t> file::safetensors_header_length(std::span<const std::byte> first, std::int64_t file_bytes,
                                                    const SafetensorsLimits& limits) {
  if (first.size() < kSafetensorsLengthBytes) return corrupt("header", "the file ends before the header's length");
  const auto length = load_little<std::uint64_t>(first);
  if (length > static_cast<std::uint64_t>(limits.header_bytes)) {
    return Status::error(Code::kUnsupported, "header",
                         formatted("header: claims {} bytes, the limit is {}", length, limits.header_bytes));
  }
  const std::int64_t left = file_bytes - static_cast<std::int64_t>(kSafetensorsLengthBytes);
  if (length > static_cast<std::uint64_t>(left)) {
    return corrupt("header", formatted("claims {} bytes, the file has {} left", length, left));
  }
  return static_cast<std::size_t>(length);
}

Status file::check_safetensors_entries(const std::vector<SafetensorsEntry>& entries, std::int64_t data_bytes) {
  for (const SafetensorsEntry& entry : entries) {
    if (Status status = check_extent(entry); !status.ok()) return status;
  }
  return check_coverage(entries, data_bytes);
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, const SafetensorsLimits& limits) {
  return file::guarded([&]() -> Result<SafetensorsFile> {
    const auto length = file::safetensors_header_length(bytes, std::ssize(bytes), limits);
    if (!length.ok()) return length.status();
    const auto json = bytes.subspan(file::kSafetensorsLengthBytes, *length);
    Result<file::SafetensorsHeader> header = file::parse_safetensors_header(file::text_of(json), limits);
    if (!header.ok()) return header.status();
    SafetensorsFile out;
    out.data_ = bytes.subspan(file::kSafetensorsLengthBytes + json.size());
    Status status = file::check_safetensors_entries(header->entries, std::ssize(out.data_));
    if (!status.ok()) return status;
    out.metadata_ = std::move(header->metadata);
    out.entries_ = std::move(header->entries);
    for (std::size_t i = 0; i < out.entries_.size(); ++i) {
      out.names_.push_back(out.entries_[i].name);
      out.index_.emplace(out.entries_[i].name, i);
    }
    return out;
  });
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path, const SafetensorsLimits& limits) {
  Result<file::OwnedBytes> owned = file::read_file(path, limits.file_bytes);
  if (!owned.ok()) return owned.status();
  Result<SafetensorsFile> out = parse(owned->bytes(), limits);
  if (out.ok()) out->memory_ = std::move(owned->memory);
  return out;
}

Result<ConstTensor> SafetensorsFile::find(std::string_view name) const {
  return file::guarded([&]() -> Result<ConstTensor> {
    const std::string shown = file::printable(name);
    const auto found = index_.find(name);
    if (found == index_.end()) {
      return Status::error(Code::kNotFound, shown, formatted("{}: is not in the file", shown));
    }
    const SafetensorsEntry& entry = entries_[found->second];
    const std::optional<DType> dtype = file::dtype_of_safetensors(entry.dtype);
    if (!dtype) {
      return Status::error(Code::kUnsupported, shown, formatted("{}: dtype {} has no view", shown, entry.dtype));
    }
    if (entry.shape.size() > kMaxRank) {
      return Status::error(Code::kUnsupported, shown,
                           formatted("{}: rank {} is above {}", shown, entry.shape.size(), kMaxRank));
    }
    return file::dense_view_of(data_.data() + entry.begin_bytes, *dtype, entry.shape);
  });
}

}  // namespace seriatim
