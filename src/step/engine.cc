#include "step/engine.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "attend/attend_admit.hpp"
#include "base/checked.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "seriatim/attend.hpp"
#include "step/admission.hpp"

namespace seriatim {
namespace {

Status past_reserve(std::string_view what, std::int64_t asked, std::int64_t reserved, Place place = {}) {
  return Status::error(Code::kCapacity, "engine", formatted("engine: {} {}, {} were reserved", asked, what, reserved),
                       place);
}

Status refused_memory(std::string_view what) {
  return Status::error(Code::kOutOfMemory, "engine", formatted("engine: the system refused memory for {}", what));
}

Status admit_limits(const Geometry& geometry, const StepLimits& limits) {
  if (Status s = geometry.check_run({0, limits.visible_tokens}); !s.ok()) return s;
  constexpr std::int64_t kMost = Geometry::kPositions;
  if (limits.queries < 0 || limits.queries > kMost || limits.asks < 0 || limits.asks > kMost) {
    return Status::error(Code::kInvalidArgument, "limits",
                         formatted("limits: {} queries in {} asks, each 0..{}", limits.queries, limits.asks, kMost));
  }
  return {};
}

// A power of two, so that what grows by ones asks for more rarely.
std::int64_t grown(std::int64_t least) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)));
}

Status admit_partials(const Geometry& geometry, std::int64_t queries, std::int64_t splits, std::size_t given) {
  const auto floats = checked_product({queries, splits, attend_partial_floats(geometry)});
  if (floats && static_cast<std::int64_t>(given) == *floats) return {};
  return Status::error(Code::kInvalidArgument, "partials",
                       formatted("partials: {} floats, {} splits of {} queries have {} each", given, splits, queries,
                                 attend_partial_floats(geometry)));
}

void account(const PlanBatch& batch, WorkDone& done) {
  const Geometry& geometry = batch.geometry();
  const std::int64_t r = geometry.group_tokens();
  done.queries += batch.table.queries();
  for (std::size_t a = 0; a < batch.asks.size(); ++a) {
    for (std::int64_t q = 0; q < batch.table[a].queries; ++q) {
      const std::int64_t visible = batch.run_of(a, q).tokens;
      for (std::int64_t s = 0; s < geometry.selections(); ++s) {
        const std::int64_t width = batch.rows.counts[(batch.table[a].first_query + q) * geometry.selections() + s];
        done.dense_rows += width == visible ? 1 : 0;
        done.groups_scored += batch.needs_scores(visible) ? geometry.scored_keys(visible) : 0;
        done.groups_selected += (width - geometry.tail_tokens(visible) + r - 1) / r;
        done.row_tokens += width;
      }
    }
  }
}

}  // namespace

Status nan_of(std::int64_t query, const NanPlace& place, std::int64_t selections) {
  const std::string unit = place.unit < 0 ? "" : formatted("unit {} in ", place.unit);
  const std::string selection = selections == 1 ? "" : formatted(", selection {}", place.selection);
  return Status::error(Code::kNotANumber, "scores",
                       formatted("scores: {}group {} of query {}{} is NaN", unit, place.group, query, selection),
                       {query, place.group});
}

Status nan_at(const PlanBatch& batch, std::size_t ask, std::int64_t query, const NanPlace& place) {
  return at_ask(nan_of(query, place, batch.geometry().selections()), ask, batch.asks.size());
}

Status overflow_of(std::int64_t query, std::int64_t head) {
  return Status::error(Code::kOverflow, "output",
                       formatted("output: head {}: a logit passes f32, or an output its dtype", head), {query, head});
}

Status overflow_at(const AttendBatch& batch, std::int64_t query, std::int64_t head) {
  const AskTable::Place place = batch.table.of_query(query);
  return at_ask(overflow_of(place.number, head), place.ask, batch.asks.size());
}

Status Engine::Impl::make_table(std::size_t asks) {
  const auto count = static_cast<std::int64_t>(asks);
  if (reserved_ && count > limits_.asks) return past_reserve("asks", count, limits_.asks);
  if (count <= table_.capacity()) return {};
  try {
    table_.reserve(grown(count));
    return {};
  } catch (const std::bad_alloc&) {
    return refused_memory("the asks");
  }
}

Status Engine::Impl::make_room(const Geometry& geometry, const StepLimits& needed) {
  if (holds(geometry, needed)) return {};
  if (reserved_) {
    return Status::error(Code::kCapacity, "engine",
                         "engine: reserved for other geometries, with less scratch than this one needs");
  }
  try {
    return take(geometry, {std::min(grown(std::max<std::int64_t>(needed.visible_tokens, 4096)), Geometry::kPositions),
                           std::min(grown(needed.queries), Geometry::kPositions), needed.asks});
  } catch (const std::bad_alloc&) {
    return refused_memory("scratch");
  }
}

Status Engine::Impl::reserve(const Geometry& geometry, const StepLimits& limits) {
  if (const auto bytes = bytes_for(geometry, limits); !bytes.ok()) return bytes.status();
  try {
    table_.reserve(limits.asks);
    if (Status s = take(geometry, limits); !s.ok()) return s;
  } catch (const std::bad_alloc&) {
    return refused_memory("what is to be reserved");
  }
  if (!reserved_) limits_ = {};
  limits_.visible_tokens = std::max(limits_.visible_tokens, limits.visible_tokens);
  limits_.queries = std::max(limits_.queries, limits.queries);
  limits_.asks = std::max(limits_.asks, limits.asks);
  reserved_ = true;
  return {};
}

Result<std::int64_t> Engine::Impl::bytes_for(const Geometry& geometry, const StepLimits& limits) const {
  if (Status s = admit_limits(geometry, limits); !s.ok()) return s;
  const auto scratch = scratch_bytes_for(geometry, limits);
  if (!scratch.ok()) return scratch;
  const auto all = checked_add(*scratch, limits.asks * static_cast<std::int64_t>(sizeof(AskPart)));
  if (!all) return Status::error(Code::kOverflow, "limits", "limits: the scratch passes 64-bit sizes");
  return *all;
}

// Whether the admitted call is within what was reserved.
Status Engine::Impl::admit_size(const PlanBatch& batch) const {
  if (!reserved_) return {};
  for (std::size_t a = 0; a < batch.asks.size(); ++a) {
    if (batch.table[a].visible_tokens <= limits_.visible_tokens) continue;
    std::int64_t query = 0;
    while (batch.run_of(a, query).tokens <= limits_.visible_tokens) ++query;
    return at_ask(past_reserve("visible tokens", batch.run_of(a, query).tokens, limits_.visible_tokens, {query, -1}), a,
                  batch.asks.size());
  }
  return admit_count();
}

Status Engine::Impl::admit_count() const {
  if (!reserved_ || table_.queries() <= limits_.queries) return {};
  return past_reserve("queries", table_.queries(), limits_.queries);
}

Status Engine::Impl::plan(std::span<const PlanAsk> asks, NanPolicy nan, Rows rows) {
  if (asks.empty()) return {};
  if (Status s = make_table(asks.size()); !s.ok()) return s;
  if (Status s = admit_plan(asks, rows, table_); !s.ok()) return s;
  const PlanBatch batch{asks, table_, nan, rows};
  if (Status s = admit_size(batch); !s.ok()) return s;
  if (Status s = make_room(batch.geometry(), needs(table_.visible_tokens())); !s.ok()) return s;
  if (Status s = run(batch); !s.ok()) return s;
  account(batch, done);
  return {};
}

Status Engine::Impl::plan_candidates(std::span<const PlanAsk> asks, NanPolicy nan, const Candidates& candidates) {
  if (asks.empty()) return {};
  if (Status s = make_table(asks.size()); !s.ok()) return s;
  if (Status s = admit_plan_asks(asks, table_); !s.ok()) return s;
  const PlanBatch batch{asks, table_, nan, {}, &candidates};
  if (!batch.geometry().is_plain()) {
    return Status::error(Code::kUnsupported, "geometry",
                         "geometry: candidates of a part are those of the rule of contract section 2 alone");
  }
  const bool memory = candidates.groups != nullptr && candidates.scores != nullptr && candidates.counts != nullptr;
  if (table_.queries() > 0 && (!memory || candidates.stride < batch.geometry().budget_groups())) {
    return Status::error(Code::kInvalidArgument, "candidates",
                         formatted("candidates: no memory, or a stride of {} where {} is needed", candidates.stride,
                                   batch.geometry().budget_groups()));
  }
  if (Status s = admit_size(batch); !s.ok()) return s;
  if (Status s = make_room(batch.geometry(), needs(table_.visible_tokens())); !s.ok()) return s;
  return run(batch);
}

Status Engine::Impl::attend(std::span<const AttendAsk> asks, ConstRows rows, Tensor output, Tensor lse) {
  if (asks.empty()) return {};
  if (Status s = make_table(asks.size()); !s.ok()) return s;
  if (Status s = admit_attend(asks, rows, output, lse, table_); !s.ok()) return s;
  const AttendBatch batch{asks, table_, rows, output, lse};
  if (Status s = admit_count(); !s.ok()) return s;
  if (Status s = admit_rows(batch, executor()); !s.ok()) return s;
  if (Status s = make_room(batch.geometry(), needs(0)); !s.ok()) return s;
  return run(batch);
}

Status Engine::Impl::attend_partials(const AttendAsk& ask, ConstRows rows, std::int64_t first_split,
                                     std::int64_t splits, std::span<float> partials) {
  if (first_split < 0 || splits < 0 || first_split > Geometry::kPositions - splits) {
    return Status::error(Code::kInvalidArgument, "splits",
                         formatted("splits: {} from {} are not those of a row", splits, first_split));
  }
  const std::span<const AttendAsk> asks(&ask, 1);
  if (Status s = make_table(1); !s.ok()) return s;
  if (Status s = admit_attend_asks(asks, rows, table_); !s.ok()) return s;
  const AttendBatch batch{asks, table_, rows, {}, {}};
  if (Status s = admit_partials(batch.geometry(), table_.queries(), splits, partials.size()); !s.ok()) return s;
  if (Status s = admit_count(); !s.ok()) return s;
  if (Status s = admit_rows(batch, executor()); !s.ok()) return s;
  if (Status s = make_room(batch.geometry(), needs(0)); !s.ok()) return s;
  return run(PartialBatch{batch, first_split, splits, partials});
}

Status Engine::Impl::fold_partials(const FoldBatch& batch) {
  if (batch.splits < 0) {
    return Status::error(Code::kInvalidArgument, "splits", formatted("splits: {} is negative", batch.splits));
  }
  if (batch.count < 0) {
    if (Status s = admit_outputs(batch.geometry, -1, batch.output, batch.lse); !s.ok()) return s;
  } else if (Status s = admit_partials(batch.geometry, batch.count, 1, batch.states.size()); !s.ok()) {
    return s;
  }
  if (Status s = admit_sinks(batch.geometry, batch.sinks); !s.ok()) return s;
  if (Status s = admit_partials(batch.geometry, batch.queries(), batch.splits, batch.partials.size()); !s.ok())
    return s;
  if (Status s = make_room(batch.geometry, {0, batch.queries(), 1}); !s.ok()) return s;
  return run(batch);
}

StepLimits Engine::Impl::needs(std::int64_t visible_tokens) const {
  return {visible_tokens, table_.queries(), static_cast<std::int64_t>(table_.asks())};
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<std::shared_ptr<PageAllocator>> Engine::allocator(const Geometry& geometry, const CacheOptions& options) {
  const DefaultFloatEnvironment environment;
  return impl_->allocator(geometry, options);
}
Result<std::int64_t> Engine::bytes_for(const Geometry& geometry, const StepLimits& limits) const {
  return impl_->bytes_for(geometry, limits);
}
Status Engine::reserve(const Geometry& geometry, const StepLimits& limits) {
  const DefaultFloatEnvironment environment;
  return impl_->reserve(geometry, limits);
}
std::int64_t Engine::bytes() const { return impl_->bytes(); }

Status Engine::plan(std::span<const PlanAsk> asks, NanPolicy nan, Rows rows) {
  const DefaultFloatEnvironment environment;
  return impl_->plan(asks, nan, rows);
}

Status Engine::attend(std::span<const AttendAsk> asks, ConstRows rows, Tensor output, Tensor lse) {
  const DefaultFloatEnvironment environment;
  return impl_->attend(asks, rows, output, lse);
}

Status Engine::attend_partials(const AttendAsk& ask, ConstRows rows, std::int64_t first_split, std::int64_t splits,
                               std::span<float> partials) {
  const DefaultFloatEnvironment environment;
  return impl_->attend_partials(ask, rows, first_split, splits, partials);
}

Status Engine::fold_partials(const Geometry& geometry, std::span<const float> partials, std::int64_t splits,
                             std::span<const float> sinks, Tensor output, Tensor lse) {
  const DefaultFloatEnvironment environment;
  return impl_->fold_partials({geometry, partials, splits, sinks, output, lse, {}});
}

Status Engine::fold_state(const Geometry& geometry, std::span<const float> partials, std::int64_t splits,
                          std::span<const float> sinks, std::int64_t queries, std::span<float> states) {
  const DefaultFloatEnvironment environment;
  if (queries < 0)
    return Status::error(Code::kInvalidArgument, "queries", formatted("queries: {} is negative", queries));
  return impl_->fold_partials({geometry, partials, splits, sinks, {}, {}, states, queries});
}

Status Engine::plan_candidates(std::span<const PlanAsk> asks, NanPolicy nan, const Candidates& candidates) {
  const DefaultFloatEnvironment environment;
  return impl_->plan_candidates(asks, nan, candidates);
}

WorkDone Engine::done() const { return impl_->done; }
void Engine::clear_done() { impl_->done = {}; }
void Engine::let_go() { impl_->let_go(); }

}  // namespace seriatim
