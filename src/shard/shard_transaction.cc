#include <deque>

#include "base/float_environment.hpp"
#include "shard/sequences.hpp"

namespace seriatim {

// Tokens are staged in forks, so that committing them in the local cache shows them to nobody: the sequence becomes its
// fork when every rank has come so far.
struct ShardedTransaction::Staged {
  struct Part {
    SequenceId id = 0;
    SequenceId local = 0;              // the fork
    Spread spread;                     // of the base
    std::vector<std::int64_t> staged;  // tokens of each layer, over all ranks

    std::int64_t most() const { return *std::max_element(staged.begin(), staged.end()); }
    // This rank's of the first `tokens` staged tokens.
    std::int64_t own(int rank, std::int64_t tokens) const {
      return spread.range(rank, spread.frontier() + tokens).tokens() - spread.range(rank).tokens();
    }
  };

  Staged(std::shared_ptr<ShardedCache::Impl> c, Transaction t) : cache(std::move(c)), local(std::move(t)) {}

  Part* find(SequenceId sequence) {
    const auto at = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.id == sequence; });
    return at == parts.end() ? nullptr : &*at;
  }
  // Errors  NotFound. OutOfMemory. Throws bad_alloc.
  Result<Part*> find_or_open(SequenceId sequence);
  // Errors  InvalidArgument.
  Status check_layer(std::int64_t layer) const;
  // Errors  as ShardedTransaction::append, but for what the local cache finds.
  Result<Part*> admit(SequenceId sequence, std::int64_t layer, std::int64_t first_position, std::int64_t count);
  // Ends an append. Where a rank refused, this rank forgets what it has staged.
  Status end_append(const Call& call, const Status& mine, Part* part, std::int64_t layer, std::int64_t count);
  Status check_layers_reach(const Part& part, std::int64_t tokens) const;
  void drop() noexcept;

  std::shared_ptr<ShardedCache::Impl> cache;
  Transaction local;
  std::deque<Part> parts;
  std::deque<Snapshot> looked_at;  // of sequences that nothing was appended to
};

namespace {

// What the local cache says of a token of its part, as one process says it of the call's.
Status in_call(Status status, std::int64_t skipped) {
  if (status.code() != Code::kNotFinite || status.place().row < 0 || skipped == 0) return status;
  const Place at{status.place().row + skipped, status.place().index};
  return Status::error(status.code(), status.argument(),
                       formatted("{}: element {} of token {} is not finite", status.argument(), at.index, at.row), at);
}

Status ended() { return Status::error(Code::kInvalidArgument, "transaction", "transaction: it has ended"); }

}  // namespace

Result<ShardedSequence*> ShardedCache::Impl::find_unstaged(SequenceId sequence) {
  const auto found = find(sequence);
  if (found.ok() && open != nullptr && open->find(sequence) != nullptr) {
    return Status::error(Code::kInvalidArgument, "sequence",
                         formatted("sequence: sequence {} is in the open transaction", sequence), {sequence, -1});
  }
  return found;
}

Result<ShardedTransaction::Staged::Part*> ShardedTransaction::Staged::find_or_open(SequenceId sequence) {
  if (Part* part = find(sequence)) return part;
  const auto found = cache->find(sequence);
  if (!found.ok()) return found.status();
  Part part{sequence, -1, (*found)->spread, std::vector<std::int64_t>(static_cast<std::size_t>(cache->layers))};
  parts.push_back(std::move(part));
  const auto forked = cache->cache->fork((*found)->local);
  if (!forked.ok()) {
    parts.pop_back();
    return forked.status();
  }
  parts.back().local = *forked;
  return &parts.back();
}

Status ShardedTransaction::Staged::check_layer(std::int64_t layer) const {
  if (layer >= 0 && layer < cache->layers) return {};
  return Status::error(Code::kInvalidArgument, "layer",
                       formatted("layer: {} is not in 0..{}", layer, cache->layers - 1), {-1, layer});
}

Result<ShardedTransaction::Staged::Part*> ShardedTransaction::Staged::admit(SequenceId sequence, std::int64_t layer,
                                                                            std::int64_t first_position,
                                                                            std::int64_t count) {
  if (const auto found = cache->find(sequence); !found.ok()) return found.status();
  if (Status s = check_layer(layer); !s.ok()) return s;
  const auto part = find_or_open(sequence);
  if (!part.ok()) return part;
  const std::int64_t goes_on = (*part)->spread.frontier() + (*part)->staged[static_cast<std::size_t>(layer)];
  if (first_position != goes_on) {
    return Status::error(
        Code::kNotContiguous, "first_position",
        formatted("first_position: {} where sequence {} goes on at {}", first_position, sequence, goes_on),
        {sequence, goes_on});
  }
  const VisibleRun run = (*part)->spread.run;
  if (count < 0 || count > Geometry::kPositions)
    return Status::error(Code::kInvalidArgument, "count", formatted("count: {} is not a number of tokens", count));
  if (Status s = cache->cache->geometry().check_run({run.anchor, goes_on - run.anchor + count}, sequence); !s.ok())
    return s;
  return part;
}

Status ShardedTransaction::Staged::end_append(const Call& call, const Status& mine, Part* part, std::int64_t layer,
                                              std::int64_t count) {
  const Status agreed = cache->group.agree(call, mine);
  if (part == nullptr) return agreed;
  std::int64_t& staged = part->staged[static_cast<std::size_t>(layer)];
  if (agreed.ok()) {
    staged += count;
  } else {
    (void)local.keep_layer(part->local, layer, part->own(cache->group.rank(), staged));
  }
  return agreed;
}

Status ShardedTransaction::Staged::check_layers_reach(const Part& part, std::int64_t tokens) const {
  for (std::size_t layer = 0; layer < part.staged.size(); ++layer) {
    if (part.staged[layer] >= tokens) continue;
    const auto number = static_cast<std::int64_t>(layer);
    return Status::error(Code::kInvalidArgument, "layer",
                         formatted("layer: layer {} of sequence {} has {} staged tokens where {} are to be committed",
                                   number, part.id, part.staged[layer], tokens),
                         {part.id, number});
  }
  return {};
}

void ShardedTransaction::Staged::drop() noexcept {
  local.rollback();
  for (const Part& part : parts) cache->forget(part.local);
  cache->open = nullptr;
}

ShardedTransaction::ShardedTransaction(std::unique_ptr<Staged> staged) : staged_(std::move(staged)) {}
ShardedTransaction::ShardedTransaction(ShardedTransaction&&) noexcept = default;
ShardedTransaction& ShardedTransaction::operator=(ShardedTransaction&& other) noexcept {
  rollback();
  staged_ = std::move(other.staged_);
  return *this;
}
ShardedTransaction::~ShardedTransaction() { rollback(); }

void ShardedTransaction::rollback() {
  if (!staged_) return;
  staged_->drop();
  staged_.reset();
}

Result<ShardedTransaction> ShardedCache::begin() {
  std::unique_ptr<ShardedTransaction::Staged> staged;
  const Status mine = sharded([&]() -> Status {
    auto local = impl_->cache->begin();
    if (!local.ok()) return local.status();
    staged = std::make_unique<ShardedTransaction::Staged>(impl_, *std::move(local));
    return {};
  });
  if (Status s = impl_->group.agree(Call("begin"), mine); !s.ok()) return s;
  impl_->open = staged.get();
  return ShardedTransaction(std::move(staged));
}

Status ShardedTransaction::append(SequenceId sequence, std::int64_t layer, const TokenBatch& tokens) {
  if (!staged_) return ended();
  const DefaultFloatEnvironment environment;
  Staged& all = *staged_;
  const std::int64_t count = tokens.keys.rank == 3 ? tokens.keys.shape[0] : 0;
  Call call("append");
  call.with("sequence", sequence).with("layer", layer).with("first_position", tokens.first_position);
  call.with("count", count);
  Staged::Part* part = nullptr;
  const Status mine = sharded([&]() -> Status {
    const auto admitted = all.admit(sequence, layer, tokens.first_position, count);
    if (!admitted.ok()) return admitted.status();
    if (Status s = all.cache->pack.admit(tokens, layer, count); !s.ok()) return s;
    part = *admitted;
    const PositionRange own = common(part->spread.range(all.cache->group.rank(), Geometry::kPositions),
                                     {tokens.first_position, tokens.first_position + count});
    if (own.tokens() == 0) return {};
    const std::int64_t skipped = own.begin - tokens.first_position;
    return in_call(all.local.append(part->local, layer, some_tokens(tokens, skipped, own.tokens())), skipped);
  });
  return all.end_append(call, mine, part, layer, count);
}

Status ShardedTransaction::append_from(int holder, SequenceId sequence, std::int64_t layer, std::int64_t first_position,
                                       std::int64_t count, const TokenBatch& tokens) {
  if (!staged_) return ended();
  const DefaultFloatEnvironment environment;
  Staged& all = *staged_;
  Group& group = all.cache->group;
  const TokenPack& pack = all.cache->pack;
  Call call("append_from");
  call.with("holder", holder).with("sequence", sequence).with("layer", layer);
  call.with("first_position", first_position).with("count", count);
  Staged::Part* part = nullptr;
  const Status mine = sharded([&]() -> Status {
    if (holder < 0 || holder >= group.size()) {
      return Status::error(Code::kInvalidArgument, "holder",
                           formatted("holder: there is no rank {} of {}", holder, group.size()));
    }
    const auto admitted = all.admit(sequence, layer, first_position, count);
    if (!admitted.ok()) return admitted.status();
    part = *admitted;
    return holder == group.rank() ? pack.admit(tokens, layer, count) : Status();
  });
  if (Status s = group.agree(call, mine); !s.ok()) return s;
  const auto slice = [&](int rank) {
    return common(part->spread.range(rank, Geometry::kPositions), {first_position, first_position + count});
  };
  const PositionRange own = slice(group.rank());
  Status staged;
  const Status sent = sharded([&]() -> Status {
    std::vector<std::byte> bytes;
    if (holder != group.rank()) {
      if (own.tokens() == 0) return {};
      bytes.resize(static_cast<std::size_t>(own.tokens() * pack.layer_bytes(layer)));
      if (Status s = group.transport().receive(holder, bytes); !s.ok()) return s;
      staged = sharded([&] {
        return in_call(pack.append_layer(bytes, layer, own.begin, own.tokens(), all.local, part->local),
                       own.begin - first_position);
      });
      return {};
    }
    for (int to = 0; to < group.size(); ++to) {
      const PositionRange piece = slice(to);
      if (to == holder || piece.tokens() == 0) continue;
      bytes.clear();
      pack.pack(tokens, layer, piece.begin - first_position, piece.tokens(), bytes);
      if (Status s = group.transport().send(to, bytes); !s.ok()) return s;
    }
    if (own.tokens() == 0) return {};
    TokenBatch rest = some_tokens(tokens, own.begin - first_position, own.tokens());
    rest.first_position = own.begin;
    staged = sharded([&] { return in_call(all.local.append(part->local, layer, rest), own.begin - first_position); });
    return {};
  });
  if (!sent.ok()) (void)group.leave(sent);
  return all.end_append(call, sent.ok() ? staged : sent, part, layer, count);
}

Result<ShardedLayer> ShardedTransaction::layer(SequenceId sequence, std::int64_t layer) const {
  return sharded([&]() -> Result<ShardedLayer> {
    if (!staged_) return ended();
    Staged& all = *staged_;
    const auto found = all.cache->find(sequence);
    if (!found.ok()) return found.status();
    if (Status s = all.check_layer(layer); !s.ok()) return s;
    const Staged::Part* part = all.find(sequence);
    if (part == nullptr) {
      auto snapshot = all.cache->cache->snapshot((*found)->local);
      if (!snapshot.ok()) return snapshot.status();
      all.looked_at.push_back(*std::move(snapshot));
      const Spread& spread = (*found)->spread;
      return ShardedLayer{all.looked_at.back().layer(layer), spread.run, spread.borders()};
    }
    auto view = all.local.layer(part->local, layer);
    if (!view.ok()) return view.status();
    Spread spread = part->spread;
    spread.run.tokens += part->staged[static_cast<std::size_t>(layer)];
    return ShardedLayer{*std::move(view), spread.run, spread.borders()};
  });
}

Status ShardedTransaction::commit() { return commit_prefix(Geometry::kPositions); }

Status ShardedTransaction::commit_prefix(std::int64_t tokens) {
  if (!staged_) return ended();
  Staged& all = *staged_;
  ShardedCache::Impl& cache = *all.cache;
  bool prepared = false;
  const Status mine = sharded([&]() -> Status {
    if (tokens < 0) return Status::error(Code::kInvalidArgument, "tokens", formatted("tokens: {} is negative", tokens));
    for (const Staged::Part& part : all.parts) {
      if (Status s = all.check_layers_reach(part, std::min(tokens, part.most())); !s.ok()) return s;
    }
    prepared = true;
    for (const Staged::Part& part : all.parts) {
      const std::int64_t own = part.own(cache.group.rank(), std::min(tokens, part.most()));
      if (Status s = all.local.keep(part.local, own); !s.ok()) return s;
    }
    return all.local.commit();
  });
  if (const Status agreed = cache.group.agree(Call("commit").with("tokens", tokens), mine); !agreed.ok()) {
    if (prepared) rollback();
    return agreed;
  }
  {
    const std::lock_guard lock(cache.publishing);
    for (Staged::Part& part : all.parts) {
      ShardedSequence& sequence = **cache.find(part.id);
      sequence.spread.run.tokens += std::min(tokens, part.most());
      std::swap(sequence.local, part.local);
    }
  }
  rollback();  // forgets what the sequences were before
  return {};
}

}  // namespace seriatim
