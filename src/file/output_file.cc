#include "file/output_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "file/bytes.hpp"
#include "file/output_target.hpp"
#include "seriatim/file.hpp"

namespace seriatim::file {
namespace {

constexpr std::size_t kBufferBytes = 1 << 16;  // strided tensors arrive a few bytes at a time
constexpr std::size_t kLargestWrite = std::size_t{1} << 30;
constexpr int kNameAttempts = 100;

// Holds back the two signals by which a write would end the process, on this thread, and swallows what came meanwhile.
class SignalsHeld {
 public:
  SignalsHeld() {
    ::sigemptyset(&ours_);
    ::sigaddset(&ours_, SIGPIPE);
    ::sigaddset(&ours_, SIGXFSZ);
    sigset_t pending;
    ::sigpending(&pending);
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (::sigismember(&pending, signal) == 1) ::sigdelset(&ours_, signal);  // somebody else's, for when it is let in
    }
    ::pthread_sigmask(SIG_BLOCK, &ours_, &former_);
  }
  ~SignalsHeld() {
    const int error = errno;
    const timespec now{};
    while (::sigtimedwait(&ours_, nullptr, &now) > 0) {
    }
    ::pthread_sigmask(SIG_SETMASK, &former_, nullptr);
    errno = error;
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t ours_{};
  sigset_t former_{};
};

// The owner and group where the system allows it, and the mode. Whoever is not given the file gets no more of it than
// everybody: the group's part is then cut to the others'.
bool take_over(int fd, const struct stat& from) {
  mode_t mode = from.st_mode & 07777;
  struct stat made{};
  if (::fstat(fd, &made) != 0) return false;
  if (made.st_gid != from.st_gid && ::fchown(fd, static_cast<uid_t>(-1), from.st_gid) != 0)
    mode &= ~static_cast<mode_t>(S_ISUID | S_ISGID | S_IRWXG) | ((mode & S_IRWXO) << 3);
  if (made.st_uid != from.st_uid && ::fchown(fd, from.st_uid, static_cast<gid_t>(-1)) != 0)
    mode &= ~static_cast<mode_t>(S_ISUID | S_ISGID);
  return ::fchmod(fd, mode) == 0;
}

}  // namespace

int FileCalls::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
ssize_t FileCalls::write(int fd, const void* data, std::size_t bytes) {
  const SignalsHeld held;
  return ::write(fd, data, bytes);
}
int FileCalls::fsync(int fd) { return ::fsync(fd); }
int FileCalls::close(int fd) { return ::close(fd); }
int FileCalls::rename(const char* from, const char* to) { return ::rename(from, to); }
int FileCalls::unlink(const char* path) { return ::unlink(path); }

FileCalls& system_file_calls() {
  static FileCalls calls;
  return calls;
}

struct OutputFile::State {
  FileCalls& calls;
  std::string path;  // as it was given, for messages
  OutputTarget target;
  std::string temporary;
  std::vector<std::byte> buffer;  // not yet written
  int fd = -1;
  int lock = -1;  // the temporary file's, which outlasts fd until the rename
  int directory = -1;
  bool exists = false;  // the temporary file
  bool failed = false;  // bytes are missing from it

  State(FileCalls& c, const std::string& p, OutputTarget t) : calls(c), path(p), target(std::move(t)) {
    buffer.reserve(kBufferBytes);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ~State() {
    if (fd >= 0) calls.close(fd);
    if (exists) calls.unlink(temporary.c_str());
    if (lock >= 0) ::close(lock);
    if (directory >= 0) calls.close(directory);
  }

  // Never one of the standard three, into which other software of the process may print although they were closed.
  int open(const char* name, int flags, mode_t mode) {
    const int opened = calls.open(name, flags, mode);
    if (opened < 0 || opened > STDERR_FILENO) return opened;
    const int higher = ::fcntl(opened, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int error = errno;
    ::close(opened);
    errno = error;
    return higher;
  }

  // Opened first, so that a directory that cannot be synced is known before anything changes.
  Status open_directory() {
    directory = open(directory_of(target.path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return directory < 0 ? output_failure(path, "its directory cannot be opened", errno) : Status();
  }

  Status open_temporary() {
    static std::atomic<unsigned> number{0};
    // What replaces a file is at no moment readable by more than its owner.
    const mode_t mode = target.exists ? 0600 : 0666;
    for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
      temporary = formatted("{}{}-{}", temporary_stem(target.path), ::getpid(), number.fetch_add(1));
      fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
      if (fd < 0 && errno == EEXIST) continue;  // another container's process of our number
      if (fd < 0) break;
      exists = true;
      if (!lock_temporary()) {
        calls.close(std::exchange(fd, -1));
        continue;
      }
      if (!target.exists || take_over(fd, target.about)) return {};
      break;
    }
    return output_failure(path, "no temporary file can be made beside it", errno);
  }

  // False when another writer took it for a leftover and removed it before it was locked.
  bool lock_temporary() {
    lock = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (lock >= 0) ::flock(lock, LOCK_EX | LOCK_NB);  // a file system without locks has no removal either
    struct stat about{};
    if (::fstat(fd, &about) != 0 || about.st_nlink > 0) return true;
    exists = false;
    if (lock >= 0) ::close(std::exchange(lock, -1));
    return false;
  }

  Status open_in_place() {
    const int flags = O_WRONLY | O_NOCTTY | O_CLOEXEC | (S_ISREG(target.about.st_mode) ? O_TRUNC : O_NONBLOCK);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(kReaderSeconds);
    while ((fd = open(path.c_str(), flags, 0)) < 0 && errno == ENXIO && S_ISFIFO(target.about.st_mode) &&
           std::chrono::steady_clock::now() < until) {
      const timespec pause{0, 10'000'000};
      ::nanosleep(&pause, nullptr);
    }
    if (fd < 0 && errno == ENXIO && S_ISFIFO(target.about.st_mode))
      return output_failure(path, "nobody reads it", ENXIO);
    if (fd < 0) return output_failure(path, "cannot be written", errno);
    const int modes = ::fcntl(fd, F_GETFL);
    if (modes >= 0) ::fcntl(fd, F_SETFL, modes & ~O_NONBLOCK);
    return {};
  }

  Status write_through(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = calls.write(fd, bytes.data(), std::min(bytes.size(), kLargestWrite));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) {
        failed = true;
        return output_failure(path, "cannot be written", wrote == 0 ? EIO : errno);
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

  // What is no file on a disk says EINVAL, or what a read-only or special file system says.
  Status sync() {
    if (calls.fsync(fd) == 0) return {};
    if (target.in_place && (errno == EINVAL || errno == EROFS || errno == ENOTSUP)) return {};
    return output_failure(path, "cannot be synced", errno);
  }
};

OutputFile::OutputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

Result<OutputFile> OutputFile::create(const std::string& path, FileCalls& calls) {
  return guarded([&]() -> Result<OutputFile> {
    auto target = find_output(path);
    if (!target.ok()) return target.status();
    auto state = std::make_unique<State>(calls, path, *std::move(target));
    if (state->target.in_place) {
      if (Status s = state->open_in_place(); !s.ok()) return s;
      return OutputFile(std::move(state));
    }
    if (Status s = state->open_directory(); !s.ok()) return s;
    remove_leftovers(state->target.path);
    if (Status s = state->open_temporary(); !s.ok()) return s;
    return OutputFile(std::move(state));
  });
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  State& s = *state_;
  if (s.failed) return output_failure(s.path, "an earlier write failed", EIO);
  if (s.buffer.size() + bytes.size() > kBufferBytes) {
    Status status = s.flush();
    if (!status.ok()) return status;
  }
  if (bytes.size() >= kBufferBytes) return s.write_through(bytes);
  s.buffer.insert(s.buffer.end(), bytes.begin(), bytes.end());  // within what was reserved
  return {};
}

Status OutputFile::commit() {
  State& s = *state_;
  if (s.failed || s.fd < 0) return output_failure(s.path, "an earlier write failed", EIO);
  if (Status status = s.flush(); !status.ok()) return status;
  s.failed = true;  // until all has succeeded
  if (Status status = s.sync(); !status.ok()) return status;
  if (s.calls.close(std::exchange(s.fd, -1)) != 0) return output_failure(s.path, "cannot be closed", errno);
  if (s.target.in_place) return {};
  if (s.calls.rename(s.temporary.c_str(), s.target.path.c_str()) != 0) {
    return output_failure(s.path, "the temporary file cannot be renamed to it", errno);
  }
  s.exists = false;
  // Some file systems cannot sync a directory and say EINVAL; there is nothing more to be done there.
  if (s.calls.fsync(s.directory) != 0 && errno != EINVAL) {
    return output_failure(s.path, "is written, but its directory cannot be synced", errno);
  }
  return {};
}

}  // namespace seriatim::file

namespace seriatim {

Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  return file::guarded([&]() -> Status {
    auto out = file::OutputFile::create(path);
    if (!out.ok()) return out.status();
    if (Status s = out->write(bytes); !s.ok()) return s;
    return out->commit();
  });
}

}  // namespace seriatim
