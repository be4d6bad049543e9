// What other software does to a process in which the library works (docs/hostile.md).
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <clocale>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <vector>

#include "seriatim/cache_file.hpp"
#include "seriatim/file.hpp"
#include "support/folder.hpp"
#include "support/path.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define SERIATIM_UNDER_ASAN 1  // gcc
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SERIATIM_UNDER_ASAN 1  // clang
#endif
#endif

namespace seriatim {
namespace {

using namespace testing;

constexpr std::int64_t kTokens = 200;

Answers answers_of(const Story& story, Executor& executor) {
  HeldStory held(story, kTokens);
  const Snapshot snapshot = held.snapshot();
  Answers answers(story.geometry, kTokens);
  Engine engine = engine_for(story.geometry, kTokens, executor);
  EXPECT_TRUE(ask(snapshot.layer(0), story, every_token(0, kTokens), engine, answers).ok());
  return answers;
}

// The exit status of a process in which `body` ran; 128 and the signal's number where one ended it.
int in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // a child that hangs ends
    ::_exit(body() && !::testing::Test::HasFailure() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Two threads with stacks of so many bytes.
class NarrowThreads final : public Executor {
 public:
  explicit NarrowThreads(std::size_t stack_bytes) : stack_bytes_(stack_bytes) {}
  int concurrency() const override { return 2; }
  void run(std::int64_t units, Task& task) override {
    std::atomic<std::int64_t> next{0};
    struct Work {
      std::atomic<std::int64_t>& next;
      std::int64_t units;
      Task& task;
      int worker;
    };
    Work works[] = {{next, units, task, 0}, {next, units, task, 1}};
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, stack_bytes_);
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) {
      const auto drain = [](void* data) -> void* {
        Work& work = *static_cast<Work*>(data);
        for (std::int64_t unit = work.next++; unit < work.units; unit = work.next++) work.task.run(unit, work.worker);
        return nullptr;
      };
      ASSERT_EQ(::pthread_create(&threads[i], &attributes, drain, &works[i]), 0);
    }
    for (const pthread_t thread : threads) ::pthread_join(thread, nullptr);
    ::pthread_attr_destroy(&attributes);
  }

 private:
  std::size_t stack_bytes_;
};

TEST(Hostile, ThreadsWithSmallStacksGiveTheSameBits) {
  const Story story(small_path(), kTokens, 1);
  NarrowThreads narrow(std::size_t{128} << 10);
  EXPECT_TRUE(same_answers(answers_of(story, narrow), answers_of(story, serial_executor())));
}

TEST(Hostile, AChildAfterThreadsWorksWithAnExecutorOfItsOwnAndWithItsParents) {
  const Story story(small_path(), kTokens, 2);
  const Answers right = answers_of(story, serial_executor());
  const auto parents = make_executor(2);
  EXPECT_TRUE(same_answers(answers_of(story, *parents), right));
  EXPECT_EQ(in_child([&] { return bool(same_answers(answers_of(story, serial_executor()), right)); }), 0);
  EXPECT_EQ(in_child([&] { return bool(same_answers(answers_of(story, *parents), right)); }), 0);
}

// A process that may have no more memory hears of it as a Status.
TEST(Hostile, ALimitOnAddressSpaceIsOutOfMemory) {
#if defined(SERIATIM_UNDER_ASAN)
  GTEST_SKIP() << "the sanitizer's own address space passes any limit";
#endif
  const Story story(small_path(), kTokens, 3);
  HeldStory held(story, kTokens);
  EXPECT_EQ(in_child([&] {
              const rlimit limit{std::size_t{1} << 20,
                                 std::size_t{1} << 20};  // less than it has: nothing more is given
              ::setrlimit(RLIMIT_AS, &limit);
              CacheOptions options;
              options.capacity_tokens = std::int64_t{1} << 20;
              options.reserve = true;
              return Cache::create(story.geometry, options).status().code() == Code::kOutOfMemory;
            }),
            0);
}

void ignore_signal(int) {}

TEST(Hostile, SignalsInTheMiddleOfReadingAndWritingChangeNothing) {
  const Story story(small_path(), kTokens, 4);
  HeldStory held(story, kTokens);
  const file::Folder folder;
  struct sigaction quiet = {};
  quiet.sa_handler = ignore_signal;  // without SA_RESTART
  struct sigaction former = {};
  ::sigaction(SIGALRM, &quiet, &former);
  const itimerval often{{0, 200}, {0, 200}};
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(held.cache().save(folder / "cache").ok());
    EXPECT_TRUE(verify_cache_file(folder / "cache").ok());
  }
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &former, nullptr);
}

// A caller's own exception passes through, and what it interrupted can be done again.
TEST(Hostile, AnExceptionOfTheCallersExecutorLeavesEngineAndCacheAsTheyWere) {
  class Throwing final : public Executor {
   public:
    int concurrency() const override { return 2; }
    void run(std::int64_t units, Task& task) override {
      if (broken) throw std::runtime_error("the engine's own");
      for (std::int64_t unit = 0; unit < units; ++unit) task.run(unit, static_cast<int>(unit % 2));
    }
    bool broken = false;
  } executor;
  GeometryOptions options = small_path();
  options.query_heads = 16;  // less work than that would not leave the caller's thread
  const Story story(options, kTokens, 5);
  const Answers right = answers_of(story, serial_executor());
  HeldStory held(story, kTokens);
  const Snapshot snapshot = held.snapshot();
  const LayerView layer = snapshot.layer(0);
  Answers answers(story.geometry, kTokens);
  Engine engine = engine_for(story.geometry, kTokens, executor);
  const Asked asked(story, every_token(0, kTokens));
  const auto attend = [&] {
    return engine.attend(layer, asked.for_attend(), answers.rows_from(0), answers.output.writable(),
                         answers.lse.writable());
  };
  ASSERT_TRUE(engine.plan(layer, asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0)).ok());
  executor.broken = true;
  EXPECT_THROW((void)attend(), std::runtime_error);
  executor.broken = false;
  ASSERT_TRUE(attend().ok());
  EXPECT_TRUE(same_answers(answers, right));
}

TEST(Hostile, FilesOfProcAndFifosAreNoInputs) {
  const file::Folder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const std::string& path :
       {std::string("/proc/self/maps"), std::string("/dev/zero"), folder / "fifo", folder / "."}) {
    EXPECT_FALSE(SafetensorsFile::open(path).ok()) << path;
    EXPECT_FALSE(NpyArray::open(path).ok()) << path;
    EXPECT_FALSE(read_cache_file(path).ok()) << path;
  }
}

TEST(Hostile, APathWithNulIsRefused) {
  const file::Folder folder;
  const std::string path = folder / std::string("cut\0off", 7);
  EXPECT_EQ(SafetensorsFile::open(path).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(NpyArray::open(path).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(read_cache_file(path).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace seriatim
