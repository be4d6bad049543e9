// Tokens that change their rank.
#include "shard/sequences.hpp"

namespace seriatim {
namespace {

class Mover {
 public:
  Mover(ShardedCache::Impl& impl, const ShardedSequence& old, ShardedSequence& next)
      : impl_(impl), old_(old), next_(next), rank_(impl.group.rank()) {}

  // Sends and takes every message, whether or not this rank can keep what comes: local() says that.
  // Errors  what ended the messages before the last one. Throws bad_alloc.
  Status run() {
    if (Status s = send(); !s.ok()) return s;
    const PositionRange own = common(old_.spread.range(rank_), next_.spread.range(rank_));
    const bool stays_first = own.tokens() > 0 && own.begin == next_.spread.begin(rank_);
    local_ = sharded([&] { return stays_first ? keep(own) : start(); });
    if (Status s = take(0, rank_); !s.ok()) return s;
    if (local_.ok() && !stays_first && own.tokens() > 0)
      local_ = impl_.cache->copy(old_.local, own.begin, own.tokens(), next_.local);
    return take(rank_ + 1, impl_.group.size());
  }
  const Status& local() const { return local_; }

 private:
  Transport& transport() { return impl_.group.transport(); }

  template <typename Each>
  Status for_messages(const PositionRange& piece, const Each& each) {
    const std::int64_t most = impl_.pack.message_tokens();
    for (std::int64_t first = piece.begin; first < piece.end; first += most) {
      if (Status s = each(first, std::min(most, piece.end - first)); !s.ok()) return s;
    }
    return {};
  }

  Status send() {
    const auto snapshot = impl_.cache->snapshot(old_.local);
    if (!snapshot.ok()) return snapshot.status();
    for (int to = 0; to < impl_.group.size(); ++to) {
      if (to == rank_) continue;
      const PositionRange piece = common(old_.spread.range(rank_), next_.spread.range(to));
      const Status sent = for_messages(piece, [&](std::int64_t first, std::int64_t count) {
        bytes_.clear();
        impl_.pack.pack(*snapshot, first, count, bytes_);
        return transport().send(to, bytes_);
      });
      if (!sent.ok()) return sent;
    }
    return {};
  }

  // The tokens of the old range from `own.begin` on stay where they lie.
  Status keep(const PositionRange& own) {
    const auto forked = impl_.cache->fork(old_.local);
    if (!forked.ok()) return forked.status();
    next_.local = *forked;
    if (Status s = impl_.cache->evict_prefix(next_.local, own.begin - old_.spread.begin(rank_)); !s.ok()) return s;
    return impl_.cache->truncate(next_.local, own.tokens());
  }

  Status start() {
    const auto made = impl_.cache->add(next_.spread.begin(rank_));
    if (!made.ok()) return made.status();
    next_.local = *made;
    return {};
  }

  // What ranks [begin, end) send is received whether or not it can be kept.
  Status take(int begin, int end) {
    std::optional<Transaction> transaction;
    for (int from = begin; from < end; ++from) {
      const PositionRange piece = common(old_.spread.range(from), next_.spread.range(rank_));
      const Status received = for_messages(piece, [&](std::int64_t first, std::int64_t count) {
        bytes_.resize(static_cast<std::size_t>(count * impl_.pack.token_bytes()));
        if (Status s = transport().receive(from, bytes_); !s.ok()) return s;
        if (local_.ok() && !transaction) {
          auto begun = impl_.cache->begin();
          local_ = begun.status();
          if (begun.ok()) transaction.emplace(*std::move(begun));
        }
        if (local_.ok())
          local_ = sharded([&] { return impl_.pack.append(bytes_, first, count, *transaction, next_.local); });
        return Status();
      });
      if (!received.ok()) return received;
    }
    if (local_.ok() && transaction) local_ = transaction->commit();
    return {};
  }

  ShardedCache::Impl& impl_;
  const ShardedSequence& old_;
  ShardedSequence& next_;
  const int rank_;
  Status local_;
  std::vector<std::byte> bytes_;
};

}  // namespace

Status ShardedCache::Impl::move(const ShardedSequence& old, ShardedSequence& next) {
  Mover mover(*this, old, next);
  if (const Status moved = sharded([&] { return mover.run(); }); !moved.ok()) return group.leave(moved);
  return mover.local();
}

}  // namespace seriatim
