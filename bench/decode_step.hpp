// One decode step over a layer, ready to run again: plan, attend, or both; each run takes the layer's next query.
#pragma once

#include <cstring>

#include "bench/bench.hpp"
#include "bench/inputs.hpp"

namespace seriatim::bench {

class DecodeStep {
 public:
  DecodeStep(Bench& bench, Layer& layer, int threads);

  void plan_next();
  void attend_next();

  Contestant whole();                    // plan and attend, all memory cold
  Contestant attend_only(bool is_cold);  // rows planned beforehand
  Contestant plan_only();                // score and select, cold

  double score_bytes() const;
  double score_fmas() const;
  double attend_bytes() const;  // keys and values of one row
  double attend_fmas() const;
  Work attend_work() const;  // of a cold row: a run is a group's block

 private:
  void check();

  Bench& bench_;
  Layer& layer_;
  const int threads_;
  Engine engine_;
  Answer answer_;   // of the query at turn
  Answer planned_;  // every query's row
  std::int64_t turn_ = 0;
};

}  // namespace seriatim::bench
