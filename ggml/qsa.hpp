// qwen4exp's chains computed in one pass each: the index cache to pooled keys, and these to the output of attention.
// Nothing between is written.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attention.hpp"
#include "outcome.hpp"
#include "qsa_graph.hpp"
#include "qsa_row.hpp"
#include "scorer.hpp"
#include "workers.hpp"

namespace seriatim::plugin {

class Qsa {
 public:
  // Gives   kLeft, and nothing was written, where a number in the graph's inputs is none that the graph should hold.
  //         All throw bad_alloc, before anything is written.
  Outcome pool(const PoolChain& chain, Workers& workers, const AbortCallback& abort);

  Outcome attend(const AttendChain& chain, Attention& attention, Workers& workers, const AbortCallback& abort);

  // To the selection alone. Gives rows as TOP_K does: the last cell again where there are fewer than its width.
  Outcome select(const SelectChain& chain, Workers& workers, const AbortCallback& abort);

  // The last node of a selection, over the scores that the graph has made.
  Outcome select_cells(const SelectChain& chain, Workers& workers, const AbortCallback& abort);

 private:
  struct PoolScratch {  // of a worker
    AlignedBuffer<float> raw;
    AlignedBuffer<float> work;
  };

  struct Turns {
    std::int64_t tokens = 0;  // of a group
    std::vector<float> frequencies;
    std::int64_t groups = 0;
    std::vector<float> numbers;  // [groups][2][turn_floats]: sines, cosines
  };

  void prepare_turns(const Geometry& geometry, std::int64_t groups, Workers& workers);
  // Calls use(first, count) for slices of queries, those of all streams numbered through, whose rows are in cells_,
  // counts_ and biases_ then.
  Outcome choose_rows(const SelectChain& chain, Workers& workers, const AbortCallback& abort,
                      const std::function<Outcome(std::int64_t, std::int64_t)>& use);
  // Cells that belong to no whole group: every query that sees one attends to it.
  bool read_groups(const SelectChain& chain, std::int64_t stream);
  void choose_row(const SelectChain& chain, std::int64_t stream, std::int64_t token, std::int64_t place,
                  QsaScratch& scratch);

  Scorer scorer_;
  std::vector<PoolScratch> pool_scratch_;
  std::vector<QsaScratch> row_scratch_;
  std::vector<float> norm_weight_;
  Turns turns_;
  std::int64_t whole_groups_ = 0;    // of the stream: the first ones
  std::vector<std::int32_t> loose_;  // cells in none of them
  std::vector<float> scores_;        // [queries of a slice][groups]
  std::vector<std::int32_t> cells_;  // [queries of a slice][width]
  std::vector<std::int32_t> counts_;
  std::vector<float> biases_;
};

}  // namespace seriatim::plugin
