#include "file/output_file.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "support/file.hpp"

namespace seriatim::file {
namespace {

enum class Call { kNone, kOpenDirectory, kOpenFile, kWrite, kFsyncFile, kClose, kRename, kFsyncDirectory, kUnlink };

// Passes every call on, except that the `nth` of one kind fails with `error`.
class FailingCalls : public FileCalls {
 public:
  explicit FailingCalls(Call kind = Call::kNone, int error = EIO, int nth = 1)
      : kind_(kind), error_(error), nth_(nth) {}

  int fired() const { return fired_; }
  int writes() const { return writes_; }
  std::size_t write_limit = SIZE_MAX;  // a short write, as on a nearly full disk or after a signal

  int open(const char* path, int flags, mode_t mode) override {
    const bool directory = std::filesystem::is_directory(path);
    if (fails(directory ? Call::kOpenDirectory : Call::kOpenFile)) return -1;
    const int fd = FileCalls::open(path, flags, mode);
    if (directory) directory_ = fd;
    return fd;
  }
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    ++writes_;
    return fails(Call::kWrite) ? -1 : FileCalls::write(fd, data, std::min(bytes, write_limit));
  }
  int fsync(int fd) override {
    return fails(fd == directory_ ? Call::kFsyncDirectory : Call::kFsyncFile) ? -1 : FileCalls::fsync(fd);
  }
  int close(int fd) override {
    const int rc = FileCalls::close(fd);  // POSIX: the descriptor is gone even when close reports an error
    return fails(Call::kClose) ? -1 : rc;
  }
  int rename(const char* from, const char* to) override {
    return fails(Call::kRename) ? -1 : FileCalls::rename(from, to);
  }
  int unlink(const char* path) override { return fails(Call::kUnlink) ? -1 : FileCalls::unlink(path); }

 private:
  bool fails(Call kind) {
    if (kind != kind_ || ++seen_ != nth_) return false;
    ++fired_;
    errno = error_;
    return true;
  }

  Call kind_;
  int error_;
  int nth_;
  int seen_ = 0;
  int fired_ = 0;
  int writes_ = 0;
  int directory_ = -1;
};

Status write_whole(const std::string& path, const Bytes& bytes, FileCalls& calls) {
  Result<OutputFile> file = OutputFile::create(path, calls);
  if (!file.ok()) return file.status();
  const std::span<const std::byte> all(bytes);
  Status status = file->write(all.first(all.size() / 2));
  if (status.ok()) status = file->write(all.subspan(all.size() / 2));
  return status.ok() ? file->commit() : status;
}

const Bytes kOld = to_bytes("what was there before");

Bytes large() {
  Bytes bytes(300'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 2654435761U >> 24U);
  return bytes;
}

TEST(OutputFile, WritesANewFileAndReplacesAnOldOne) {
  const Folder folder;
  for (const Bytes& bytes : {to_bytes("first"), large(), Bytes{}}) {
    ASSERT_TRUE(write_whole(folder / "file", bytes, system_file_calls()).ok());
    EXPECT_EQ(slurp(folder / "file"), bytes);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
  }
}

TEST(OutputFile, NothingShowsUnderTheNameBeforeCommit) {
  const Folder folder;
  ASSERT_TRUE(write_whole(folder / "file", kOld, system_file_calls()).ok());
  {
    Result<OutputFile> file = OutputFile::create(folder / "file");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write(large()).ok());
    EXPECT_EQ(folder.names().size(), 2U);
    EXPECT_EQ(slurp(folder / "file"), kOld);
  }  // given up
  EXPECT_EQ(slurp(folder / "file"), kOld);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

TEST(OutputFile, EveryFailingCallLeavesTheOldFileAndNoOther) {
  for (const Call call :
       {Call::kOpenDirectory, Call::kOpenFile, Call::kWrite, Call::kFsyncFile, Call::kClose, Call::kRename}) {
    for (const Bytes& bytes : {to_bytes("short"), large()}) {
      SCOPED_TRACE(testing::Message() << "call " << static_cast<int>(call) << ", " << bytes.size() << " bytes");
      const Folder folder;
      ASSERT_TRUE(write_whole(folder / "file", kOld, system_file_calls()).ok());
      FailingCalls calls(call, ENOSPC);
      const Status status = write_whole(folder / "file", bytes, calls);
      EXPECT_EQ(calls.fired(), 1);
      EXPECT_EQ(status.code(), Code::kIo);
      EXPECT_NE(status.message().find(std::strerror(ENOSPC)), std::string_view::npos) << status.message();
      EXPECT_NE(status.message().find("file"), std::string_view::npos);
      EXPECT_EQ(slurp(folder / "file"), kOld);
      EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
    }
  }
}

TEST(OutputFile, ALaterFailingWriteLeavesTheOldFileToo) {
  const Folder folder;
  ASSERT_TRUE(write_whole(folder / "file", kOld, system_file_calls()).ok());
  for (int nth = 1;; ++nth) {
    FailingCalls calls(Call::kWrite, EIO, nth);
    calls.write_limit = 50'000;
    const Status status = write_whole(folder / "file", large(), calls);
    if (calls.fired() == 0) {
      EXPECT_TRUE(status.ok());
      EXPECT_EQ(nth, 7);  // six writes of 50,000 bytes
      break;
    }
    ASSERT_EQ(status.code(), Code::kIo);
    ASSERT_EQ(slurp(folder / "file"), kOld);
  }
  EXPECT_EQ(slurp(folder / "file"), large());
}

TEST(OutputFile, GoesOnAfterShortAndInterruptedWrites) {
  const Folder folder;
  FailingCalls calls(Call::kWrite, EINTR, 2);
  calls.write_limit = 7'001;
  ASSERT_TRUE(write_whole(folder / "file", large(), calls).ok());
  EXPECT_EQ(calls.fired(), 1);
  EXPECT_GT(calls.writes(), 42);
  EXPECT_EQ(slurp(folder / "file"), large());
}

TEST(OutputFile, AFailedWriteCannotBeCommitted) {
  const Folder folder;
  FailingCalls calls(Call::kWrite);
  Result<OutputFile> file = OutputFile::create(folder / "file", calls);
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->write(large()).ok());
  EXPECT_EQ(file->write(kOld).code(), Code::kIo);
  EXPECT_EQ(file->commit().code(), Code::kIo);
  EXPECT_FALSE(std::filesystem::exists(folder / "file"));
}

TEST(OutputFile, AnUnsyncedDirectoryIsReportedThoughTheNewFileIsThere) {
  const Folder folder;
  ASSERT_TRUE(write_whole(folder / "file", kOld, system_file_calls()).ok());
  FailingCalls calls(Call::kFsyncDirectory, EIO);
  const Status status = write_whole(folder / "file", large(), calls);
  EXPECT_EQ(calls.fired(), 1);
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.message().find("is written"), std::string_view::npos);
  EXPECT_EQ(slurp(folder / "file"), large());
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
  FailingCalls unable(Call::kFsyncDirectory, EINVAL);  // a file system that syncs no directories
  EXPECT_TRUE(write_whole(folder / "file", kOld, unable).ok());
  EXPECT_EQ(unable.fired(), 1);
}

TEST(OutputFile, ALeftoverTemporaryFileIsNeitherUsedNorRemoved) {
  const Folder folder;
  FailingCalls calls(Call::kOpenFile, EEXIST);
  ASSERT_TRUE(write_whole(folder / "file", kOld, calls).ok());
  EXPECT_EQ(calls.fired(), 1);
  EXPECT_EQ(slurp(folder / "file"), kOld);
}

TEST(OutputFile, RefusesDirectoriesThatAreNotThereAndTargetsThatAreOnes) {
  const Folder folder;
  EXPECT_EQ(OutputFile::create(folder / "absent/file").status().code(), Code::kIo);
  std::filesystem::create_directory(folder / "target");
  EXPECT_EQ(write_whole(folder / "target", kOld, system_file_calls()).code(), Code::kIo);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"target"});
}

}  // namespace
}  // namespace seriatim::file
