#include "seriatim/group.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "transport/ranks_testing.hpp"

namespace seriatim {
namespace {

using transport_testing::on_ranks;

constexpr std::chrono::milliseconds kLong{20000};

std::vector<Status> in_group(int size, const std::function<Status(Group&)>& work) {
  auto ranks = ThreadTransports::make(size, kLong);
  EXPECT_TRUE(ranks.ok());
  return on_ranks(*ranks, [&](const std::shared_ptr<Transport>& end) {
    auto group = Group::meet(end, Call("test"));
    if (!group.ok()) return group.status();
    return work(*group);
  });
}

// Every rank answers this.
void expect_all(const std::vector<Status>& answers, Code code, std::string_view argument, std::string_view message) {
  ASSERT_FALSE(answers.empty());
  for (const Status& status : answers) {
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.argument(), argument);
    EXPECT_EQ(status.message(), message);
  }
}

TEST(Group, BlocksOfRanksThatAgreeAreGatheredInOneRound) {
  const auto answers = in_group(3, [](Group& group) {
    const Traffic before = group.transport().traffic();
    const std::array<int, 2> mine{group.rank(), 5};
    std::array<int, 6> all{};
    Status s = group.gather(Call("plan").with("queries", 4), {}, std::as_bytes(std::span(mine)),
                            std::as_writable_bytes(std::span(all)));
    EXPECT_EQ(all, (std::array<int, 6>{0, 5, 1, 5, 2, 5}));
    EXPECT_EQ(group.transport().traffic().messages - before.messages, 2);
    EXPECT_EQ(group.transport().traffic().bytes - before.bytes, 2 * (Group::kHeaderBytes + 8));
    return s;
  });
  for (const Status& status : answers) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Group, AnotherCallIsNamedOnEveryRankAndTheGroupGoesOn) {
  std::vector<Status> after(3);
  const auto answers = in_group(3, [&](Group& group) {
    Status s = group.agree(Call(group.rank() == 1 ? "append" : "plan"));
    after[static_cast<std::size_t>(group.rank())] = group.agree(Call("commit"));
    return s;
  });
  expect_all(answers, Code::kInvalidArgument, "call", "call: at call 1 rank 1 is in append, rank 0 in plan");
  for (const Status& status : after) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Group, ARankThatLeavesACallInTheMiddleIsLostToTheOthersAndSendsNoHeaderInTheCallsPlace) {
  auto ranks = ThreadTransports::make(2, std::chrono::milliseconds(200));
  const auto answers = on_ranks(*ranks, [&](const std::shared_ptr<Transport>& end) -> Status {
    auto group = Group::meet(end, Call("test"));
    if (!group.ok()) return group.status();
    if (Status s = group->agree(Call("attend")); !s.ok()) return s;
    EXPECT_FALSE(group->ended());
    if (group->rank() == 1) {
      (void)group->leave(Status::error(Code::kOutOfMemory, "attend", "attend: no memory"));
      EXPECT_TRUE(group->ended());
      return group->agree(Call("plan"));
    }
    std::array<std::byte, Group::kHeaderBytes> partial{};
    const Status lost = group->transport().receive(1, partial);
    EXPECT_EQ(lost.code(), Code::kPeerLost);
    EXPECT_EQ(group->agree(Call("plan")).code(), Code::kPeerLost);
    EXPECT_TRUE(group->ended());
    return lost;
  });
  EXPECT_EQ(answers[1].code(), Code::kOutOfMemory);
  EXPECT_EQ(answers[0].code(), Code::kPeerLost) << answers[0].message();
}

TEST(Group, AnotherArgumentIsNamedWithItsValues) {
  expect_all(in_group(4,
                      [](Group& group) {
                        return group.agree(Call("append").with("layer", 0).with("tokens", group.rank() == 3 ? 5 : -4));
                      }),
             Code::kInvalidArgument, "tokens", "tokens: of append, 5 on rank 3 and -4 on rank 0");
  expect_all(
      in_group(2, [](Group& group) { return group.agree(Call("append").with("keys", group.rank() == 0 ? "x" : "y")); }),
      Code::kInvalidArgument, "keys", "keys: of append, rank 1 has other bytes than rank 0");
  expect_all(in_group(2,
                      [](Group& group) {
                        Call call("append");
                        if (group.rank() == 1) call.with("keys", 1);
                        return group.agree(call);
                      }),
             Code::kInvalidArgument, "call", "call: append has 1 arguments on rank 1 and 0 on rank 0");
}

TEST(Group, ArgumentsBeyondTheSixteenthAreComparedToo) {
  const auto answers = in_group(2, [](Group& group) {
    Call call("append");
    for (int i = 0; i < 30; ++i) call.with("sequence", i == 25 ? group.rank() : i);
    return group.agree(call);
  });
  expect_all(answers, Code::kInvalidArgument, "further arguments",
             "further arguments: of append, rank 1 has other bytes than rank 0");
}

TEST(Group, BlocksOfOtherLengthsAreNamed) {
  const auto answers = in_group(3, [](Group& group) {
    const std::vector<std::byte> mine(group.rank() == 2 ? 8 : 4);
    std::vector<std::byte> all(mine.size() * 3);
    return group.gather(Call("plan"), {}, mine, all);
  });
  expect_all(answers, Code::kInvalidArgument, "block", "block: of plan, 8 bytes on rank 2 and 4 on rank 0");
}

TEST(Group, ARefusalOfOneRankIsTheSameErrorOnAllWithItsPlace) {
  const auto answers = in_group(3, [](Group& group) {
    const std::vector<std::byte> mine(16, std::byte{1});
    std::vector<std::byte> all(48, std::byte{9});
    const Status why = Status::error(Code::kNotFinite, "keys", "keys: not finite", {.row = 2, .index = 7});
    Status s = group.gather(Call("append"), group.rank() == 0 ? Status() : why, mine, all);
    EXPECT_EQ(all, std::vector<std::byte>(48, std::byte{9})) << "nothing is written";
    EXPECT_EQ(s.place().row, 2);
    EXPECT_EQ(s.place().index, 7);
    return s;
  });
  expect_all(answers, Code::kNotFinite, "keys", "rank 1: keys: not finite");
}

TEST(Group, WhatAllRanksRefuseReadsAsInOneProcess) {
  const auto answers = in_group(3, [](Group& group) {
    return group.agree(Call("append"), Status::error(Code::kCapacity, "tokens", "tokens: too many"));
  });
  expect_all(answers, Code::kCapacity, "tokens", "tokens: too many");
}

TEST(Group, ARefusalIsToldBeforeArgumentsThatDiffer) {
  const auto answers = in_group(2, [](Group& group) {
    return group.agree(Call("append").with("tokens", group.rank()),
                       group.rank() == 1 ? Status::error(Code::kCapacity, "tokens", "tokens: too many") : Status());
  });
  expect_all(answers, Code::kCapacity, "tokens", "rank 1: tokens: too many");
}

TEST(Group, TheHandshakeTellsGeometriesApart) {
  auto ranks = ThreadTransports::make(3, kLong);
  ASSERT_TRUE(ranks.ok());
  const auto answers = on_ranks(*ranks, [&](const std::shared_ptr<Transport>& end) {
    return Group::meet(end, Call("cache").with("budget_tokens", end->rank() == 1 ? 64 : 2048)).status();
  });
  expect_all(answers, Code::kInvalidArgument, "budget_tokens",
             "budget_tokens: of cache, 64 on rank 1 and 2048 on rank 0");
}

TEST(Group, TheHandshakeTellsAnotherVersionAndAnotherProtocolApart) {
  for (const bool speaks : {true, false}) {
    auto ranks = ThreadTransports::make(2, kLong);
    ASSERT_TRUE(ranks.ok());
    const auto answers = on_ranks(*ranks, [&](const std::shared_ptr<Transport>& end) {
      if (end->rank() == 0) return Group::meet(end, Call("cache")).status();
      std::array<char, 64> greeting{};
      const std::uint64_t magic = speaks ? 0x534552494154494d : 1;
      std::memcpy(greeting.data(), &magic, sizeof magic);
      std::memcpy(greeting.data() + sizeof magic, "0.0.9", 5);
      std::array<char, 128> all{};
      return end->all_gather(std::as_bytes(std::span(greeting)), std::as_writable_bytes(std::span(all)));
    });
    EXPECT_EQ(answers[0].code(), Code::kUnsupported);
    EXPECT_EQ(answers[0].argument(), "version");
    EXPECT_NE(answers[0].message().find(speaks ? "rank 1 runs 0.0.9, rank 0 runs " : "rank 1 does not speak"),
              std::string_view::npos)
        << answers[0].message();
  }
  EXPECT_EQ(Group::meet(nullptr, Call("cache")).status().argument(), "transport");
}

TEST(Group, ARankThatStoppedCallingIsLostAndNotWaitedForForever) {
  auto ranks = ThreadTransports::make(3, std::chrono::milliseconds(100));
  ASSERT_TRUE(ranks.ok());
  const auto answers = on_ranks(*ranks, [&](const std::shared_ptr<Transport>& end) {
    auto group = Group::meet(end, Call("cache"));
    if (!group.ok() || end->rank() == 1) return group.status();
    return group->agree(Call("plan"));
  });
  EXPECT_TRUE(answers[1].ok());
  EXPECT_EQ(answers[0].code(), Code::kPeerLost);
  EXPECT_EQ(answers[2].code(), Code::kPeerLost);
}

}  // namespace
}  // namespace seriatim
