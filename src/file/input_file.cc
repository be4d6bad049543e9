#include "file/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/format.hpp"
#include "file/bytes.hpp"
#include "file/path.hpp"

namespace seriatim::file {
namespace {

constexpr std::size_t kLargestRead = std::size_t{1} << 30;
constexpr std::align_val_t kAlignment{64};

Status refusal(const std::string& path, std::string_view what) {
  return Status::error(Code::kIo, "file", formatted("{}: {}", shown_path(path), what));
}

Status refusal(const std::string& path, std::string_view what, int error) {
  return refusal(path, formatted("{}: {}", what, std::strerror(error)));
}

std::shared_ptr<const int> own(int fd) {
  return {new int(fd), [](const int* owned) {
            if (*owned >= 0) ::close(*owned);
            delete owned;
          }};
}

// How many bytes were read: fewer than `to` holds only where the file ends.
Result<std::size_t> read_up_to(int fd, const std::string& path, std::int64_t offset, std::span<std::byte> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::pread(fd, to.data() + done, std::min(to.size() - done, kLargestRead),
                                offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refusal(path, "cannot be read", errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

std::shared_ptr<std::byte> allocate(std::size_t size) {
  auto* memory = static_cast<std::byte*>(::operator new(std::max<std::size_t>(size, 1), kAlignment));
  return {memory, [](std::byte* p) { ::operator delete(p, kAlignment); }};
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& path, std::int64_t limit_bytes) {
  if (Status s = admit_path(path); !s.ok()) return s;
  InputFile file;
  file.path_ = path;
  file.fd_ = own(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not keep us waiting
  if (*file.fd_ < 0) return refusal(path, "cannot be opened", errno);
  struct stat about{};
  if (::fstat(*file.fd_, &about) != 0) return refusal(path, "cannot be examined", errno);
  if (!S_ISREG(about.st_mode)) return refusal(path, "is not a regular file");
  if (about.st_size > limit_bytes) {
    return Status::error(Code::kUnsupported, "file",
                         formatted("{}: has {} bytes, the limit is {}", shown_path(path), about.st_size, limit_bytes));
  }
  file.size_ = about.st_size;
  return file;
}

Status InputFile::read(std::int64_t offset_bytes, std::span<std::byte> to) const {
  const auto got = read_up_to(*fd_, path_, offset_bytes, to);
  if (!got.ok()) return got.status();
  return *got == to.size() ? Status() : refusal(path_, "became shorter while it was read");
}

Result<OwnedBytes> read_file(const std::string& path, std::int64_t limit_bytes) {
  return guarded([&]() -> Result<OwnedBytes> {
    const auto file = InputFile::open(path, limit_bytes);
    if (!file.ok()) return file.status();
    const auto size = static_cast<std::size_t>(file->size());
    const std::shared_ptr<std::byte> memory = allocate(size);
    if (Status s = file->read(0, {memory.get(), size}); !s.ok()) return s;
    std::byte past{};
    const auto more = read_up_to(file->descriptor(), path, file->size(), std::span(&past, 1));
    if (!more.ok()) return more.status();
    if (*more != 0) return refusal(path, "became longer while it was read");
    return OwnedBytes{memory, size};
  });
}

}  // namespace seriatim::file
