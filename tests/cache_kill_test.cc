// kill -9 at random moments during save: the file at the name is the old or the new one, whole, and what the killed
// process left behind goes with the next save.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "seriatim/cache_file.hpp"
#include "support/cache.hpp"
#include "support/file.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;
using file::Folder;
using file::slurp;

constexpr int kKills = 200;

std::unique_ptr<Cache> cache_of(TokenId first, std::int64_t tokens) {
  auto cache = make_cache(admit(small_options()), cache_options(4, 4096, 64));
  append(*cache, *cache->add(), ids(first, tokens));
  return cache;
}

TEST(CacheKilled, DuringSaveLeavesTheOldFileOrTheNewWhole) {
  const Folder folder;
  const std::string path = folder / "cache";
  const std::unique_ptr<Cache> caches[] = {cache_of(1, 2000), cache_of(9000, 1500)};
  ASSERT_TRUE(caches[1]->save(path).ok());
  const auto second = slurp(path);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(caches[0]->save(path).ok());
  const auto one_save = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  const auto first = slurp(path);
  std::mt19937 random(1);
  int firsts = 0;
  int seconds = 0;
  std::ptrdiff_t leftovers = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int i = kill_number;; ++i) {
        if (!caches[i % 2]->save(path).ok()) ::_exit(1);
      }
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds(random() % static_cast<std::uint64_t>(2 * one_save.count() + 1)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child's save failed";
    const auto now = slurp(path);
    firsts += now == first ? 1 : 0;
    seconds += now == second ? 1 : 0;
    ASSERT_EQ(firsts + seconds, kill_number + 1) << "neither file";
    leftovers = std::max(leftovers, std::distance(std::filesystem::directory_iterator(folder / "."), {}) - 1);
    ASSERT_LE(leftovers, 1) << "the next save has not cleaned up";
  }
  EXPECT_GT(firsts, 0);
  EXPECT_GT(seconds, 0);
  EXPECT_EQ(leftovers, 1) << "no kill hit a save, so nothing was shown";
  EXPECT_TRUE(verify_cache_file(path).ok());
  ASSERT_TRUE(caches[0]->save(path).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "."), {}), 1);
}

// The number in a name is some container's; a lock is the file's.
TEST(CacheKilled, OnlyLeftoversOfThisPathThatNobodyHasLockedAreRemoved) {
  const Folder folder;
  const auto cache = cache_of(1, 10);
  const std::vector<std::string> left{"cache.tmp-1-0", "cache.tmp-" + std::to_string(::getpid()) + "-4000000"};
  const std::vector<std::string> kept{"cache.tmp-7-0", "cache.tmp-7",    "cache.tmp-7-x",
                                      "other.tmp-7-0", "cache.tmp--1-0", "cache.tmp-7-"};
  for (const auto& list : {left, kept}) {
    for (const std::string& name : list) std::ofstream(folder / name) << "x";
  }
  const int locked = ::open((folder / "cache.tmp-7-0").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(locked, LOCK_EX), 0);
  ASSERT_TRUE(cache->save(folder / "cache").ok());
  ::close(locked);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / ".")) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  std::vector<std::string> expected = kept;
  expected.push_back("cache");
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names, expected);
}

}  // namespace
}  // namespace seriatim
