// Every system call of a save fails once in turn: the file is the old one or the new one, and nothing else is left.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "cache_file/save.hpp"
#include "support/cache_world.hpp"
#include "support/file.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;
using file::Folder;
using file::slurp;

// One call in turn fails, or does less than it was asked, or is interrupted.
class FailingCalls final : public file::FileCalls {
 public:
  enum class Kind { kFail, kShort, kInterrupt };
  FailingCalls(Kind kind, std::int64_t first) : kind_(kind), left_(first) {}

  int open(const char* path, int flags, mode_t mode) override {
    return fails() ? -1 : FileCalls::open(path, flags, mode);
  }
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    if (kind_ == Kind::kShort && bytes > 1 && left_-- == 0) {
      fired = true;
      return FileCalls::write(fd, data, bytes / 2);
    }
    if (kind_ == Kind::kInterrupt && left_-- == 0) {
      fired = true;
      errno = EINTR;
      return -1;
    }
    return fails() ? -1 : FileCalls::write(fd, data, bytes);
  }
  int close(int fd) override {  // the system has taken it all the same
    const bool failed = fails();
    harmless = failed && renamed;  // of the directory, when all is done
    const int result = FileCalls::close(fd);
    if (failed) errno = EIO;
    return failed ? -1 : result;
  }
  int fsync(int fd) override { return fails() ? -1 : FileCalls::fsync(fd); }
  int rename(const char* from, const char* to) override {
    if (fails()) return -1;
    renamed = true;
    return FileCalls::rename(from, to);
  }

  bool fired = false;
  bool renamed = false;
  bool harmless = false;

 private:
  bool fails() {
    if (kind_ != Kind::kFail || left_-- != 0) return false;
    fired = true;
    errno = ENOSPC;
    return true;
  }
  const Kind kind_;
  std::int64_t left_;
};

TEST(CacheFaults, AnyFailedWriteSyncOrRenameLeavesTheOldFileOrTheNew) {
  const Folder folder;
  const std::string path = folder / "cache";
  World first;
  World second;
  append(*second.cache, second.a, ids(900, 77));
  ASSERT_TRUE(second.cache->save(folder / "second").ok());
  const auto new_bytes = slurp(folder / "second");
  std::filesystem::remove(folder / "second");
  ASSERT_TRUE(first.cache->save(path).ok());
  const auto old_bytes = slurp(path);
  ASSERT_NE(old_bytes, new_bytes);
  for (const auto kind : {FailingCalls::Kind::kFail, FailingCalls::Kind::kShort, FailingCalls::Kind::kInterrupt}) {
    std::int64_t faults = 0;
    for (;; ++faults) {
      FailingCalls calls(kind, faults);
      const Status status = save_cache(*second.cache, path, calls);
      if (!calls.fired) {
        EXPECT_TRUE(status.ok());
        break;
      }
      EXPECT_EQ(status.ok(), kind != FailingCalls::Kind::kFail || calls.harmless) << faults;
      EXPECT_EQ(status.code(), status.ok() ? Code::kOk : Code::kIo);
      EXPECT_EQ(slurp(path), calls.renamed ? new_bytes : old_bytes) << faults;
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "."), {}), 1)
          << "a temporary file has stayed";
      ASSERT_TRUE(first.cache->save(path).ok());
    }
    EXPECT_GT(faults, kind == FailingCalls::Kind::kFail ? 6 : 1);
    RecordProperty("system calls, kind " + std::to_string(static_cast<int>(kind)), static_cast<int>(faults));
    EXPECT_EQ(slurp(path), new_bytes);
    ASSERT_TRUE(first.cache->save(path).ok());
  }
}

// The names of the calls in the order in which they were made, many writes as one.
class RecordedCalls final : public file::FileCalls {
 public:
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    if (!order.ends_with("write ")) order += "write ";
    return FileCalls::write(fd, data, bytes);
  }
  int fsync(int fd) override {
    order += "fsync ";
    return FileCalls::fsync(fd);
  }
  int rename(const char* from, const char* to) override {
    order += "rename ";
    return FileCalls::rename(from, to);
  }
  std::string order;
};

TEST(CacheFaults, TheFileIsFlushedBeforeItIsRenamedAndTheDirectoryAfterwards) {
  const Folder folder;
  World world;
  RecordedCalls calls;
  ASSERT_TRUE(save_cache(*world.cache, folder / "cache", calls).ok());
  EXPECT_EQ(calls.order, "write fsync rename fsync ");
}

}  // namespace
}  // namespace seriatim
