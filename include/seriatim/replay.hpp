// Replay: a capture of one layer's work -> our rows and outputs, and how they compare with what was captured.
//
// The file formats are those of docs/capture.md: `capture/1` in, `replay/1` out, both safetensors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "seriatim/cache.hpp"
#include "seriatim/capture.hpp"
#include "seriatim/status.hpp"
#include "seriatim/step.hpp"

namespace seriatim {

// How one row compares with the captured one, in the order in which the kinds are tried.
enum class Agreement : std::uint8_t {
  kNotGiven,  // the capture has no expected rows
  kExact,     // the same tokens
  kTie,       // the sets differ only in groups whose score equals the score at the cut
  kNear,      // only in groups within the relative margin of the cut
  kWrong,     // anything else
};
std::string_view agreement_name(Agreement agreement);

struct RowVerdict {
  Agreement agreement = Agreement::kNotGiven;
  double margin = 0.0;      // largest relative distance from the cut among the groups that differ
  std::int64_t group = -1;  // the first group at fault, where it is `wrong`
  std::string reason = {};  // why it is `wrong`
};

class Group;
class ShardedEngine;

// What a rank of a group held and sent.
struct RankShare {
  std::int64_t tokens = 0;
  std::int64_t cache_bytes = 0;
  std::int64_t messages = 0;  // since its transport was made
  std::int64_t sent_bytes = 0;
};

struct ReplayOptions {
  double margin = -1.0;      // relative margin of `near`; negative: 1e-5 for f32 index keys, 1e-2 for bf16 and f16
  Engine* engine = nullptr;  // what plans and attends, its count of work started again; null: the host, serial
  // Both: every rank of the group replays the same capture, keeps its part of the tokens and has the whole result.
  ShardedEngine* sharded = nullptr;
  Group* group = nullptr;
  std::function<void(std::string_view stage, std::int64_t done, std::int64_t total)> progress;
};

struct Replay {
  std::int64_t queries = 0;
  std::int64_t selections = 1;  // S
  std::int64_t row_capacity = 0;
  std::vector<std::int32_t> rows;    // [Q, S, row_capacity]
  std::vector<std::int32_t> counts;  // [Q, S]
  std::vector<float> output;         // [Q, query_heads, value_dim]
  std::vector<float> lse;            // [Q, query_heads]
  std::vector<RowVerdict> verdicts;  // [Q, S]
  double margin = 0.0;               // the margin applied

  bool output_compared = false;
  double output_bound = 0.0;            // the largest difference that agrees, relative to the largest |value|
  double difference_expected_rows = 0;  // largest |ours - expected| over the expected rows, relative to largest |value|
  double difference_own_rows = 0;       // the same over our own rows; a tie may move it
  std::int64_t worst_query = -1;        // where difference_expected_rows was seen

  std::int64_t groups_dropped = 0;  // groups that a row does not hold, of all rows
  WorkDone done;
  CacheBytes bytes;  // of all ranks, and scratch_bytes
  std::int64_t scratch_bytes = 0;
  std::vector<RankShare> ranks;  // empty: one process
  std::string rows_digest;       // XXH3-128 of rows, then counts, little-endian
  std::string output_digest;     // of output, then lse

  std::int64_t count(Agreement agreement) const;
  // No row is wrong and, where given, outputs on the expected rows are within the bound.
  bool agrees() const;
};

// Appends the capture's tokens to a fresh cache, plans every row, attends, and compares.
// Errors  those of the modules it passes through.
// Memory  the tokens once more, in the cache; the result.
Result<Replay> replay(const Capture& capture, const ReplayOptions& options = {});

// Writes `replay/1`: rows, counts, output, lse. Whole or not at all.
Status write_replay(const std::string& path, const Capture& capture, const Replay& replay);

}  // namespace seriatim
