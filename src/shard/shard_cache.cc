#include "seriatim/shard_cache.hpp"

#include <cmath>
#include <cstring>
#include <string>

#include "base/float_environment.hpp"
#include "cache/layout.hpp"
#include "cache_file/format.hpp"
#include "shard/sequences.hpp"

namespace seriatim {
namespace {

Status invalid(std::string_view argument, std::string_view what, Place place = {}) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what), place);
}

Status out_of_range(std::int64_t tokens, const ShardedSequence& sequence) {
  return invalid(
      "tokens",
      formatted("{} is not in 0..{}, what sequence {} holds", tokens, sequence.spread.run.tokens, sequence.id),
      {sequence.id, -1});
}

// What all ranks' caches must have in common.
Call terms(const Geometry& geometry, const ShardedCacheOptions& options, std::int64_t page_tokens) {
  Call call("cache");
  call.with("layers", static_cast<std::int64_t>(options.cache.layers.size()));
  call.with("query_heads", geometry.query_heads()).with("budget_tokens", geometry.budget_tokens());
  std::string numbers;
  for (const auto& [key, value] : cache_file::describe(geometry, page_tokens)) numbers += key + '=' + value + '\n';
  call.with("geometry", numbers).with("inv_freq", std::as_bytes(geometry.inv_freq()));
  std::vector<float> weights;
  for (const LayerParameters& layer : options.cache.layers) {
    weights.push_back(layer.indexed ? 1.0f : 0.0f);
    weights.insert(weights.end(), layer.index_norm_weight.begin(), layer.index_norm_weight.end());
  }
  call.with("index_norm_weight", std::as_bytes(std::span<const float>(weights)));
  return call.with("imbalance", std::as_bytes(std::span(&options.imbalance, 1)));
}

// The largest whole number of groups from the anchor that is still a position.
std::int64_t last_cut(const Geometry& geometry, std::int64_t anchor) {
  const std::int64_t r = geometry.group_tokens();
  return anchor + (Geometry::kPositions - 1 - anchor) / r * r;
}

}  // namespace

Status admit_cuts(const Geometry& geometry, std::int64_t anchor, std::span<const std::int64_t> cuts, int ranks) {
  if (static_cast<int>(cuts.size()) != ranks - 1)
    return invalid("cuts", formatted("{} for {} ranks", cuts.size(), ranks));
  std::int64_t before = anchor;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    if (cuts[i] < before || cuts[i] >= Geometry::kPositions)
      return invalid("cuts", formatted("{} comes after {}", cuts[i], before), {-1, index});
    if ((cuts[i] - anchor) % geometry.group_tokens() != 0)
      return invalid("cuts", formatted("{} is inside a group", cuts[i]), {-1, index});
    before = cuts[i];
  }
  return {};
}

Result<ShardedSequence*> ShardedCache::Impl::find(SequenceId sequence) {
  const auto at = std::lower_bound(sequences.begin(), sequences.end(), sequence,
                                   [](const ShardedSequence& one, SequenceId id) { return one.id < id; });
  if (at != sequences.end() && at->id == sequence) return &*at;
  return Status::error(Code::kNotFound, "sequence", formatted("sequence: there is no sequence {}", sequence),
                       {sequence, -1});
}

void ShardedCache::Impl::forget(SequenceId local) noexcept { (void)cache->remove(local); }

Status ShardedCache::Impl::none_open() const {
  return open == nullptr ? Status() : invalid("transaction", "one is open; tokens are moved between transactions");
}

Status ShardedCache::Impl::publish(const Call& call, const Status& mine, ShardedSequence* sequence,
                                   ShardedSequence& next) {
  const Status agreed = group.agree(call, mine);
  if (!agreed.ok()) {
    if (next.local >= 0) forget(next.local);
    return agreed;
  }
  const SequenceId before = sequence->local;
  {
    const std::lock_guard lock(publishing);
    std::swap(*sequence, next);
  }
  forget(before);
  return {};
}

Result<SequenceId> ShardedCache::Impl::publish_new(const Call& call, const Status& mine, ShardedSequence& next) {
  const Status room = sharded([&]() -> Status {
    const std::lock_guard lock(publishing);
    sequences.reserve(sequences.size() + 1);
    return mine;
  });
  if (const Status agreed = group.agree(call, room); !agreed.ok()) {
    if (next.local >= 0) forget(next.local);
    return agreed;
  }
  const std::lock_guard lock(publishing);
  next.id = next_id++;
  sequences.push_back(std::move(next));
  return sequences.back().id;
}

ShardedCache::ShardedCache(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardedCache::~ShardedCache() = default;

Result<std::unique_ptr<ShardedCache>> ShardedCache::create(const Geometry& geometry, ShardedCacheOptions options,
                                                           Group& group) {
  Call call("cache");
  std::shared_ptr<Impl> impl;
  const Status mine = sharded([&]() -> Status {
    if (options.cache.index_only)
      return Status::error(Code::kUnsupported, "cache", "cache: an index store is not spread over ranks");
    if (!std::isfinite(options.imbalance) || options.imbalance < 0)
      return invalid("imbalance", formatted("{} is negative or not finite", options.imbalance));
    const auto layout = Layout::make(geometry, options.cache);
    if (!layout.ok()) return layout.status();
    auto cache = Cache::create(geometry, options.cache);
    if (!cache.ok()) return cache.status();
    impl = std::make_shared<Impl>(*std::move(cache), group, TokenPack(geometry, options.cache), options.imbalance);
    impl->file_options.layers = options.cache.layers;
    impl->file_options.page_tokens = layout->page_tokens;
    impl->file_options.kernels = options.cache.kernels;
    impl->layers = static_cast<std::int64_t>(options.cache.layers.size());
    impl->page_tokens = layout->page_tokens;
    call = terms(geometry, options, layout->page_tokens);
    return {};
  });
  if (Status s = group.agree(call, mine); !s.ok()) return s;
  return std::unique_ptr<ShardedCache>(new ShardedCache(std::move(impl)));
}

const Geometry& ShardedCache::geometry() const { return impl_->cache->geometry(); }
Group& ShardedCache::group() const { return impl_->group; }
const Cache& ShardedCache::local() const { return *impl_->cache; }

std::vector<SequenceId> ShardedCache::sequences() const {
  const std::lock_guard lock(impl_->publishing);
  std::vector<SequenceId> ids;
  for (const ShardedSequence& one : impl_->sequences) ids.push_back(one.id);
  return ids;
}

std::vector<std::int64_t> ShardedCache::even_cuts(VisibleRun run) const {
  const std::int64_t ranks = impl_->group.size();
  // Of what is no run, cuts that are refused with it.
  run = {std::clamp<std::int64_t>(run.anchor, 0, Geometry::kPositions - 1),
         std::clamp<std::int64_t>(run.tokens, 0, Geometry::kPositions)};
  const std::int64_t pages = (run.tokens + ranks * impl_->page_tokens - 1) / (ranks * impl_->page_tokens);
  std::vector<std::int64_t> cuts;
  for (std::int64_t k = 1; k < ranks; ++k)
    cuts.push_back(std::min(run.anchor + k * pages * impl_->page_tokens, last_cut(geometry(), run.anchor)));
  return cuts;
}

Result<SequenceId> ShardedCache::add(std::int64_t anchor, std::span<const std::int64_t> cuts) {
  Call call("add");
  ShardedSequence next;
  next.local = -1;
  const Status mine = sharded([&]() -> Status {
    call.with("anchor", anchor).with("cuts", std::as_bytes(cuts));
    if (Status s = geometry().check_run({anchor, 0}); !s.ok()) return s;
    next.spread = {{anchor, 0}, {cuts.begin(), cuts.end()}};
    if (cuts.empty()) next.spread.cuts.assign(static_cast<std::size_t>(impl_->group.size()) - 1, anchor);
    if (Status s = admit_cuts(geometry(), anchor, next.spread.cuts, impl_->group.size()); !s.ok()) return s;
    const auto local = impl_->cache->add(next.spread.begin(impl_->group.rank()));
    if (!local.ok()) return local.status();
    next.local = *local;
    return {};
  });
  return impl_->publish_new(call, mine, next);
}

Status ShardedCache::remove(SequenceId sequence) {
  const auto found = impl_->find_unstaged(sequence);
  if (Status s = impl_->group.agree(Call("remove").with("sequence", sequence), found.status()); !s.ok()) return s;
  const SequenceId local = (*found)->local;
  {
    const std::lock_guard lock(impl_->publishing);
    impl_->sequences.erase(impl_->sequences.begin() + (*found - impl_->sequences.data()));
  }
  impl_->forget(local);
  return {};
}

namespace {

// A changed copy of a sequence, prepared on this rank: `change` gets the copy, whose local state is still to be made.
template <typename Change>
Status changed(ShardedCache::Impl& impl, const Call& call, SequenceId id, const Change& change) {
  ShardedSequence* sequence = nullptr;
  ShardedSequence next;
  next.local = -1;
  const Status mine = sharded([&]() -> Status {
    const auto found = impl.find_unstaged(id);
    if (!found.ok()) return found.status();
    sequence = *found;
    next = *sequence;
    next.local = -1;
    return change(*sequence, next);
  });
  return impl.publish(call, mine, sequence, next);
}

Status fork_local(Cache& cache, const ShardedSequence& from, ShardedSequence& to) {
  const auto forked = cache.fork(from.local);
  if (!forked.ok()) return forked.status();
  to.local = *forked;
  return {};
}

}  // namespace

Status ShardedCache::reset(SequenceId sequence, std::int64_t anchor) {
  return changed(*impl_, Call("reset").with("sequence", sequence).with("anchor", anchor), sequence,
                 [&](const ShardedSequence& from, ShardedSequence& to) -> Status {
                   if (Status s = geometry().check_run({anchor, 0}, sequence); !s.ok()) return s;
                   for (std::int64_t& cut : to.spread.cuts)
                     cut = std::min(cut + (anchor - from.spread.run.anchor), last_cut(geometry(), anchor));
                   to.spread.run = {anchor, 0};
                   const auto local = impl_->cache->add(to.spread.begin(impl_->group.rank()));
                   if (!local.ok()) return local.status();
                   to.local = *local;
                   return {};
                 });
}

Status ShardedCache::truncate(SequenceId sequence, std::int64_t tokens) {
  return changed(*impl_, Call("truncate").with("sequence", sequence).with("tokens", tokens), sequence,
                 [&](const ShardedSequence& from, ShardedSequence& to) -> Status {
                   if (tokens < 0 || tokens > from.spread.run.tokens) return out_of_range(tokens, from);
                   to.spread.run.tokens = tokens;
                   if (Status s = fork_local(*impl_->cache, from, to); !s.ok()) return s;
                   return impl_->cache->truncate(to.local, to.spread.range(impl_->group.rank()).tokens());
                 });
}

Result<SequenceId> ShardedCache::fork(SequenceId sequence) {
  ShardedSequence next;
  next.local = -1;
  const Status mine = sharded([&]() -> Status {
    const auto found = impl_->find(sequence);
    if (!found.ok()) return found.status();
    next.spread = (*found)->spread;
    return fork_local(*impl_->cache, **found, next);
  });
  return impl_->publish_new(Call("fork").with("sequence", sequence), mine, next);
}

Status ShardedCache::evict_prefix(SequenceId sequence, std::int64_t tokens) {
  const DefaultFloatEnvironment environment;
  const Call call = Call("evict_prefix").with("sequence", sequence).with("tokens", tokens);
  ShardedSequence* found = nullptr;
  ShardedSequence next;
  next.local = -1;
  const Status mine = sharded([&]() -> Status {
    if (Status s = impl_->none_open(); !s.ok()) return s;
    const auto at = impl_->find_unstaged(sequence);
    if (!at.ok()) return at.status();
    found = *at;
    next = *found;
    next.local = -1;
    const VisibleRun run = found->spread.run;
    if (tokens < 0 || tokens > run.tokens) return out_of_range(tokens, *found);
    next.spread.run = {run.anchor + tokens, run.tokens - tokens};
    if (Status s = geometry().check_run(next.spread.run, sequence); !s.ok()) return s;
    const std::int64_t anchor = next.spread.run.anchor;
    for (std::int64_t& cut : next.spread.cuts)
      cut = cut <= anchor ? anchor : std::min(cut + tokens % geometry().group_tokens(), last_cut(geometry(), anchor));
    return {};
  });
  if (Status s = impl_->group.agree(call, mine); !s.ok()) return s;
  if (tokens == 0) return {};
  const Status moved = impl_->move(*found, next);
  return impl_->publish(call, moved, found, next);
}

Status ShardedCache::rebalance(SequenceId sequence, std::span<const std::int64_t> cuts) {
  const DefaultFloatEnvironment environment;
  const Call call = Call("rebalance").with("sequence", sequence).with("cuts", std::as_bytes(cuts));
  ShardedSequence* found = nullptr;
  ShardedSequence next;
  next.local = -1;
  const Status mine = sharded([&]() -> Status {
    if (Status s = impl_->none_open(); !s.ok()) return s;
    const auto at = impl_->find_unstaged(sequence);
    if (!at.ok()) return at.status();
    found = *at;
    if (Status s = admit_cuts(geometry(), found->spread.run.anchor, cuts, impl_->group.size()); !s.ok()) return s;
    next = *found;
    next.local = -1;
    next.spread.cuts.assign(cuts.begin(), cuts.end());
    return {};
  });
  if (Status s = impl_->group.agree(call, mine); !s.ok()) return s;
  const Status moved = impl_->move(*found, next);
  return impl_->publish(call, moved, found, next);
}

Status ShardedCache::rebalance(SequenceId sequence) {
  const auto found = impl_->find(sequence);
  if (!found.ok()) return impl_->group.agree(Call("rebalance").with("sequence", sequence), found.status());
  const Spread& spread = (*found)->spread;
  const std::vector<std::int64_t> cuts = even_cuts(spread.run);
  std::int64_t most = 0;
  for (int rank = 0; rank < spread.ranks(); ++rank) most = std::max(most, spread.range(rank).tokens());
  const std::int64_t share = cuts.empty() ? spread.run.tokens : cuts.front() - spread.run.anchor;
  if (static_cast<double>(most) <= (1.0 + impl_->imbalance) * static_cast<double>(share)) return {};
  return rebalance(sequence, cuts);
}

Result<ShardedSnapshot> ShardedCache::snapshot(SequenceId sequence) const {
  return sharded([&]() -> Result<ShardedSnapshot> {
    const std::lock_guard lock(impl_->publishing);
    const auto found = impl_->find(sequence);
    if (!found.ok()) return found.status();
    auto local = impl_->cache->snapshot((*found)->local);
    if (!local.ok()) return local.status();
    return ShardedSnapshot(*std::move(local), (*found)->spread.run, (*found)->spread.borders());
  });
}

}  // namespace seriatim
