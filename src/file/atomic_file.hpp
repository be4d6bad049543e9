// A file that appears whole under its name or not at all.
//
// The bytes go to a temporary file in the same directory; commit() syncs it, renames it over the target and syncs the
// directory. Until the rename a reader sees the old file, from then on the new one, never a mixture.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "seriatim/status.hpp"

namespace seriatim::file {

// The system calls that the writer makes, each as in POSIX: -1 and errno on failure. Replaceable, so that a test can
// make any one of them fail.
class FileCalls {
 public:
  virtual ~FileCalls() = default;
  virtual int open(const char* path, int flags, mode_t mode);
  virtual ssize_t write(int fd, const void* data, std::size_t bytes);
  virtual int fsync(int fd);
  virtual int close(int fd);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);
};

// The real calls.
FileCalls& system_file_calls();

// create, write any number of times, commit. Destroying it before commit() has succeeded removes the temporary file;
// the target is then as it was. After a failed write only destruction is left.
// Errors  kIo everywhere, with the path and the system's reason; kOutOfMemory.
// Threads one thread at a time; writers of one path must take turns (the last rename wins, whole).
class AtomicFile {
 public:
  // Creates the temporary file, PATH.tmp-PROCESS-NUMBER, with the process's default mode. `calls` must outlive it.
  static Result<AtomicFile> create(const std::string& path, FileCalls& calls = system_file_calls());

  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) noexcept;
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);

  // When the rename has happened and only the sync of the directory failed, the new file stays, and the error says so.
  Status commit();

 private:
  struct State;
  explicit AtomicFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace seriatim::file
