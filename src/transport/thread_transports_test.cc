#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "seriatim/transport.hpp"
#include "transport/ranks_testing.hpp"

namespace seriatim {
namespace {

using std::chrono::milliseconds;
using transport_testing::on_ranks;

constexpr milliseconds kLong{20000};
constexpr milliseconds kShort{100};

std::span<const std::byte> bytes(const std::vector<int>& values) { return std::as_bytes(std::span(values)); }
std::span<std::byte> bytes(std::vector<int>& values) { return std::as_writable_bytes(std::span(values)); }

ThreadTransports made(int ranks, milliseconds timeout) {
  auto made = ThreadTransports::make(ranks, timeout);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *std::move(made);
}

TEST(ThreadTransports, GatherGivesEveryBlockInRankOrderOnEveryRank) {
  for (const int size : {1, 2, 3, 8}) {
    const ThreadTransports ranks = made(size, kLong);
    const auto answers = on_ranks(ranks, [&](const std::shared_ptr<Transport>& end) {
      for (int round = 0; round < 20; ++round) {
        const std::vector<int> mine{end->rank(), round};
        std::vector<int> all(2 * static_cast<std::size_t>(size), -1);
        if (Status s = end->all_gather(bytes(mine), bytes(all)); !s.ok()) return s;
        for (std::size_t rank = 0; rank < static_cast<std::size_t>(size); ++rank) {
          EXPECT_EQ(all[2 * rank], static_cast<int>(rank));
          EXPECT_EQ(all[2 * rank + 1], round);
        }
      }
      EXPECT_EQ(end->traffic().messages, 20 * (size - 1));
      EXPECT_EQ(end->traffic().bytes, 20 * 8 * (size - 1));
      return Status();
    });
    for (const Status& status : answers) EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(ThreadTransports, MessagesArriveInOrderAndSendersDoNotWait) {
  const ThreadTransports ranks = made(3, kLong);
  const auto answers = on_ranks(ranks, [&](const std::shared_ptr<Transport>& end) {
    const int next = (end->rank() + 1) % 3;
    const int previous = (end->rank() + 2) % 3;
    for (int i = 0; i < 50; ++i)  // all ranks send first
      if (Status s = end->send(next, bytes(std::vector<int>(static_cast<std::size_t>(i), i))); !s.ok()) return s;
    for (int i = 0; i < 50; ++i) {
      std::vector<int> got(static_cast<std::size_t>(i), -1);
      if (Status s = end->receive(previous, bytes(got)); !s.ok()) return s;
      EXPECT_EQ(got, std::vector<int>(static_cast<std::size_t>(i), i));
    }
    std::vector<int> told{end->rank() == 1 ? 42 : 0};
    if (Status s = end->broadcast(1, bytes(told)); !s.ok()) return s;
    EXPECT_EQ(told[0], 42);
    return Status();
  });
  for (const Status& status : answers) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(ThreadTransports, ABlockOfAnotherLengthIsToldToAllAndTheRanksStayInStep) {
  const ThreadTransports ranks = made(3, kLong);
  const auto answers = on_ranks(ranks, [&](const std::shared_ptr<Transport>& end) {
    std::vector<int> mine(end->rank() == 2 ? 3 : 1, 7);
    std::vector<int> all(mine.size() * 3, -1);
    const Status refused = end->all_gather(bytes(mine), bytes(all));
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_EQ(refused.place().index, end->rank() == 2 ? 0 : 2);
    EXPECT_EQ(all, std::vector<int>(all.size(), -1)) << "nothing is written";
    mine.assign(2, end->rank());
    all.assign(6, -1);
    if (Status s = end->all_gather(bytes(mine), bytes(all)); !s.ok()) return s;
    EXPECT_EQ(all, (std::vector<int>{0, 0, 1, 1, 2, 2}));
    return Status();
  });
  for (const Status& status : answers) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(ThreadTransports, SizesAndRanksThatDoNotFitAreRefused) {
  EXPECT_EQ(ThreadTransports::make(0, kLong).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ThreadTransports::make(2, milliseconds(0)).status().code(), Code::kInvalidArgument);
  const ThreadTransports ranks = made(2, kLong);
  const auto end = ranks.at(0);
  std::vector<int> block(2);
  std::vector<int> blocks(3);
  EXPECT_EQ(end->all_gather(bytes(block), bytes(blocks)).argument(), "blocks");
  EXPECT_EQ(end->send(0, bytes(block)).argument(), "to");
  EXPECT_EQ(end->send(2, bytes(block)).argument(), "to");
  EXPECT_EQ(end->receive(-1, bytes(block)).argument(), "from");
  EXPECT_EQ(end->broadcast(2, bytes(block)).argument(), "from");
  EXPECT_EQ(end->traffic().messages, 0);
}

TEST(ThreadTransports, ALateRankIsNamedAndTheTransportIsBrokenAfterwards) {
  const ThreadTransports ranks = made(2, kShort);
  const auto end = ranks.at(0);
  std::vector<int> got(1, -1);
  const auto started = std::chrono::steady_clock::now();
  const Status late = end->receive(1, bytes(got));
  EXPECT_GE(std::chrono::steady_clock::now() - started, kShort);
  EXPECT_EQ(late.code(), Code::kPeerLost);
  EXPECT_EQ(late.place().index, 1);
  EXPECT_EQ(end->send(1, bytes(got)).message(), late.message());
  EXPECT_EQ(got[0], -1);
  EXPECT_EQ(ranks.at(1)->receive(0, bytes(got)).code(), Code::kPeerLost) << "who gave up is gone for the others";
}

TEST(ThreadTransports, ARankThatFailsAtAnyMessageEndsEveryOtherRanksWork) {
  for (const auto fault : {ThreadTransports::Fault::kFail, ThreadTransports::Fault::kDrop}) {
    for (std::int64_t n = 0; n < 6; ++n) {
      ThreadTransports ranks = made(3, kShort);
      ranks.at_message(1, n, fault);
      std::array<int, 3> gathers{};
      const auto answers = on_ranks(ranks, [&](const std::shared_ptr<Transport>& end) {
        std::vector<int> all(3);
        for (int& done = gathers[static_cast<std::size_t>(end->rank())]; done < 5; ++done)
          if (Status s = end->all_gather(bytes({end->rank()}), bytes(all)); !s.ok()) return s;
        return Status();
      });
      for (const Status& status : answers) EXPECT_EQ(status.code(), Code::kPeerLost);
      for (const int done : gathers) EXPECT_LE(done, n / 2 + 1);
      EXPECT_GE(gathers[0], n / 2);
    }
  }
}

TEST(ThreadTransports, ALostRankEndsAWaitAtOnce) {
  ThreadTransports ranks = made(2, kLong);
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(20));
    ranks.lose(1);
  });
  std::vector<int> got(1);
  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(ranks.at(0)->receive(1, bytes(got)).code(), Code::kPeerLost);
  EXPECT_LT(std::chrono::steady_clock::now() - started, kLong / 2);
  EXPECT_EQ(ranks.at(1)->send(0, bytes(got)).code(), Code::kPeerLost);
  killer.join();
}

}  // namespace
}  // namespace seriatim
