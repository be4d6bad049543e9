#include "seriatim/cache.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.hpp"
#include "base/format.hpp"
#include "cache/impl.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 48;

Status invalid(std::string_view argument, std::string_view what, Place place = {}) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what), place);
}

// Gives   the norm weights of every layer, zeros where none are given.
Result<std::vector<std::vector<float>>> admit_layers(const Geometry& geometry, const CacheOptions& options) {
  if (options.layers.empty()) return invalid("layers", "there is none");
  std::vector<std::vector<float>> weights;
  for (std::size_t l = 0; l < options.layers.size(); ++l) {
    const std::vector<float>& weight = options.layers[l].index_norm_weight;
    const auto layer = static_cast<std::int64_t>(l);
    if (options.index_only && !options.layers[l].indexed)
      return invalid("layers", formatted("layer {} of an index store has no index", layer), {layer, -1});
    if (!weight.empty() && static_cast<std::int64_t>(weight.size()) != geometry.index_dim()) {
      return invalid("index_norm_weight",
                     formatted("layer {} has {} entries for {} dims", layer, weight.size(), geometry.index_dim()),
                     {layer, -1});
    }
    for (std::size_t i = 0; i < weight.size(); ++i) {
      if (std::isfinite(weight[i])) continue;
      return Status::error(Code::kNotFinite, "index_norm_weight",
                           formatted("index_norm_weight: entry {} of layer {} is {}", i, layer, weight[i]),
                           {layer, static_cast<std::int64_t>(i)});
    }
    weights.push_back(weight.empty() ? std::vector<float>(static_cast<std::size_t>(geometry.index_dim())) : weight);
  }
  return weights;
}

// Gives   how many token pages there may be.
Result<std::int64_t> admit_capacity(const Layout& layout, const CacheOptions& options) {
  if (options.capacity_tokens < 0 || options.capacity_tokens > kMostTokens) {
    return invalid("capacity_tokens", formatted("{} is not in 0..{}", options.capacity_tokens, kMostTokens));
  }
  if (options.capacity_bytes < 0) return invalid("capacity_bytes", formatted("{} is negative", options.capacity_bytes));
  if (options.capacity_tokens > 0 && options.capacity_bytes > 0) {
    return invalid("capacity_bytes", "given beside capacity_tokens; one of them decides");
  }
  if (options.capacity_bytes == 0) return pages_for(0, options.capacity_tokens, layout.page_tokens);
  const auto pooled = checked_mul(Store::kPooledPagesPerTokenPage, layout.pooled_page_bytes);
  const auto bytes = pooled ? checked_add(*pooled, layout.token_page_bytes) : std::nullopt;
  return bytes ? options.capacity_bytes / *bytes : 0;
}

}  // namespace

Status not_found(SequenceId sequence) {
  return Status::error(Code::kNotFound, "sequence", formatted("sequence: there is no sequence {}", sequence),
                       {sequence, -1});
}

const Cache::Impl::Entry* Cache::Impl::find(SequenceId sequence) const {
  const auto at = std::lower_bound(sequences.begin(), sequences.end(), sequence,
                                   [](const Entry& entry, SequenceId id) { return entry.id < id; });
  return at == sequences.end() || at->id != sequence ? nullptr : &*at;
}

Cache::Impl::Entry* Cache::Impl::find(SequenceId sequence) {
  return const_cast<Entry*>(static_cast<const Impl*>(this)->find(sequence));
}

Result<Cache::Impl::Entry*> Cache::Impl::find_unstaged(SequenceId sequence) {
  Entry* entry = find(sequence);
  if (entry == nullptr) return not_found(sequence);
  if (open != nullptr && open->find(sequence) != nullptr) {
    return invalid("sequence", formatted("sequence {} is in the open transaction", sequence), {sequence, -1});
  }
  return entry;
}

SequenceId Cache::Impl::add(Ref<const SequenceState> state) {
  const std::lock_guard lock(publishing);
  sequences.push_back({next_id, std::move(state)});
  return next_id++;
}

void Cache::Impl::publish(Entry& entry, Ref<const SequenceState> state) noexcept {
  const std::lock_guard lock(publishing);
  std::swap(entry.state, state);
}

Cache::Cache(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cache::~Cache() = default;

Result<std::unique_ptr<Cache>> Cache::create(const Geometry& geometry, CacheOptions options) {
  return guarded([&]() -> Result<std::unique_ptr<Cache>> {
    auto weights = admit_layers(geometry, options);
    if (!weights.ok()) return weights.status();
    auto layout = Layout::make(geometry, options);
    if (!layout.ok()) return layout.status();
    const auto pages = admit_capacity(*layout, options);
    if (!pages.ok()) return pages.status();
    auto buffers = PoolBuffers::make(geometry, *layout, options.kernels);
    if (!buffers.ok()) return buffers.status();
    PageAllocator& allocator = options.allocator == nullptr ? heap_page_allocator() : *options.allocator;
    Ref<Store> store(new Store(geometry, std::move(*layout), std::move(*weights), options.kernels, allocator, *pages));
    auto impl = std::make_shared<Impl>(std::move(store), std::move(*buffers));
    if (options.reserve) {
      if (Status s = impl->store->token_pages.reserve(); !s.ok()) return s;
      if (Status s = impl->store->pooled_pages.reserve(); !s.ok()) return s;
    }
    return std::unique_ptr<Cache>(new Cache(std::move(impl)));
  });
}

const Geometry& Cache::geometry() const { return impl_->store->geometry; }

Result<SequenceId> Cache::add(std::int64_t anchor) {
  return guarded([&]() -> Result<SequenceId> {
    if (Status s = geometry().check_run({anchor, 0}); !s.ok()) return s;
    const std::lock_guard writing(impl_->writing);
    return impl_->add(SequenceState::make_empty(impl_->store, anchor));
  });
}

Status Cache::remove(SequenceId sequence) {
  return guarded([&]() -> Status {
    const std::lock_guard writing(impl_->writing);
    const auto entry = impl_->find_unstaged(sequence);
    if (!entry.ok()) return entry.status();
    const Ref<const SequenceState> last = (*entry)->state;  // its pages are given back after the lock
    const std::lock_guard publishing(impl_->publishing);
    impl_->sequences.erase(impl_->sequences.begin() + (*entry - impl_->sequences.data()));
    return {};
  });
}

Status Cache::reset(SequenceId sequence, std::int64_t anchor) {
  return guarded([&]() -> Status {
    if (Status s = geometry().check_run({anchor, 0}, sequence); !s.ok()) return s;
    const std::lock_guard writing(impl_->writing);
    const auto entry = impl_->find_unstaged(sequence);
    if (!entry.ok()) return entry.status();
    impl_->publish(**entry, SequenceState::make_empty(impl_->store, anchor));
    return {};
  });
}

Status Cache::truncate(SequenceId sequence, std::int64_t tokens) {
  return guarded([&]() -> Status {
    const std::lock_guard writing(impl_->writing);
    const auto entry = impl_->find_unstaged(sequence);
    if (!entry.ok()) return entry.status();
    const SequenceState& state = *(*entry)->state;
    if (tokens < 0 || tokens > state.run.tokens) {
      return invalid("tokens",
                     formatted("{} is not in 0..{}, what sequence {} holds", tokens, state.run.tokens, sequence),
                     {sequence, -1});
    }
    impl_->publish(**entry, state_prefix(state, tokens));
    return {};
  });
}

Result<Transaction> Cache::begin() {
  return guarded([&]() -> Result<Transaction> {
    const std::lock_guard writing(impl_->writing);
    if (impl_->open != nullptr) return invalid("transaction", "one is open already");
    auto staged = std::make_unique<Transaction::Staged>();
    staged->cache = impl_;
    impl_->open = staged.get();
    return Transaction(std::move(staged));
  });
}

Result<Snapshot> Cache::snapshot(SequenceId sequence) const {
  return guarded([&]() -> Result<Snapshot> {
    const std::lock_guard publishing(impl_->publishing);
    const Impl::Entry* entry = std::as_const(*impl_).find(sequence);
    if (entry == nullptr) return not_found(sequence);
    return Snapshot(entry->state.get());
  });
}

void Cache::trim() {
  impl_->store->token_pages.trim();
  impl_->store->pooled_pages.trim();
}

CacheBytes Cache::bytes() const {
  const Store& store = *impl_->store;
  const PagePool::Count tokens = store.token_pages.count();
  const PagePool::Count pooled = store.pooled_pages.count();
  CacheBytes bytes;
  bytes.keys_values = tokens.used * store.layout.keys_values_bytes;
  bytes.raw_index_keys = tokens.used * store.layout.raw_bytes;
  bytes.coordinates = tokens.used * store.layout.coordinates_bytes;
  bytes.pooled_keys = pooled.used * store.layout.pooled_page_bytes;
  bytes.free_pages = tokens.free * store.layout.token_page_bytes + pooled.free * store.layout.pooled_page_bytes;
  bytes.mapped = store.mapped_bytes.load();
  const std::int64_t pages = tokens.used + tokens.free + tokens.wrapped + pooled.used + pooled.free + pooled.wrapped;
  const std::lock_guard publishing(impl_->publishing);
  bytes.tables = store.bookkeeping_bytes.load() + pages * static_cast<std::int64_t>(sizeof(Page)) +
                 static_cast<std::int64_t>(impl_->sequences.capacity() * sizeof(Impl::Entry));
  return bytes;
}

}  // namespace seriatim
