// One sequence over many ranks, the bits of one process.
//
// A rank holds a contiguous range of whole groups, counted from the sequence's anchor, in rank order; the raw tail
// belongs to the last rank that holds tokens. The top-K of a union is the top-K of the ranks' top-Ks under one total
// order, so a gather of candidates gives every rank the same row. Rows ascend, so every rank's entries are one run of
// the row; a split of 128 entries that straddles a border is reduced by one rank, to which the others send the keys and
// values. Partials are folded in rank order. docs/sharding.md says what is sent.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "seriatim/group.hpp"
#include "seriatim/layer_view.hpp"
#include "seriatim/select.hpp"
#include "seriatim/status.hpp"
#include "seriatim/step.hpp"

namespace seriatim {

// One layer of one sequence as a rank sees it.
struct ShardedLayer {
  LayerView local;  // this rank's tokens: a sequence of its own, whose anchor is where its range begins
  VisibleRun run;   // every token that any rank holds
  std::vector<std::int64_t> borders;  // [ranks + 1]: rank k holds positions borders[k] .. borders[k + 1] - 1
};

// The queries are equal on all ranks: every rank runs the model.
struct ShardedPlanAsk {
  const ShardedLayer* layer = nullptr;
  IndexQueries queries;
};

struct ShardedAttendAsk {
  const ShardedLayer* layer = nullptr;
  AttendQueries queries;
};

// How the splits of a row become an output. Both give the same bits.
enum class Finish : std::uint8_t {
  kAuto,    // the cheaper one: bytes that are waited for, and kHopBytes for every hop
  kGather,  // all partials go to the rank that holds the most of them, which folds them: one hop, many bytes
  kChain,   // the state (m, den, o) goes from rank to rank, each of which folds its splits in: many hops, few bytes
};

struct AttendOptions {
  Finish finish = Finish::kAuto;
  int result = -1;  // the rank that gets output and lse; -1: every rank
};

// What a hop is worth in bytes: a link's latency times its rate, between those of 10 and 100 Gbit/s Ethernet.
inline constexpr std::int64_t kHopBytes = 64 * 1024;

// Plans and attends with the other ranks of a group. All ranks make the same calls with equal arguments, in the same
// order; a difference is an error that names it.
// Threads  one call at a time per group.
class ShardedEngine {
 public:
  // Takes   an engine on the host; the group, alive as long as this
  ShardedEngine(Engine engine, Group& group);
  ShardedEngine(ShardedEngine&&) noexcept;
  ShardedEngine& operator=(ShardedEngine&&) noexcept;
  ~ShardedEngine();

  // Gives   the rows of Engine::plan() of the whole sequences, on every rank
  // Errors  those of Engine::plan(), the same on every rank; a refusal of some ranks alone names the first. Those of
  //         Group::gather(). Nothing is written.
  Status plan(std::span<const ShardedPlanAsk> asks, NanPolicy nan, Rows rows);

  // Gives   output and lse of Engine::attend() of the whole sequences, on every rank or on one; elsewhere both may be
  //         empty
  // Errors  those of Engine::attend(), the same on every rank; those of Group::gather(). Nothing is written but for
  //         Overflow. PeerLost also where another rank ran out of memory in the middle of the call; there OutOfMemory,
  //         and the group has ended.
  Status attend(std::span<const ShardedAttendAsk> asks, ConstRows rows, Tensor output, Tensor lse,
                AttendOptions options = {});

  Engine& engine();

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace seriatim
