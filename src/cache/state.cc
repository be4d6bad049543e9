#include "cache/state.hpp"

#include <utility>

namespace seriatim {

Ref<const SequenceState> SequenceState::make(Ref<Store> store, VisibleRun run, Span tokens, Span groups,
                                             float largest_pooled, Ref<Mapping> mapping) {
  auto* state = new SequenceState(std::move(store), run, std::move(tokens), std::move(groups), largest_pooled,
                                  std::move(mapping));
  state->store->bookkeeping_bytes += static_cast<std::int64_t>(sizeof(SequenceState));
  return Ref<const SequenceState>(state);
}

Ref<const SequenceState> SequenceState::make_empty(Ref<Store> store, std::int64_t anchor) {
  return make(std::move(store), {anchor, 0}, {}, {}, 0.0f, {});
}

void dispose(const SequenceState* state) noexcept {
  state->store->bookkeeping_bytes -= static_cast<std::int64_t>(sizeof(SequenceState));
  delete state;
}

namespace {

// The pages that the first `slots` slots reach; the same table when that is all of them.
Span span_prefix(Ledger& ledger, const Span& span, std::int64_t slots, std::int64_t page_slots) {
  const std::int64_t pages = pages_for(span.first, slots, page_slots);
  if (pages == 0) return {};
  if (pages == span.table->length()) return span;
  return {Table::make(ledger, span.table.get(), 0, pages, pages), span.first};
}

// What is left of a span without its first `dropped` slots, of which there are more.
Span span_suffix(Ledger& ledger, const Span& span, std::int64_t dropped, std::int64_t page_slots) {
  const std::int64_t first = span.first + dropped;
  const std::int64_t pages = first / page_slots;
  if (pages == 0) return {span.table, first};
  const std::int64_t length = span.table->length();
  return {Table::make(ledger, span.table.get(), pages, length, length - pages), first % page_slots};
}

}  // namespace

Ref<const SequenceState> state_prefix(const SequenceState& state, std::int64_t tokens) {
  Store& store = *state.store;
  const std::int64_t groups = store.layout.pooled_page_bytes == 0 ? 0 : store.geometry.index_keys(tokens);
  return SequenceState::make(state.store, {state.run.anchor, tokens},
                             span_prefix(store.bookkeeping_bytes, state.tokens, tokens, store.layout.page_tokens),
                             span_prefix(store.bookkeeping_bytes, state.groups, groups, store.layout.page_groups),
                             state.largest_pooled, tokens == 0 ? Ref<Mapping>() : state.mapping);
}

Suffix state_suffix(const SequenceState& state, std::int64_t tokens) {
  Store& store = *state.store;
  const VisibleRun run{state.run.anchor + tokens, state.run.tokens - tokens};
  const std::int64_t r = store.geometry.key_tokens();
  const bool pooled = store.layout.pooled_page_bytes > 0 && store.geometry.index_keys(run.tokens) > 0;
  const bool repool = pooled && tokens % r != 0;
  Span tokens_left = span_suffix(store.bookkeeping_bytes, state.tokens, tokens, store.layout.page_tokens);
  Span groups_left;
  if (pooled && !repool) {
    groups_left = span_suffix(store.bookkeeping_bytes, state.groups, tokens / r, store.layout.page_groups);
  }
  return {SequenceState::make(state.store, run, std::move(tokens_left), std::move(groups_left),
                              repool ? 0.0f : state.largest_pooled, state.mapping),
          repool};
}

LayerView view_layer(const Store& store, std::int64_t layer, VisibleRun run, const Table* tokens,
                     std::int64_t first_token, const Table* groups, std::int64_t first_group, float largest_pooled,
                     const Mapping* mapping) {
  const LayerLayout& at = store.layout.layers[static_cast<std::size_t>(layer)];
  LayerView view;
  view.geometry = &store.geometry;
  view.layer = layer;
  view.run = run;
  view.pages = tokens == nullptr ? nullptr : tokens->data();
  view.page_tokens = store.layout.page_tokens;
  view.first_slot = first_token;
  view.key_offset_bytes = at.groups;
  view.set_cache_strides();
  view.raw_offset_bytes = at.raw;
  view.indexed = at.pooled != kAbsent;
  view.coordinates_offset_bytes = store.layout.coordinates;
  view.damaged = mapping == nullptr ? nullptr : &mapping->damaged();
  view.pooled.pages = groups == nullptr ? nullptr : groups->data();
  view.pooled.page_groups = store.layout.page_groups;
  view.pooled.offset_bytes = at.pooled == kAbsent ? 0 : at.pooled;
  view.pooled.first_slot = first_group;
  view.pooled.groups = at.pooled == kAbsent ? 0 : store.geometry.index_keys(run.tokens);
  view.pooled.dim = store.geometry.index_dim();
  view.pooled.dtype = store.geometry.index_dtype();
  view.pooled.max_abs = largest_pooled;
  return view;
}

LayerView view_layer(const SequenceState& state, std::int64_t layer) {
  LayerView view = view_layer(*state.store, layer, state.run, state.tokens.table.get(), state.tokens.first,
                              state.groups.table.get(), state.groups.first, state.largest_pooled, state.mapping.get());
  view.state = &state;
  return view;
}

}  // namespace seriatim
