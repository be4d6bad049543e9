// What stands at an output's name stays what it is: links, devices, FIFOs, modes and owners.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "file/output_file.hpp"
#include "seriatim/file.hpp"
#include "support/file.hpp"

namespace seriatim::file {
namespace {

const Bytes kOld = to_bytes("what was there before");
const Bytes kNew = to_bytes("what is there now");

struct stat about(const std::string& path) {
  struct stat found{};
  EXPECT_EQ(::lstat(path.c_str(), &found), 0) << path;
  return found;
}

mode_t mode_of(const std::string& path) { return about(path).st_mode & 07777; }

void put(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

Bytes many() { return Bytes(300'000, std::byte{'x'}); }

// Runs `body` in a process of its own, whose limits and descriptors it may change, and gives its exit status.
int in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Output, FollowsLinksToFilesThatAreThereOrNotYet) {
  const Folder folder;
  std::filesystem::create_directory(folder / "other");
  put(folder / "target", kOld);
  ASSERT_EQ(::symlink("target", (folder / "relative").c_str()), 0);
  ASSERT_EQ(::symlink((folder / "relative").c_str(), (folder / "absolute").c_str()), 0);
  ASSERT_EQ(::symlink("other/made", (folder / "dangling").c_str()), 0);
  for (const auto& [link, target] :
       {std::pair("relative", "target"), {"absolute", "target"}, {"dangling", "other/made"}}) {
    ASSERT_TRUE(write_file(folder / link, kNew).ok()) << link;
    EXPECT_TRUE(S_ISLNK(about(folder / link).st_mode)) << link;
    EXPECT_EQ(slurp(folder / target), kNew) << link;
    put(folder / target, kOld);
  }
  EXPECT_EQ(folder.names().size(), 5U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "other"), {}), 1);
  ASSERT_EQ(::symlink("loop", (folder / "loop").c_str()), 0);
  EXPECT_EQ(write_file(folder / "loop", kNew).code(), Code::kIo);
}

TEST(Output, MayHaveTheLongestNameThereIs) {
  const Folder folder;
  const std::string name(255, 'n');
  put(folder / (name.substr(0, 200) + ".tmp-1-0"), kOld);  // what a killed writer left
  ASSERT_TRUE(write_file(folder / name, kNew).ok());
  EXPECT_EQ(slurp(folder / name), kNew);
  EXPECT_EQ(folder.names(), std::vector<std::string>{name});
  EXPECT_EQ(write_file(folder / (name + 'n'), kNew).code(), Code::kIo);
}

TEST(Output, AFileThatIsReplacedKeepsItsMode) {
  const Folder folder;
  for (const mode_t mode : {0600U, 0640U, 0606U, 0755U, 0644U}) {
    put(folder / "file", kOld);
    ASSERT_EQ(::chmod((folder / "file").c_str(), mode), 0);
    ASSERT_TRUE(write_file(folder / "file", kNew).ok());
    EXPECT_EQ(mode_of(folder / "file"), mode);
    EXPECT_EQ(slurp(folder / "file"), kNew);
  }
}

TEST(Output, APrivateFileIsPrivateWhileItIsWritten) {
  const Folder folder;
  put(folder / "file", kOld);
  ASSERT_EQ(::chmod((folder / "file").c_str(), 0600), 0);
  const auto out = OutputFile::create(folder / "file");
  ASSERT_TRUE(out.ok());
  ASSERT_EQ(folder.names().size(), 2U);
  for (const std::string& name : folder.names()) EXPECT_EQ(mode_of(folder / name), 0600U) << name;
}

TEST(Output, KeepsOwnerAndGroupWhereTheSystemAllowsIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give files away";
  const Folder folder;
  put(folder / "file", kOld);
  ASSERT_EQ(::chown((folder / "file").c_str(), 12345, 23456), 0);
  ASSERT_EQ(::chmod((folder / "file").c_str(), 0640), 0);
  ASSERT_TRUE(write_file(folder / "file", kNew).ok());
  EXPECT_EQ(about(folder / "file").st_uid, 12345U);
  EXPECT_EQ(about(folder / "file").st_gid, 23456U);
  EXPECT_EQ(mode_of(folder / "file"), 0640U);
}

TEST(Output, NewFilesHaveWhatTheUmaskLeaves) {
  const Folder folder;
  const mode_t former = ::umask(027);
  EXPECT_TRUE(write_file(folder / "file", kNew).ok());
  ::umask(former);
  EXPECT_EQ(mode_of(folder / "file"), 0640U);
}

TEST(Output, DevicesAreWrittenInPlace) {
  const Folder folder;
  if (::mknod((folder / "null").c_str(), S_IFCHR | 0666, ::makedev(1, 3)) != 0 ||
      ::mknod((folder / "full").c_str(), S_IFCHR | 0666, ::makedev(1, 7)) != 0)
    GTEST_SKIP() << "this user may make no devices";
  const int opens = ::open((folder / "null").c_str(), O_WRONLY);
  if (opens < 0) GTEST_SKIP() << "devices cannot be opened on this file system";
  ::close(opens);
  EXPECT_TRUE(write_file(folder / "null", many()).ok());
  EXPECT_EQ(write_file(folder / "full", kNew).code(), Code::kIo);
  for (const char* name : {"null", "full"}) EXPECT_TRUE(S_ISCHR(about(folder / name).st_mode)) << name;
  EXPECT_EQ(folder.names().size(), 2U);
}

TEST(Output, AFifoIsWrittenForItsReader) {
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  Bytes read;
  std::thread reader([&] { read = slurp(folder / "fifo"); });
  EXPECT_TRUE(write_file(folder / "fifo", many()).ok());
  reader.join();
  EXPECT_EQ(read, many());
  EXPECT_TRUE(S_ISFIFO(about(folder / "fifo").st_mode));
}

TEST(Output, AFifoThatNobodyReadsOrWhoseReaderGoesIsAnErrorAndNoSignal) {
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  const Status unread = write_file(folder / "fifo", kNew);
  EXPECT_EQ(unread.code(), Code::kIo);
  EXPECT_NE(unread.message().find("nobody reads it"), std::string_view::npos) << unread.message();
  const int reader = ::open((folder / "fifo").c_str(), O_RDONLY | O_NONBLOCK);
  auto out = OutputFile::create(folder / "fifo");
  ASSERT_TRUE(out.ok());
  ::close(reader);
  EXPECT_EQ(out->write(many()).code(), Code::kIo);  // SIGPIPE would have ended the test
  EXPECT_TRUE(S_ISFIFO(about(folder / "fifo").st_mode));
}

TEST(Output, ALimitOnFileSizesIsAnErrorAndNoSignal) {
  const Folder folder;
  put(folder / "file", kOld);
  EXPECT_EQ(in_child([&] {
              const rlimit limit{100'000, 100'000};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              return write_file(folder / "file", many()).code() == Code::kIo;
            }),
            0);
  EXPECT_EQ(slurp(folder / "file"), kOld);
  EXPECT_EQ(folder.names().size(), 1U);
}

// Software that was started without standard output prints into the first descriptor that is opened.
TEST(Output, IsNeverOneOfTheStandardDescriptors) {
  const Folder folder;
  EXPECT_EQ(in_child([&] {
              for (const int fd : {0, 1, 2}) ::close(fd);
              auto out = OutputFile::create(folder / "file");
              const bool free = ::write(1, "noise", 5) < 0 && ::write(2, "noise", 5) < 0;
              return free && out.ok() && out->write(kNew).ok() && out->commit().ok();
            }),
            0);
  EXPECT_EQ(slurp(folder / "file"), kNew);
}

TEST(Output, OfAnOpenDescriptorIsWrittenInPlace) {
  const Folder folder;
  put(folder / "file", many());
  const ino_t before = about(folder / "file").st_ino;
  const int fd = ::open((folder / "file").c_str(), O_WRONLY);
  ASSERT_TRUE(write_file("/proc/self/fd/" + std::to_string(fd), kNew).ok());
  ::close(fd);
  EXPECT_EQ(slurp(folder / "file"), kNew);
  EXPECT_EQ(about(folder / "file").st_ino, before);
}

TEST(Output, IsRefusedBeforehandWithTheSameWords) {
  const Folder folder;
  std::filesystem::create_directory(folder / "folder");
  put(folder / "file", kOld);
  ASSERT_EQ(::symlink("loop", (folder / "loop").c_str()), 0);
  std::vector<std::string> refused{folder / "folder", folder / "absent/file", folder / "file/below", folder / "loop",
                                   ""};
  refused.push_back(folder / std::string("cut\0off", 7));
  if (::geteuid() != 0) {
    put(folder / "read-only", kOld);
    ASSERT_EQ(::chmod((folder / "read-only").c_str(), 0444), 0);
    refused.push_back(folder / "read-only");
  }
  const auto before = folder.names();
  for (const std::string& path : refused) {
    const Status status = check_output(path);
    EXPECT_FALSE(status.ok()) << path;
    EXPECT_EQ(write_file(path, kNew).message(), status.message()) << path;
  }
  for (const std::string& path : {folder / "file", folder / "new"}) EXPECT_TRUE(check_output(path).ok()) << path;
  EXPECT_EQ(folder.names(), before);
  EXPECT_EQ(slurp(folder / "file"), kOld);
}

}  // namespace
}  // namespace seriatim::file
