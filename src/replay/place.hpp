// Where the tokens of a replay lie and its work is done: in this process, or spread over those of a group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "seriatim/capture.hpp"
#include "seriatim/replay.hpp"
#include "seriatim/step.hpp"

namespace seriatim {

class ReplayPlace {
 public:
  virtual ~ReplayPlace() = default;
  // Appends the capture's tokens; first, and once.
  virtual Status fill(const std::function<void(std::int64_t tokens)>& progress) = 0;
  virtual Status plan(const IndexQueries& queries, Rows rows) = 0;
  virtual Status attend(const AttendQueries& queries, ConstRows rows, Tensor output, Tensor lse) = 0;
  // Scores of the groups that a query at `position` sees.
  virtual Status score(const ConstTensor& query, const ConstTensor& weights, std::int64_t position,
                       std::vector<float>& scores) = 0;
  // Sets done, bytes, scratch_bytes and ranks.
  virtual Status account(Replay& replay) = 0;
};

inline constexpr std::int64_t kReplayQueries = 8;  // the most that one plan() or attend() brings

std::unique_ptr<ReplayPlace> place_alone(const Capture& capture, Engine& engine);
std::unique_ptr<ReplayPlace> place_sharded(const Capture& capture, ShardedEngine& engine, Group& group);

}  // namespace seriatim
