// What a sequence is: an immutable value that a public call swaps for another.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/layout.hpp"
#include "cache/pages.hpp"
#include "cache/ref.hpp"
#include "cache/table.hpp"
#include "seriatim/cache.hpp"

namespace seriatim {

// What all sequences of one cache share. It lives until the last state that refers to it is gone, so that a snapshot
// may outlive its cache.
struct Store : Counted {
  Store(const Geometry& g, Layout l, std::vector<std::vector<float>> weights, Kernels k, PageAllocator& allocator,
        std::int64_t capacity_pages)
      : geometry(g),
        kernels(k),
        layout(std::move(l)),
        norm_weights(std::move(weights)),
        token_pages(allocator, layout.token_page_bytes, capacity_pages),
        pooled_pages(allocator, layout.pooled_page_bytes,
                     layout.pooled_page_bytes == 0 ? 0 : kPooledPagesPerTokenPage * capacity_pages) {}

  // An evicted prefix recomputes pooled keys beside the old ones; a full cache must have room for that.
  static constexpr std::int64_t kPooledPagesPerTokenPage = 2;

  const Geometry geometry;
  const Kernels kernels;
  const Layout layout;
  const std::vector<std::vector<float>> norm_weights;  // per layer, [index_dim]
  Ledger bookkeeping_bytes{0};                         // tables, states and mappings
  Ledger mapped_bytes{0};
  PagePool token_pages;
  PagePool pooled_pages;
};

inline void dispose(Store* store) noexcept { delete store; }

// Where a sequence's slots lie. Slot `first` of the first page belongs to the anchor (or to group 0).
struct Span {
  Ref<const Table> table;  // null without slots
  std::int64_t first = 0;
};

struct SequenceState : Counted {
  // Throws bad_alloc.
  static Ref<const SequenceState> make(Ref<Store> store, VisibleRun run, Span tokens, Span groups, float largest_pooled,
                                       Ref<Mapping> mapping);
  static Ref<const SequenceState> make_empty(Ref<Store> store, std::int64_t anchor);

  SequenceState(Ref<Store> s, VisibleRun r, Span t, Span g, float l, Ref<Mapping> m)
      : store(std::move(s)),
        run(r),
        tokens(std::move(t)),
        groups(std::move(g)),
        largest_pooled(l),
        mapping(std::move(m)) {}

  // Ask after reading pages. Errors  Io: some of what was read was not there.
  Status check() const { return mapping && mapping->damaged().load() ? damaged_error() : Status(); }

  const Ref<Store> store;  // first, so that it goes last
  const VisibleRun run;
  const Span tokens;
  const Span groups;
  const float largest_pooled;  // no pooled key of any layer has a larger magnitude; infinity: not known
  const Ref<Mapping> mapping;  // null unless some of the pages may be a file's
};

void dispose(const SequenceState* state) noexcept;

// The pages that `slots` slots from `first` reach.
inline std::int64_t pages_for(std::int64_t first, std::int64_t slots, std::int64_t page_slots) {
  return slots == 0 ? 0 : (first + slots + page_slots - 1) / page_slots;
}

// The state that keeps the first `tokens` tokens. Throws bad_alloc.
Ref<const SequenceState> state_prefix(const SequenceState& state, std::int64_t tokens);

// The state without the first `tokens` tokens, of which there are more. Pooled keys stay where the groups do; otherwise
// the state has none yet and `repool` is true. Throws bad_alloc.
struct Suffix {
  Ref<const SequenceState> state;
  bool repool = false;
};
Suffix state_suffix(const SequenceState& state, std::int64_t tokens);

// `tokens` and `groups` may be null when run.tokens is 0.
LayerView view_layer(const Store& store, std::int64_t layer, VisibleRun run, const Table* tokens,
                     std::int64_t first_token, const Table* groups, std::int64_t first_group, float largest_pooled,
                     const Mapping* mapping);
LayerView view_layer(const SequenceState& state, std::int64_t layer);

}  // namespace seriatim
