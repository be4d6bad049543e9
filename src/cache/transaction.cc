
#include <algorithm>
#include <utility>

#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "cache/impl.hpp"

namespace seriatim {
namespace {

Status ended() { return Status::error(Code::kInvalidArgument, "transaction", "transaction: it has ended"); }

Status negative(std::int64_t tokens) {
  return Status::error(Code::kInvalidArgument, "tokens", formatted("tokens: {} is negative", tokens));
}

Status check_layer(const Store& store, std::int64_t layer) {
  const auto layers = static_cast<std::int64_t>(store.layout.layers.size());
  if (layer >= 0 && layer < layers) return {};
  return Status::error(Code::kInvalidArgument, "layer", formatted("layer: {} is not in 0..{}", layer, layers - 1),
                       {-1, layer});
}

// Every layer must hold the tokens that are to be published.
Status check_layers_reach(const StagedSequence& staged, std::int64_t tokens, std::int64_t layers) {
  if (staged.least_staged() >= tokens) return {};
  std::int64_t layer = 0;
  while (layer < layers - 1 && staged.staged(layer) >= tokens) ++layer;
  return Status::error(Code::kInvalidArgument, "layer",
                       formatted("layer: layer {} of sequence {} has {} staged tokens where {} are to be committed",
                                 layer, staged.id(), staged.staged(layer), tokens),
                       {staged.id(), layer});
}

}  // namespace

const StagedSequence* Transaction::Staged::find(SequenceId sequence) const {
  const auto at = std::find_if(sequences.begin(), sequences.end(), [&](const auto& s) { return s->id() == sequence; });
  return at == sequences.end() ? nullptr : at->get();
}

Result<StagedSequence*> Transaction::Staged::find_or_open(SequenceId sequence) {
  if (const StagedSequence* found = find(sequence)) return const_cast<StagedSequence*>(found);
  const Cache::Impl::Entry* entry = cache->find(sequence);
  if (entry == nullptr) return not_found(sequence);
  sequences.push_back(std::make_unique<StagedSequence>(sequence, entry->state));
  return sequences.back().get();
}

Transaction::Transaction(std::unique_ptr<Staged> staged) : staged_(std::move(staged)) {}
Transaction::Transaction(Transaction&&) noexcept = default;
Transaction& Transaction::operator=(Transaction&& other) noexcept {
  rollback();
  staged_ = std::move(other.staged_);
  return *this;
}
Transaction::~Transaction() { rollback(); }

Status Transaction::append(SequenceId sequence, std::int64_t layer, const TokenBatch& tokens) {
  DefaultFloatEnvironment environment;
  return guarded([&]() -> Status {
    if (!staged_) return ended();
    Cache::Impl& cache = *staged_->cache;
    const std::lock_guard writing(cache.writing);
    const std::size_t opened = staged_->sequences.size();
    const auto staged = staged_->find_or_open(sequence);
    if (!staged.ok()) return staged.status();
    const auto append = [&]() -> Status {
      if (Status s = check_layer(*cache.store, layer); !s.ok()) return s;
      return (*staged)->append(layer, tokens, cache.buffers);
    };
    Status status = guarded(append);
    if (!status.ok()) staged_->sequences.resize(opened);  // a sequence that this call alone has touched
    return status;
  });
}

Result<LayerView> Transaction::layer(SequenceId sequence, std::int64_t layer) const {
  return guarded([&]() -> Result<LayerView> {
    if (!staged_) return ended();
    Cache::Impl& cache = *staged_->cache;
    const std::lock_guard writing(cache.writing);
    if (cache.find(sequence) == nullptr) return not_found(sequence);
    if (Status s = check_layer(*cache.store, layer); !s.ok()) return s;
    const auto staged = staged_->find_or_open(sequence);
    if (!staged.ok()) return staged.status();
    return (*staged)->view(layer);
  });
}

Status Transaction::keep(SequenceId sequence, std::int64_t tokens) {
  return guarded([&]() -> Status {
    if (!staged_) return ended();
    if (tokens < 0) return negative(tokens);
    Cache::Impl& cache = *staged_->cache;
    const std::lock_guard writing(cache.writing);
    if (cache.find(sequence) == nullptr) return not_found(sequence);
    if (const StagedSequence* staged = staged_->find(sequence)) {
      const_cast<StagedSequence*>(staged)->shrink(std::min(tokens, staged->most_staged()));
    }
    return {};
  });
}

Status Transaction::keep_layer(SequenceId sequence, std::int64_t layer, std::int64_t tokens) {
  return guarded([&]() -> Status {
    if (!staged_) return ended();
    if (tokens < 0) return negative(tokens);
    Cache::Impl& cache = *staged_->cache;
    const std::lock_guard writing(cache.writing);
    if (cache.find(sequence) == nullptr) return not_found(sequence);
    if (Status s = check_layer(*cache.store, layer); !s.ok()) return s;
    if (const StagedSequence* staged = staged_->find(sequence))
      const_cast<StagedSequence*>(staged)->shrink_layer(layer, std::min(tokens, staged->staged(layer)));
    return {};
  });
}

Status Transaction::commit() { return commit_prefix(Geometry::kPositions); }

Status Transaction::commit_prefix(std::int64_t tokens) {
  return guarded([&]() -> Status {
    if (!staged_) return ended();
    if (tokens < 0) return negative(tokens);
    const auto cache = staged_->cache;  // outlives the lock
    const std::lock_guard writing(cache->writing);
    const auto layers = static_cast<std::int64_t>(cache->store->layout.layers.size());
    for (const auto& staged : staged_->sequences) {
      const std::int64_t kept = std::min(tokens, staged->most_staged());
      if (Status s = check_layers_reach(*staged, kept, layers); !s.ok()) return s;
    }
    std::vector<Ref<const SequenceState>> states;
    states.reserve(staged_->sequences.size());
    for (const auto& staged : staged_->sequences)
      states.push_back(staged->published(std::min(tokens, staged->most_staged())));
    for (const auto& staged : staged_->sequences) staged->keep(std::min(tokens, staged->most_staged()));
    {
      const std::lock_guard publishing(cache->publishing);
      for (std::size_t i = 0; i < states.size(); ++i)
        std::swap(cache->find(staged_->sequences[i]->id())->state, states[i]);
    }
    cache->open = nullptr;
    staged_.reset();
    return {};
  });
}

void Transaction::rollback() {
  if (!staged_) return;
  const auto cache = staged_->cache;
  const std::lock_guard writing(cache->writing);
  cache->open = nullptr;
  staged_.reset();
}

}  // namespace seriatim
