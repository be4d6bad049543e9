// Many asks in one call: each one's bits are its bits alone, whatever its company, their order, the threads and the
// kernels; and one fault anywhere names its ask and leaves every output as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <random>

#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

// Sequences of caches of their own, and queries over each: one token to decode, chunks of a prompt, speculative tokens.
class Users {
 public:
  explicit Users(DType dtype) {
    add(dtype, 5, 0, {4});
    add(dtype, 300, 0, every_token(150, 40));
    add(dtype, 90, 1000, every_token(86, 4));
    add(dtype, 36, 3, {35});
    add(dtype, 260, 0, {259});
    add(dtype, 120, 7, {});
    add(dtype, 200, 0, every_token(0, 200));
    add(dtype, 35, 0, {34});
  }

  std::size_t count() const { return stories_.size(); }
  std::int64_t queries(std::size_t user) const { return static_cast<std::int64_t>(tokens_[user].size()); }
  const Geometry& geometry() const { return stories_.front().geometry; }
  PlanAsk plan(std::size_t user) const { return {&layers_[user], asked_[user].for_plan()}; }
  AttendAsk attend(std::size_t user) const { return {&layers_[user], asked_[user].for_attend()}; }
  LayerView& layer(std::size_t user) { return layers_[user]; }
  Story& story(std::size_t user) { return stories_[user]; }

 private:
  void add(DType dtype, std::int64_t tokens, std::int64_t anchor, std::vector<std::int64_t> asked) {
    stories_.emplace_back(small_path(4, dtype), tokens, 500 + stories_.size(), anchor);
    Story& story = stories_.back();
    if (stories_.size() % 2 == 0) story.sinks = {0.5f, -1.0f, 2.0f, 0.0f};
    held_.emplace_back(story, tokens);
    snapshots_.push_back(held_.back().snapshot());
    layers_.push_back(snapshots_.back().layer(0));
    tokens_.push_back(std::move(asked));
    asked_.emplace_back(story, tokens_.back());
  }

  std::deque<Story> stories_;
  std::deque<HeldStory> held_;
  std::deque<Snapshot> snapshots_;
  std::deque<LayerView> layers_;
  std::deque<std::vector<std::int64_t>> tokens_;
  std::deque<Asked> asked_;
};

// One call for these users, in this order.
struct Call {
  Call(const Users& users, std::vector<std::size_t> order)
      : members(std::move(order)), answers(users.geometry(), total(users)) {
    for (const std::size_t user : members) {
      plans.push_back(users.plan(user));
      attends.push_back(users.attend(user));
    }
  }
  std::int64_t total(const Users& users) const {
    std::int64_t all = 0;
    for (const std::size_t user : members) all += users.queries(user);
    return all;
  }
  Status run(Engine& engine, NanPolicy nan = NanPolicy::kRefuse) {
    if (Status s = engine.plan(plans, nan, answers.rows_from(0)); !s.ok()) return s;
    return engine.attend(attends, answers.rows_from(0), answers.output.writable(), answers.lse.writable());
  }

  std::vector<std::size_t> members;
  std::vector<PlanAsk> plans;
  std::vector<AttendAsk> attends;
  Answers answers;
};

std::vector<std::size_t> all_of(const Users& users) {
  std::vector<std::size_t> all(users.count());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

// Every user's answers alone, by the reference on one thread.
std::deque<Answers> alone(const Users& users) {
  std::deque<Answers> answers;
  Engine engine = *Engine::host(serial_executor(), Kernels::reference());
  for (std::size_t user = 0; user < users.count(); ++user) {
    Call call(users, {user});
    EXPECT_TRUE(call.run(engine).ok());
    answers.push_back(std::move(call.answers));
  }
  return answers;
}

void expect_equal(const Users& users, const Call& call, const std::deque<Answers>& due) {
  std::int64_t place = 0;
  for (const std::size_t user : call.members) {
    for (std::int64_t q = 0; q < users.queries(user); ++q, ++place)
      ASSERT_TRUE(same_bits(call.answers.of(place), due[user].of(q))) << "user " << user << ", query " << q;
  }
}

TEST(Asks, EachOnesBitsAreItsBitsAloneInAnyOrderAndCompany) {
  std::mt19937 random(7);
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    const Users users(dtype);
    const std::deque<Answers> due = alone(users);
    std::int64_t sparse = 0;
    for (const Answers& one : due) sparse += sparse_rows(one);
    EXPECT_GT(sparse, 150);
    for (const int threads : {1, 2, 3}) {
      const auto executor = make_executor(threads);
      for (const Kernels kernels : Kernels::available()) {
        Engine engine = *Engine::host(*executor, kernels);
        for (int round = 0; round < 6; ++round) {
          std::vector<std::size_t> members = all_of(users);
          std::shuffle(members.begin(), members.end(), random);
          if (round > 0) members.resize(1 + random() % members.size());
          if (round > 3) members.push_back(members.front());  // the same layer twice
          Call call(users, members);
          ASSERT_TRUE(call.run(engine).ok());
          expect_equal(users, call, due);
        }
      }
    }
  }
}

TEST(Asks, ManySmallOnesAndAFewLargeShareTheWorkersAndKeepTheirBits) {
  const Users users(DType::kF32);
  const std::deque<Answers> due = alone(users);
  const auto executor = make_executor(2);
  Engine engine = *Engine::host(*executor);
  std::vector<std::size_t> members;
  for (int i = 0; i < 64; ++i) members.push_back(i % 3 == 0 ? 4 : i % 3 == 1 ? 0 : 7);
  members.insert(members.begin() + 20, 6);
  Call call(users, members);
  ASSERT_TRUE(call.run(engine).ok());
  expect_equal(users, call, due);
  EXPECT_EQ(engine.done().queries, 64 + 200);
}

TEST(Asks, NoneAndEmptyOnesAreDoneAtOnce) {
  const Users users(DType::kF32);
  Engine engine = *Engine::host();
  EXPECT_TRUE(engine.plan(std::span<const PlanAsk>(), NanPolicy::kRefuse, {}).ok());
  EXPECT_TRUE(engine.attend(std::span<const AttendAsk>(), {}, {}, {}).ok());
  Call call(users, {5, 5});
  EXPECT_TRUE(engine.plan(call.plans, NanPolicy::kRefuse, {}).ok());
  EXPECT_EQ(engine.done().queries, 0);
}

// What is wrong with ask 2 of 4, whose 4 queries stand between others.
struct FaultyCall : Call {
  explicit FaultyCall(Users& users) : Call(users, {0, 1, 2, 4}) {}
  static constexpr std::int64_t kFirst = 41;  // of its queries in the call

  void expect_plan_refused(Code code, std::string_view argument, std::int64_t row) {
    for (const int threads : {1, 3}) {
      const auto executor = make_executor(threads);
      Engine engine = *Engine::host(*executor);
      const Status status = engine.plan(plans, NanPolicy::kRefuse, answers.rows_from(0));
      EXPECT_TRUE(fails_with(status, code, argument, row));
      EXPECT_EQ(status.place().ask, 2);
      EXPECT_NE(status.message().find("(ask 2)"), std::string_view::npos) << status.message();
      EXPECT_TRUE(answers.rows_untouched());
      EXPECT_EQ(engine.done().queries, 0);
    }
  }
  void expect_attend_refused(Code code, std::string_view argument, std::int64_t row, ConstRows rows) {
    for (const int threads : {1, 3}) {
      const auto executor = make_executor(threads);
      Engine engine = *Engine::host(*executor);
      const Status status = engine.attend(attends, rows, answers.output.writable(), answers.lse.writable());
      EXPECT_TRUE(fails_with(status, code, argument, row));
      EXPECT_EQ(status.place().ask, 2);
      EXPECT_TRUE(answers.outputs_untouched());
    }
  }
};

TEST(Asks, AFaultInPlanningNamesItsAskAndQueryAndWritesNoRow) {
  Users users(DType::kF32);
  const auto spoil = [&](Code code, std::string_view argument, std::int64_t row, auto&& change) {
    FaultyCall call(users);
    change(call.plans[2]);
    call.expect_plan_refused(code, argument, row);
  };
  const Geometry other = *Geometry::admit(small_path(2));
  LayerView foreign = users.layer(2);
  foreign.geometry = &other;
  std::vector<std::int64_t> positions(users.plan(2).queries.positions.begin(), users.plan(2).queries.positions.end());
  positions[3] = 1090;
  LayerView unindexed = users.layer(2);
  unindexed.pooled.groups = 0;
  spoil(Code::kInvalidArgument, "layer", -1, [](PlanAsk& ask) { ask.layer = nullptr; });
  spoil(Code::kInvalidArgument, "layer", -1, [&](PlanAsk& ask) { ask.layer = &foreign; });
  spoil(Code::kInvalidArgument, "layer", -1, [&](PlanAsk& ask) { ask.layer = &unindexed; });
  spoil(Code::kInvalidArgument, "index_queries", -1, [](PlanAsk& ask) { ask.queries.queries.rank = 2; });
  spoil(Code::kInvalidArgument, "positions", 3, [&](PlanAsk& ask) { ask.queries.positions = positions; });
  spoil(Code::kInvalidArgument, "positions", -1,
        [](PlanAsk& ask) { ask.queries.positions = ask.queries.positions.first(2); });
}

TEST(Asks, ANanScoreNamesItsAskItsQueryAndItsGroup) {
  Users users(DType::kF32);
  HostTensor queries = users.story(2).index_queries;
  for (std::int64_t i = 0; i < 24; ++i) queries.set((86 + 2) * 24 + i, std::numeric_limits<float>::quiet_NaN());
  FaultyCall call(users);
  call.plans[2].queries.queries = queries.rows(86, 4);
  call.expect_plan_refused(Code::kNotANumber, "scores", 2);
  Engine engine = *Engine::host();
  EXPECT_EQ(engine.plan(call.plans, NanPolicy::kRefuse, call.answers.rows_from(0)).place().index, 0);
}

TEST(Asks, AFaultInAttendingNamesItsAskAndQueryAndWritesNoOutput) {
  Users users(DType::kF32);
  Engine engine = *Engine::host();
  FaultyCall planned(users);
  ASSERT_TRUE(engine.plan(planned.plans, NanPolicy::kRefuse, planned.answers.rows_from(0)).ok());
  const auto spoil = [&](Code code, std::string_view argument, std::int64_t row, auto&& change) {
    FaultyCall call(users);
    call.answers.rows = planned.answers.rows;
    call.answers.counts = planned.answers.counts;
    change(call);
    call.expect_attend_refused(code, argument, row, call.answers.rows_from(0));
  };
  HostTensor queries = users.story(2).queries;
  queries.set((86 + 1) * 32 + 9, std::numeric_limits<float>::infinity());
  const std::vector<float> sinks{0.0f, 0.0f, std::numeric_limits<float>::quiet_NaN(), 0.0f};
  constexpr auto kAt = static_cast<std::size_t>(FaultyCall::kFirst);
  spoil(Code::kInvalidArgument, "layer", -1, [](FaultyCall& c) { c.attends[2].layer = nullptr; });
  spoil(Code::kInvalidArgument, "queries", -1, [](FaultyCall& c) { c.attends[2].queries.queries.shape[1] = 3; });
  spoil(Code::kNotFinite, "sinks", -1, [&](FaultyCall& c) { c.attends[2].queries.sinks = sinks; });
  spoil(Code::kNotFinite, "queries", 1, [&](FaultyCall& c) { c.attends[2].queries.queries = queries.rows(86, 4); });
  spoil(Code::kInvalidArgument, "rows", 2, [&](FaultyCall& c) { c.answers.counts[kAt + 2] = -1; });
  spoil(Code::kNotChronological, "row", 3, [&](FaultyCall& c) {
    std::swap(c.answers.rows[(kAt + 3) * static_cast<std::size_t>(c.answers.stride)],
              c.answers.rows[(kAt + 3) * static_cast<std::size_t>(c.answers.stride) + 1]);
  });
}

TEST(Asks, AnOverflowIsNamedAndAllOtherHeadsAreRight) {
  Users users(DType::kF32);
  const std::deque<Answers> due = alone(users);
  const auto executor = make_executor(3);
  for (const Kernels kernels : Kernels::available()) {
    Engine engine = *Engine::host(*executor, kernels);
    FaultyCall call(users);
    HostTensor queries = users.story(2).queries;
    for (std::int64_t i = 0; i < 8; ++i) queries.set((86 + 1) * 32 + 3 * 8 + i, 3e38f);
    call.attends[2].queries.queries = queries.rows(86, 4);
    const Status status = call.run(engine);
    EXPECT_TRUE(fails_with(status, Code::kOverflow, "output", 1, 3));
    EXPECT_EQ(status.place().ask, 2);
    std::int64_t place = 0;
    for (const std::size_t user : call.members) {
      for (std::int64_t q = 0; q < users.queries(user); ++q, ++place) {
        if (place == FaultyCall::kFirst + 1) continue;
        ASSERT_TRUE(same_bits(call.answers.of(place), due[user].of(q))) << place;
      }
    }
    const std::int64_t bad = FaultyCall::kFirst + 1;
    for (std::int64_t h = 0; h < 4; ++h) EXPECT_EQ(std::isnan(call.answers.lse.get(bad * 4 + h)), h == 3) << h;
  }
}

}  // namespace
}  // namespace seriatim
