// Run by mpiexec on some ranks: every rank runs every test.
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "seriatim/group.hpp"
#include "seriatim/transport_mpi.hpp"

namespace seriatim {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{30000};

std::span<const std::byte> bytes(const std::vector<int>& values) { return std::as_bytes(std::span(values)); }
std::span<std::byte> bytes(std::vector<int>& values) { return std::as_writable_bytes(std::span(values)); }

std::shared_ptr<Transport> opened(MPI_Comm communicator, milliseconds timeout) {
  auto made = mpi_transport(communicator, timeout);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? *made : nullptr;
}

TEST(MpiTransport, GatherGivesEveryBlockInRankOrderOfAnyLength) {
  const auto end = opened(MPI_COMM_WORLD, kLong);
  ASSERT_NE(end, nullptr);
  const std::size_t ranks = static_cast<std::size_t>(end->size());
  ASSERT_GE(ranks, 2u) << "to be run by mpiexec";
  for (const std::size_t length : {0u, 1u, 1000u, 1u << 20}) {
    const std::vector<int> mine(length, end->rank() + 7);
    std::vector<int> all(length * ranks, -1);
    const Status s = end->all_gather(bytes(mine), bytes(all));
    ASSERT_TRUE(s.ok()) << s.message();
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int>(i / length) + 7);
  }
  EXPECT_EQ(end->traffic().messages, 4 * (end->size() - 1));
  EXPECT_EQ(end->traffic().bytes, 4 * ((1 << 20) + 1001) * (end->size() - 1));
}

TEST(MpiTransport, LargeMessagesInARingDoNotWaitForTheirReceivers) {
  const auto end = opened(MPI_COMM_WORLD, kLong);
  ASSERT_NE(end, nullptr);
  const int size = end->size();
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(end->send((end->rank() + 1) % size, bytes(std::vector<int>(1u << 18, end->rank() + i))).ok());
  for (int i = 0; i < 5; ++i) {
    std::vector<int> got(1u << 18, -1);
    const int from = (end->rank() + size - 1) % size;
    ASSERT_TRUE(end->receive(from, bytes(got)).ok());
    EXPECT_EQ(got, std::vector<int>(1u << 18, from + i));
  }
  std::vector<int> told(100, end->rank() == 1 ? 5 : 0);
  ASSERT_TRUE(end->broadcast(1, bytes(told)).ok());
  EXPECT_EQ(told, std::vector<int>(100, 5));
}

TEST(MpiTransport, ABlockOfAnotherLengthIsToldToAllAndTheRanksStayInStep) {
  const auto end = opened(MPI_COMM_WORLD, kLong);
  ASSERT_NE(end, nullptr);
  const std::size_t ranks = static_cast<std::size_t>(end->size());
  std::vector<int> mine(end->rank() == 1 ? 3 : 1, 7);
  std::vector<int> all(mine.size() * ranks, -1);
  const Status refused = end->all_gather(bytes(mine), bytes(all));
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.place().index, end->rank() == 1 ? 0 : 1);
  EXPECT_EQ(all, std::vector<int>(all.size(), -1)) << "nothing is written";
  all.assign(ranks, -1);
  ASSERT_TRUE(end->all_gather(bytes({end->rank()}), bytes(all)).ok());
  for (std::size_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(all[rank], static_cast<int>(rank));
}

TEST(MpiTransport, TheGroupNamesTheRankWhoseArgumentDiffers) {
  const auto end = opened(MPI_COMM_WORLD, kLong);
  ASSERT_NE(end, nullptr);
  auto group = Group::meet(end, Call("cache").with("budget_tokens", 64));
  ASSERT_TRUE(group.ok()) << group.status().message();
  const Status s = group->agree(Call("append").with("tokens", end->rank() == 1 ? 5 : 4));
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_EQ(s.message(), "tokens: of append, 5 on rank 1 and 4 on rank 0");
  EXPECT_TRUE(group->agree(Call("append").with("tokens", 4)).ok());
}

TEST(MpiTransport, ACommunicatorOfSomeRanksServesInItsOwnOrder) {
  int world = 0;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm some = MPI_COMM_NULL;  // all but rank 0, backwards
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, -rank, &some);
  if (rank == 0) {
    EXPECT_EQ(mpi_transport(some, kLong).status().argument(), "communicator");
    return;
  }
  {
    const auto end = opened(some, kLong);
    ASSERT_NE(end, nullptr);
    std::vector<int> all(static_cast<std::size_t>(world - 1), -1);
    ASSERT_TRUE(end->all_gather(bytes({rank}), bytes(all)).ok());
    for (int i = 0; i < world - 1; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], world - 1 - i);
  }
  MPI_Comm_free(&some);
}

TEST(MpiTransport, ALateRankIsNamedWithinTheTimeout) {
  constexpr milliseconds kShort{300};
  const auto end = opened(MPI_COMM_WORLD, kShort);
  ASSERT_NE(end, nullptr);
  if (end->rank() == 1) {
    MPI_Barrier(MPI_COMM_WORLD);  // late: it takes no part
    return;
  }
  std::vector<int> all(static_cast<std::size_t>(end->size()));
  const auto started = std::chrono::steady_clock::now();
  const Status late = end->all_gather(bytes({end->rank()}), bytes(all));
  EXPECT_LT(std::chrono::steady_clock::now() - started, milliseconds(5000));
  EXPECT_EQ(late.code(), Code::kPeerLost);
  EXPECT_EQ(late.place().index, 1);
  EXPECT_EQ(end->broadcast(end->rank(), bytes(all)).message(), late.message()) << "it stays broken";
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiTransport, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(mpi_transport(MPI_COMM_WORLD, milliseconds(0)).status().argument(), "timeout");
  EXPECT_EQ(mpi_transport(MPI_COMM_NULL, kLong).status().argument(), "communicator");
  const auto end = opened(MPI_COMM_WORLD, kLong);
  ASSERT_NE(end, nullptr);
  std::vector<int> some(1);
  EXPECT_EQ(end->send(end->rank(), bytes(some)).argument(), "to");
  EXPECT_EQ(end->receive(end->size(), bytes(some)).argument(), "from");
  EXPECT_EQ(end->all_gather(bytes({1, 2}), bytes(some)).argument(), "blocks");
}

}  // namespace
}  // namespace seriatim

int main(int argc, char** argv) {
  if (seriatim::mpi_transport(MPI_COMM_NULL, seriatim::kLong).status().code() != seriatim::Code::kUnsupported) return 1;
  MPI_Init(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  MPI_Finalize();
  return failed;
}
