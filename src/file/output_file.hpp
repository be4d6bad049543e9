// Every file that the library writes: whole under its name, or not at all.
//
// The bytes go to a temporary file beside the target; commit() syncs it, renames it over the target and syncs the
// directory. Until the rename a reader sees the old file, from then on the new one, never a mixture. Symbolic links are
// followed, and a file that is replaced hands its mode on, and its owner and group where the system allows it.
// What is no regular file (a device, a FIFO) cannot be replaced by one: it is opened and written as the bytes come.
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

// The real calls. write() raises no signal: a reader that has gone is EPIPE, a limit on file sizes EFBIG.
FileCalls& system_file_calls();

// create, write any number of times, commit. Destroying it before commit() has succeeded removes the temporary file;
// the target is then as it was. After a failed write only destruction is left.
// Errors  kIo everywhere, with the path and the system's reason; kOutOfMemory; kInvalidArgument: a path that holds NUL.
// Threads one thread at a time; writers of one path must take turns (the last rename wins, whole).
class OutputFile {
 public:
  // Creates the temporary file, PATH.tmp-PROCESS-NUMBER, which it keeps locked, and removes those of writers of this
  // path that were killed: the ones that nobody has locked. `calls` must outlive it.
  // A FIFO is opened when a reader has it open, and refused when none comes within kReaderSeconds.
  // Errors  besides, a file that the caller may not write, though its directory would let it be replaced.
  static Result<OutputFile> create(const std::string& path, FileCalls& calls = system_file_calls());
  static constexpr int kReaderSeconds = 5;

  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept;
  ~OutputFile();

  Status write(std::span<const std::byte> bytes);

  // When the rename has happened and only the sync of the directory failed, the new file stays, and the error says so.
  Status commit();

 private:
  struct State;
  explicit OutputFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace seriatim::file
