#include "write_text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace seriatim::cli {
namespace {

Status failed(const std::string& path, int error) {
  return Status::error(Code::kIo, "file", fmt::format("{}: cannot be written: {}", path, std::strerror(error)));
}

// 0 or an errno.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(fd, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(done));
  }
  return ::fsync(fd) == 0 ? 0 : errno;
}

}  // namespace

Status write_text(const std::string& path, std::string_view text) {
  if (path == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) return failed("standard output", errno);
    return {};
  }
  const std::string draft = fmt::format("{}.tmp-{}", path, ::getpid());
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return failed(path, errno);
  int error = write_all(fd, text);
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(draft.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(draft.c_str());
  return failed(path, error);
}

}  // namespace seriatim::cli
