// Partials of all ranks -> outputs on one.
#include <algorithm>
#include <limits>

#include "seriatim/attend.hpp"
#include "shard/attend.hpp"

namespace seriatim {
namespace {

std::int64_t splits_of(const AttendStep& step, int rank) {
  std::int64_t splits = 0;
  for (const RowSpread& spread : step.spreads) splits += spread.splits_of(rank);
  return splits;
}

Tensor some_rows(Tensor of, const AskRange& range) {
  if (of.empty()) return of;
  of.data = of.at(range.place);
  of.shape[0] = range.count;
  return of;
}

class Finisher {
 public:
  Finisher(const AttendStep& step, const FinishPlan& plan, const OwnPartials& own, Engine& engine, Group& group,
           BatchResult& result)
      : step_(step), plan_(plan), own_(own), engine_(engine), group_(group), result_(result) {}

  Status run() { return plan_.chain ? chain() : gather(); }

 private:
  std::size_t floats() const { return static_cast<std::size_t>(attend_partial_floats(step_.geometry())); }
  std::span<const float> sinks(const AskRange& range) const { return step_.asks[range.ask].queries.sinks; }

  Status gather() {
    if (group_.rank() != plan_.finisher) {
      if (own_.floats.empty()) return {};
      return group_.transport().send(plan_.finisher, std::as_bytes(std::span(own_.floats)));
    }
    std::vector<OwnPartials> all(plan_.ranks.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int rank = plan_.ranks[i];
      if (rank == group_.rank()) continue;
      all[i].first.assign(1, 0);
      for (const RowSpread& spread : step_.spreads)
        all[i].first.push_back(all[i].first.back() + spread.splits_of(rank) * static_cast<std::int64_t>(floats()));
      all[i].floats.resize(static_cast<std::size_t>(all[i].first.back()));
      if (Status s = group_.transport().receive(rank, std::as_writable_bytes(std::span(all[i].floats))); !s.ok())
        return s;
    }
    std::vector<const OwnPartials*> parts;
    for (std::size_t i = 0; i < all.size(); ++i) parts.push_back(plan_.ranks[i] == group_.rank() ? &own_ : &all[i]);
    for (const AskRange& range : step_.ranges) {
      if (Status s = fold(range, parts, sinks(range), true); !s.ok()) return s;
    }
    return {};
  }

  // The state that came in is the first of a rank's partials; sinks come first of all, so the first rank has them.
  Status chain() {
    const auto at = std::find(plan_.ranks.begin(), plan_.ranks.end(), group_.rank());
    const bool reduces = at != plan_.ranks.end();
    const bool finishes = group_.rank() == plan_.finisher;
    if (!reduces && !finishes) return {};
    const bool begins = reduces && at == plan_.ranks.begin();
    OwnPartials states;
    for (std::int64_t q = 0; q <= step_.queries(); ++q) states.first.push_back(q * static_cast<std::int64_t>(floats()));
    states.floats.resize(static_cast<std::size_t>(step_.queries()) * floats());
    std::vector<const OwnPartials*> parts;
    if (!begins) {
      const int from = reduces ? *(at - 1) : plan_.ranks.back();
      if (Status s = group_.transport().receive(from, std::as_writable_bytes(std::span(states.floats))); !s.ok())
        return s;
      parts.push_back(&states);
    }
    if (reduces) parts.push_back(&own_);
    const bool ends = finishes && (!reduces || at + 1 == plan_.ranks.end());
    next_.resize(ends ? 0 : states.floats.size());
    for (const AskRange& range : step_.ranges) {
      if (Status s = fold(range, parts, begins ? sinks(range) : std::span<const float>(), ends); !s.ok()) return s;
    }
    if (ends) return {};
    const int to = at + 1 == plan_.ranks.end() ? plan_.finisher : *(at + 1);
    if (Status s = group_.transport().send(to, std::as_bytes(std::span(next_))); !s.ok()) return s;
    return finishes ? finish_what_comes_back(states) : Status();
  }

  // The rank that wants the result reduces splits itself and is not the last that does.
  Status finish_what_comes_back(OwnPartials& states) {
    if (Status s = group_.transport().receive(plan_.ranks.back(), std::as_writable_bytes(std::span(states.floats)));
        !s.ok())
      return s;
    for (const AskRange& range : step_.ranges) {
      if (Status s = fold(range, {&states}, {}, true); !s.ok()) return s;
    }
    return {};
  }

  // Folds what the parts have of each query, in their order: into the result, or into next_.
  Status fold(const AskRange& range, const std::vector<const OwnPartials*>& parts, std::span<const float> sinks,
              bool finish) {
    std::int64_t splits = 0;
    for (std::int64_t q = range.place; q < range.place + range.count; ++q) {
      std::size_t size = 0;
      for (const OwnPartials* part : parts) size += part->of(q).size();
      splits = std::max(splits, static_cast<std::int64_t>(size / floats()));
    }
    // What no split fills is empty: no denominator.
    const bool together = range.count == 1 && parts.size() == 1;
    std::vector<float> gathered(together ? 0 : static_cast<std::size_t>(range.count * splits) * floats());
    for (std::int64_t q = 0; !together && q < range.count; ++q) {
      float* to = gathered.data() + static_cast<std::size_t>(q * splits) * floats();
      for (const OwnPartials* part : parts) {
        const auto from = part->of(range.place + q);
        to = std::copy(from.begin(), from.end(), to);
      }
    }
    const std::span<const float> all = together ? parts.front()->of(range.place) : std::span<const float>(gathered);
    const Geometry& geometry = step_.geometry();
    if (!finish) {
      const auto states = std::span(next_).subspan(static_cast<std::size_t>(range.place) * floats(),
                                                   static_cast<std::size_t>(range.count) * floats());
      return engine_.fold_state(geometry, all, splits, sinks, range.count, states);
    }
    const Status status = engine_.fold_partials(geometry, all, splits, sinks, some_rows(result_.output, range),
                                                some_rows(result_.lse, range));
    if (status.code() != Code::kOverflow) return status;
    if (result_.overflow_query < 0) {
      result_.overflow_query = range.place + status.place().row;
      result_.overflow_head = status.place().index;
    }
    return {};
  }

  const AttendStep& step_;
  const FinishPlan& plan_;
  const OwnPartials& own_;
  Engine& engine_;
  Group& group_;
  BatchResult& result_;
  std::vector<float> next_;
};

}  // namespace

FinishPlan FinishPlan::make(const AttendStep& step, int ranks, const AttendOptions& options) {
  FinishPlan plan;
  std::int64_t all = 0;
  std::int64_t most = 0;
  int holder = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t splits = splits_of(step, rank);
    if (splits > 0) plan.ranks.push_back(rank);
    if (splits > most) holder = rank;
    most = std::max(most, splits);
    all += splits;
  }
  const std::int64_t partial = attend_partial_floats(step.geometry()) * static_cast<std::int64_t>(sizeof(float));
  const int gather_at = options.result >= 0 ? options.result : holder;
  const int last = plan.ranks.empty() ? 0 : plan.ranks.back();
  const int chain_at = options.result >= 0 ? options.result : last;
  const std::int64_t foreign = all - splits_of(step, gather_at);
  const std::int64_t gathered = foreign == 0 ? 0 : kHopBytes + foreign * partial;
  const std::int64_t hops = static_cast<std::int64_t>(plan.ranks.size()) - 1 + (chain_at == last ? 0 : 1);
  const std::int64_t chained = hops * (kHopBytes + step.queries() * partial);
  plan.chain = !plan.ranks.empty() &&
               (options.finish == Finish::kChain || (options.finish == Finish::kAuto && chained < gathered));
  plan.finisher = plan.chain ? chain_at : gather_at;
  return plan;
}

Status finish_batch(const AttendStep& step, const FinishPlan& plan, const OwnPartials& own, Engine& engine,
                    Group& group, BatchResult& result) {
  return Finisher(step, plan, own, engine, group, result).run();
}

}  // namespace seriatim
