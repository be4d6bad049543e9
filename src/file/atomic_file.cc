#include "file/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "file/bytes.hpp"

namespace seriatim::file {

int FileCalls::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
ssize_t FileCalls::write(int fd, const void* data, std::size_t bytes) { return ::write(fd, data, bytes); }
int FileCalls::fsync(int fd) { return ::fsync(fd); }
int FileCalls::close(int fd) { return ::close(fd); }
int FileCalls::rename(const char* from, const char* to) { return ::rename(from, to); }
int FileCalls::unlink(const char* path) { return ::unlink(path); }

FileCalls& system_file_calls() {
  static FileCalls calls;
  return calls;
}

namespace {

constexpr std::size_t kBufferBytes = 1 << 16;  // strided tensors arrive a few bytes at a time
constexpr std::size_t kLargestWrite = std::size_t{1} << 30;
constexpr int kNameAttempts = 100;

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status failure(const std::string& path, std::string_view what, int error) {
  return guarded([&] {
    return Status::error(Code::kIo, "file", formatted("{}: {}: {}", shown_path(path), what, std::strerror(error)));
  });
}

}  // namespace

struct AtomicFile::State {
  FileCalls& calls;
  std::string path;
  std::string temporary;
  std::vector<std::byte> buffer;  // not yet written
  int fd = -1;
  int directory = -1;
  bool exists = false;  // the temporary file
  bool failed = false;  // bytes are missing from it

  State(FileCalls& c, const std::string& p) : calls(c), path(p) { buffer.reserve(kBufferBytes); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ~State() {
    if (fd >= 0) calls.close(fd);
    if (exists) calls.unlink(temporary.c_str());
    if (directory >= 0) calls.close(directory);
  }

  Status open_temporary() {
    static std::atomic<unsigned> number{0};
    for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
      temporary = formatted("{}.tmp-{}-{}", path, ::getpid(), number.fetch_add(1));
      fd = calls.open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd >= 0) {
        exists = true;
        return {};
      }
      if (errno != EEXIST) break;  // a crashed process with our number may have left its file
    }
    return failure(path, "no temporary file can be made beside it", errno);
  }

  Status write_through(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = calls.write(fd, bytes.data(), std::min(bytes.size(), kLargestWrite));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) {
        failed = true;
        return failure(path, "cannot be written", wrote == 0 ? EIO : errno);
      }
      bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    }
    return {};
  }

  Status flush() {
    Status status = write_through(buffer);
    buffer.clear();
    return status;
  }
};

AtomicFile::AtomicFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
AtomicFile::AtomicFile(AtomicFile&&) noexcept = default;
AtomicFile& AtomicFile::operator=(AtomicFile&&) noexcept = default;
AtomicFile::~AtomicFile() = default;

Result<AtomicFile> AtomicFile::create(const std::string& path, FileCalls& calls) {
  return guarded([&]() -> Result<AtomicFile> {
    auto state = std::make_unique<State>(calls, path);
    // Opened first, so that a directory that cannot be synced is known before anything changes.
    state->directory = calls.open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (state->directory < 0) return failure(path, "its directory cannot be opened", errno);
    Status status = state->open_temporary();
    if (!status.ok()) return status;
    return AtomicFile(std::move(state));
  });
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  State& s = *state_;
  if (s.failed) return failure(s.path, "an earlier write failed", EIO);
  if (s.buffer.size() + bytes.size() > kBufferBytes) {
    Status status = s.flush();
    if (!status.ok()) return status;
  }
  if (bytes.size() >= kBufferBytes) return s.write_through(bytes);
  s.buffer.insert(s.buffer.end(), bytes.begin(), bytes.end());  // within what was reserved
  return {};
}

Status AtomicFile::commit() {
  State& s = *state_;
  if (s.failed || s.fd < 0) return failure(s.path, "an earlier write failed", EIO);
  Status status = s.flush();
  if (!status.ok()) return status;
  s.failed = true;  // until all has succeeded
  if (s.calls.fsync(s.fd) != 0) return failure(s.path, "cannot be synced", errno);
  if (s.calls.close(std::exchange(s.fd, -1)) != 0) return failure(s.path, "cannot be closed", errno);
  if (s.calls.rename(s.temporary.c_str(), s.path.c_str()) != 0) {
    return failure(s.path, "the temporary file cannot be renamed to it", errno);
  }
  s.exists = false;
  // Some file systems cannot sync a directory and say EINVAL; there is nothing more to be done there.
  if (s.calls.fsync(s.directory) != 0 && errno != EINVAL) {
    return failure(s.path, "is written, but its directory cannot be synced", errno);
  }
  s.failed = false;
  return {};
}

}  // namespace seriatim::file
