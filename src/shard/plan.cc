// Local candidates, one gather, the same rows everywhere.
#include <algorithm>
#include <cstring>
#include <limits>

#include "row/emit_row.hpp"
#include "shard/engine.hpp"
#include "step/admission.hpp"
#include "step/batch.hpp"

namespace seriatim {
namespace {

// In front of a rank's candidates: its first query with a NaN score.
struct BlockHead {
  std::int64_t nan_query = std::numeric_limits<std::int64_t>::max();
  std::int64_t nan_group = -1;
};

class ShardedPlan {
 public:
  ShardedPlan(std::span<const ShardedPlanAsk> asks, NanPolicy nan, Rows rows, Engine& engine, Group& group)
      : asks_(asks), nan_(nan), rows_(rows), engine_(engine), group_(group) {}

  // Everything that is this rank's alone. Throws bad_alloc.
  Status prepare() {
    if (Status s = make_whole(asks_, group_, whole_); !s.ok()) return s;
    if (asks_.empty()) return {};
    table_.reserve(static_cast<std::int64_t>(asks_.size()));
    if (Status s = admit_plan(whole_.asks, rows_, table_); !s.ok()) return s;
    lay_out();
    return choose_own();
  }

  Call call() {
    Digest layers;
    Digest positions;
    Digest queries;
    for (const ShardedPlanAsk& ask : asks_) {
      layers.add(*ask.layer);
      positions.add(ask.queries.positions);
      queries.add(ask.queries.queries);
      queries.add(ask.queries.head_weights);
    }
    Call call("plan");
    call.with("asks", static_cast<std::int64_t>(asks_.size())).with("nan", static_cast<std::int64_t>(nan_));
    return call.with("layers", layers.bytes()).with("positions", positions.bytes()).with("queries", queries.bytes());
  }

  std::span<const std::byte> block() const { return block_; }
  std::span<std::byte> blocks() { return blocks_; }

  Status finish() {
    if (asks_.empty()) return {};
    if (Status s = first_nan(); !s.ok()) return s;
    for (std::size_t a = 0; a < asks_.size(); ++a) {
      for (std::int64_t q = 0; q < table_[a].queries; ++q) write_row(a, q);
    }
    return {};
  }

 private:
  const Geometry& geometry() const { return *whole_.views.front().geometry; }
  VisibleRun run_of(std::size_t ask, std::int64_t query) const {
    return visible_run(whole_.views[ask], asks_[ask].queries.positions[static_cast<std::size_t>(query)]);
  }
  bool needs_scores(VisibleRun run) const {
    return nan_ == NanPolicy::kExclude || geometry().groups(run.tokens) > geometry().budget_groups();
  }
  std::int64_t keep(VisibleRun run) const {
    return std::min(geometry().budget_groups(), geometry().groups(run.tokens));
  }

  // Where each query's candidates lie in a block: a count, the groups and the scores.
  void lay_out() {
    std::int64_t at = sizeof(BlockHead);
    for (std::size_t a = 0; a < asks_.size(); ++a) {
      for (std::int64_t q = 0; q < table_[a].queries; ++q) {
        places_.push_back(at);
        const VisibleRun run = run_of(a, q);
        if (needs_scores(run)) at += 4 + 8 * keep(run);
      }
    }
    block_.resize(static_cast<std::size_t>(at));
    blocks_.resize(block_.size() * static_cast<std::size_t>(group_.size()));
    const auto most = static_cast<std::size_t>(geometry().budget_groups() * group_.size());
    groups_.resize(most);
    scores_.resize(most);
    chosen_.resize(static_cast<std::size_t>(geometry().budget_groups()));
    scratch_.resize(static_cast<std::size_t>(select_scratch_entries(static_cast<std::int64_t>(most))));
  }

  // Neighbouring queries that see groups of this rank and need them scored.
  struct Part {
    std::size_t ask;
    std::int64_t first;
    std::int64_t count;
  };

  std::vector<Part> parts() {
    std::vector<Part> parts;
    for (std::size_t a = 0; a < asks_.size(); ++a) {
      const VisibleRun local = asks_[a].layer->local.run;
      for (std::int64_t q = 0; q < table_[a].queries; ++q) {
        const VisibleRun run = run_of(a, q);
        const std::int64_t seen = std::min(run.anchor + run.tokens - local.anchor, local.tokens);
        // A rank without tokens has no position that a query could stand at.
        positions_.push_back(local.anchor + std::max<std::int64_t>(seen, 1) - 1);
        if (!needs_scores(run) || seen < geometry().group_tokens()) continue;
        if (!parts.empty() && parts.back().ask == a && parts.back().first + parts.back().count == q) {
          ++parts.back().count;
        } else {
          parts.push_back({a, q, 1});
        }
      }
    }
    return parts;
  }

  Status choose_own() {
    const std::vector<Part> own = parts();
    std::vector<PlanAsk> plans;
    std::int64_t queries = 0;
    for (const Part& part : own) {
      const IndexQueries& all = asks_[part.ask].queries;
      const std::span<const std::int64_t> positions(positions_);
      plans.push_back(
          {&asks_[part.ask].layer->local,
           {some(all.queries, part), all.head_weights.empty() ? all.head_weights : some(all.head_weights, part),
            positions.subspan(static_cast<std::size_t>(table_[part.ask].first_query + part.first),
                              static_cast<std::size_t>(part.count))}});
      queries += part.count;
    }
    const std::int64_t stride = geometry().budget_groups();
    std::vector<std::int32_t> groups(static_cast<std::size_t>(queries * stride));
    std::vector<float> scores(groups.size());
    std::vector<std::int32_t> counts(static_cast<std::size_t>(queries));
    const Status status = engine_.plan_candidates(plans, nan_, {groups.data(), scores.data(), stride, counts.data()});
    BlockHead head;
    if (status.code() == Code::kNotANumber) {
      const Part& part = own[static_cast<std::size_t>(std::max<std::int64_t>(status.place().ask, 0))];
      head.nan_query = table_[part.ask].first_query + part.first + status.place().row;
      head.nan_group = first_group(part.ask) + status.place().index;
    } else if (!status.ok()) {
      return status;
    }
    std::memcpy(block_.data(), &head, sizeof head);
    for (std::int64_t p = 0, query = 0; status.ok() && p < static_cast<std::int64_t>(own.size()); ++p) {
      const Part& part = own[static_cast<std::size_t>(p)];
      for (std::int64_t q = 0; q < part.count; ++q, ++query) {
        put_candidates(part.ask, part.first + q, groups.data() + query * stride, scores.data() + query * stride,
                       counts[static_cast<std::size_t>(query)]);
      }
    }
    return {};
  }

  static ConstTensor some(ConstTensor view, const Part& part) {
    view.data = view.at(part.first);
    view.shape[0] = part.count;
    return view;
  }

  // Of this rank, counted from the sequence's anchor.
  std::int64_t first_group(std::size_t ask) const {
    return (asks_[ask].layer->local.run.anchor - asks_[ask].layer->run.anchor) / geometry().group_tokens();
  }

  std::int64_t place(std::size_t ask, std::int64_t query) const {
    return places_[static_cast<std::size_t>(table_[ask].first_query + query)];
  }

  void put_candidates(std::size_t ask, std::int64_t query, std::int32_t* groups, const float* scores,
                      std::int32_t count) {
    const auto first = static_cast<std::int32_t>(first_group(ask));
    for (std::int32_t i = 0; i < count; ++i) groups[i] += first;
    std::byte* to = block_.data() + place(ask, query);
    const std::int64_t slots = keep(run_of(ask, query));
    std::memcpy(to, &count, 4);
    std::memcpy(to + 4, groups, static_cast<std::size_t>(count) * 4);
    std::memcpy(to + 4 + 4 * slots, scores, static_cast<std::size_t>(count) * 4);
  }

  Status first_nan() const {
    BlockHead first;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(group_.size()); ++rank) {
      BlockHead head;
      std::memcpy(&head, blocks_.data() + rank * block_.size(), sizeof head);
      if (head.nan_query < first.nan_query) first = head;  // of one query, lower ranks have the lower groups
    }
    if (first.nan_group < 0) return {};
    const AskTable::Place at = table_.of_query(first.nan_query);
    return at_ask(nan_of(at.number, {.group = first.nan_group}), at.ask, asks_.size());
  }

  // The top-K of all ranks' top-Ks: candidates lie in ascending groups, so that ties fall as in one process.
  std::span<const std::int32_t> merge(std::size_t ask, std::int64_t query) {
    const std::int64_t slots = keep(run_of(ask, query));
    std::size_t all = 0;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(group_.size()); ++rank) {
      const std::byte* from = blocks_.data() + rank * block_.size() + place(ask, query);
      std::int32_t count = 0;
      std::memcpy(&count, from, 4);
      std::memcpy(groups_.data() + all, from + 4, static_cast<std::size_t>(count) * 4);
      std::memcpy(scores_.data() + all, from + 4 + 4 * slots, static_cast<std::size_t>(count) * 4);
      all += static_cast<std::size_t>(count);
    }
    // No error is left: no score is NaN, and there is room.
    const std::int64_t count =
        *select_groups(std::span<const float>(scores_).first(all), geometry().budget_groups(), nan_, scratch_, chosen_);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int32_t& place = chosen_[static_cast<std::size_t>(i)];
      place = groups_[static_cast<std::size_t>(place)];
    }
    return std::span<const std::int32_t>(chosen_).first(static_cast<std::size_t>(count));
  }

  void write_row(std::size_t ask, std::int64_t query) {
    const VisibleRun run = run_of(ask, query);
    const std::int64_t number = table_[ask].first_query + query;
    const std::span<std::int32_t> row(rows_.positions + number * rows_.stride, static_cast<std::size_t>(rows_.stride));
    const std::int64_t count =
        needs_scores(run) ? emit_row(geometry(), run, merge(ask, query), row) : emit_dense_row(run, row);
    rows_.counts[number] = static_cast<std::int32_t>(count);
  }

  std::span<const ShardedPlanAsk> asks_;
  const NanPolicy nan_;
  const Rows rows_;
  Engine& engine_;
  Group& group_;
  WholeAsks<PlanAsk> whole_;
  AskTable table_;
  std::vector<std::int64_t> places_;     // of each query in a block
  std::vector<std::int64_t> positions_;  // of each query in the local layer
  std::vector<std::byte> block_;
  std::vector<std::byte> blocks_;
  std::vector<std::int32_t> groups_;
  std::vector<float> scores_;
  std::vector<std::int32_t> chosen_;
  std::vector<std::int32_t> scratch_;
};

}  // namespace

Status ShardedEngine::Impl::plan(std::span<const ShardedPlanAsk> asks, NanPolicy nan, Rows rows) {
  ShardedPlan plan(asks, nan, rows, engine, group);
  Call call("plan");
  const Status mine = without_throwing("asks", [&]() -> Status {
    if (Status s = plan.prepare(); !s.ok()) return s;
    call = plan.call();
    return {};
  });
  if (!mine.ok()) return group.agree(call, mine);
  if (Status s = group.gather(call, {}, plan.block(), plan.blocks()); !s.ok()) return s;
  return plan.finish();
}

}  // namespace seriatim
