#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/format.hpp"
#include "cache_file/opened.hpp"
#include "file/bytes.hpp"

namespace seriatim {
namespace {

constexpr std::size_t kLargestRead = std::size_t{1} << 30;

Status io(std::string_view what) { return Status::error(Code::kIo, "file", formatted("file: {}", what)); }

}  // namespace

Result<InputFile> InputFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not keep us waiting
  if (fd < 0) return io(formatted("{}: cannot be opened: {}", file::shown_path(path), std::strerror(errno)));
  InputFile file(fd, 0);
  struct stat about = {};
  if (::fstat(fd, &about) != 0) return io(formatted("{}: {}", file::shown_path(path), std::strerror(errno)));
  if (!S_ISREG(about.st_mode)) return io(formatted("{}: is not a regular file", file::shown_path(path)));
  file.size_ = about.st_size;
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status InputFile::read(std::int64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd_, into.data(), std::min(into.size(), kLargestRead), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io(formatted("cannot be read: {}", std::strerror(errno)));
    if (got == 0) return io("it became shorter while it was read");
    into = into.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
  return {};
}

}  // namespace seriatim
