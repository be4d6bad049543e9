#include "file/safetensors_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "file/bytes.hpp"
#include "file/safetensors_header.hpp"

namespace seriatim::file {
namespace {

Status refusal(const std::string& path, std::string_view what) {
  return Status::error(Code::kIo, "file", formatted("{}: {}: {}", shown_path(path), what, std::strerror(errno)));
}

Status read_at(int fd, const std::string& path, std::int64_t at, std::span<std::byte> to) {
  constexpr std::size_t kLargestRead = std::size_t{1} << 30;
  while (!to.empty()) {
    const ssize_t got = ::pread(fd, to.data(), std::min(to.size(), kLargestRead), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refusal(path, "cannot be read");
    if (got == 0)
      return Status::error(Code::kIo, "file", formatted("{}: changed its length while it was read", shown_path(path)));
    to = to.subspan(static_cast<std::size_t>(got));
    at += got;
  }
  return {};
}

std::shared_ptr<const int> own(int fd) {
  return {new int(fd), [](const int* owned) {
            if (*owned >= 0) ::close(*owned);
            delete owned;
          }};
}

// The file's length.
Result<std::int64_t> examine(int fd, const std::string& path, const SafetensorsLimits& limits) {
  struct stat about{};
  if (::fstat(fd, &about) != 0) return refusal(path, "cannot be examined");
  if (!S_ISREG(about.st_mode))
    return Status::error(Code::kIo, "file", formatted("{}: is not a regular file", shown_path(path)));
  if (about.st_size > limits.file_bytes) {
    return Status::error(
        Code::kUnsupported, "file",
        formatted("{}: has {} bytes, the limit is {}", shown_path(path), about.st_size, limits.file_bytes));
  }
  return static_cast<std::int64_t>(about.st_size);
}

}  // namespace

Result<SafetensorsReader> SafetensorsReader::open(const std::string& path, const SafetensorsLimits& limits) {
  return guarded([&]() -> Result<SafetensorsReader> {
    SafetensorsReader out;
    out.path_ = path;
    // O_NONBLOCK: opening a pipe must fail below, not wait for its writer.
    out.fd_ = own(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (*out.fd_ < 0) return refusal(path, "cannot be opened");
    const auto size = examine(*out.fd_, path, limits);
    if (!size.ok()) return size.status();
    std::array<std::byte, 8> frame{};
    if (*size < std::ssize(frame))
      return Status::error(Code::kCorrupt, "header", "header: the file ends before the header's length");
    if (Status s = read_at(*out.fd_, path, 0, frame); !s.ok()) return s;
    const auto length = load_little<std::uint64_t>(frame);
    if (length > static_cast<std::uint64_t>(limits.header_bytes)) {
      return Status::error(Code::kUnsupported, "header",
                           formatted("header: claims {} bytes, the limit is {}", length, limits.header_bytes));
    }
    if (length > static_cast<std::uint64_t>(*size - 8)) {
      return Status::error(Code::kCorrupt, "header",
                           formatted("header: claims {} bytes, the file has {} left", length, *size - 8));
    }
    std::vector<std::byte> text(static_cast<std::size_t>(length));
    if (Status s = read_at(*out.fd_, path, 8, text); !s.ok()) return s;
    auto header = parse_safetensors_header(text_of(text), limits);
    if (!header.ok()) return header.status();
    out.data_begin_bytes_ = 8 + static_cast<std::int64_t>(length);
    if (Status s = check_safetensors_entries(header->entries, *size - out.data_begin_bytes_); !s.ok()) return s;
    out.metadata_ = std::move(header->metadata);
    out.entries_ = std::move(header->entries);
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
  return read_at(*fd_, path_, data_begin_bytes_ + entry.begin_bytes + offset_bytes, to);
}

}  // namespace seriatim::file
