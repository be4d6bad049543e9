#include "file/read_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/format.hpp"
#include "file/bytes.hpp"

namespace seriatim::file {

namespace {

constexpr std::align_val_t kAlignment{64};

struct Descriptor {
  int fd;
  explicit Descriptor(int opened) : fd(opened) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Status refusal(const std::string& path, std::string_view what, int error) {
  return Status::error(Code::kIo, "file", formatted("{}: {}: {}", shown_path(path), what, std::strerror(error)));
}

std::shared_ptr<std::byte> allocate(std::size_t size) {
  auto* memory = static_cast<std::byte*>(::operator new(std::max<std::size_t>(size, 1), kAlignment));
  return {memory, [](std::byte* p) { ::operator delete(p, kAlignment); }};
}

// Reads exactly `size` bytes and sees the end of the file right after them.
Status read_exactly(int fd, std::byte* to, std::size_t size, const std::string& path) {
  constexpr std::size_t kLargestRead = std::size_t{1} << 30;
  std::size_t done = 0;
  std::byte past{};
  while (true) {
    const bool full = done == size;
    const ssize_t got = ::read(fd, full ? &past : to + done, full ? 1 : std::min(size - done, kLargestRead));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refusal(path, "cannot be read", errno);
    if (full && got == 0) return {};
    if (full || got == 0) {
      return Status::error(Code::kIo, "file", formatted("{}: changed its length while it was read", shown_path(path)));
    }
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace

Result<OwnedBytes> read_file(const std::string& path, std::int64_t limit_bytes) {
  return guarded([&]() -> Result<OwnedBytes> {
    // O_NONBLOCK: opening a pipe must fail below, not wait for its writer.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.fd < 0) return refusal(path, "cannot be opened", errno);
    struct stat about{};
    if (::fstat(file.fd, &about) != 0) return refusal(path, "cannot be examined", errno);
    if (!S_ISREG(about.st_mode)) {
      return Status::error(Code::kIo, "file", formatted("{}: is not a regular file", shown_path(path)));
    }
    if (about.st_size > limit_bytes) {
      return Status::error(
          Code::kUnsupported, "file",
          formatted("{}: has {} bytes, the limit is {}", shown_path(path), about.st_size, limit_bytes));
    }
    const auto size = static_cast<std::size_t>(about.st_size);
    const std::shared_ptr<std::byte> memory = allocate(size);
    Status status = read_exactly(file.fd, memory.get(), size, path);
    if (!status.ok()) return status;
    return OwnedBytes{memory, size};
  });
}

}  // namespace seriatim::file
