#include <cstring>
#include <utility>

#include "cache/state.hpp"
#include "seriatim/cache.hpp"

namespace seriatim {

const std::byte* LayerView::key(std::int64_t position, std::int64_t kv_head) const {
  const std::int64_t slot = first_slot + (position - run.anchor);
  const std::int64_t row = kv_head * page_tokens + slot % page_tokens;
  return pages[slot / page_tokens] + key_offset_bytes + row * geometry->head_dim() * dtype_bytes(geometry->kv_dtype());
}

const std::byte* LayerView::value(std::int64_t position, std::int64_t kv_head) const {
  if (geometry->values_alias_keys()) return key(position, kv_head);
  const std::int64_t slot = first_slot + (position - run.anchor);
  const std::int64_t row = kv_head * page_tokens + slot % page_tokens;
  return pages[slot / page_tokens] + value_offset_bytes +
         row * geometry->value_dim() * dtype_bytes(geometry->kv_dtype());
}

const std::byte* LayerView::raw_index_key(std::int64_t position) const {
  if (raw_offset_bytes == kAbsent) return nullptr;
  const std::int64_t slot = first_slot + (position - run.anchor);
  return pages[slot / page_tokens] + raw_offset_bytes +
         slot % page_tokens * geometry->index_dim() * dtype_bytes(geometry->index_dtype());
}

Coordinates LayerView::coordinates(std::int64_t position) const {
  const auto same = static_cast<std::int32_t>(position);
  Coordinates at{same, same, same};
  if (coordinates_offset_bytes == kAbsent) return at;
  const std::int64_t slot = first_slot + (position - run.anchor);
  std::memcpy(
      &at,
      pages[slot / page_tokens] + coordinates_offset_bytes + slot % page_tokens * static_cast<std::int64_t>(sizeof at),
      sizeof at);
  return at;
}

PooledKeys LayerView::pooled_up_to(std::int64_t position) const {
  PooledKeys visible = pooled;
  if (pooled.groups > 0) visible.groups = geometry->groups(position - run.anchor + 1);
  return visible;
}

Snapshot::Snapshot(const SequenceState* state) : state_(Ref<const SequenceState>(state).leak()) {}
Snapshot::Snapshot(const Snapshot& other) : Snapshot(other.state_) {}
Snapshot::Snapshot(Snapshot&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
Snapshot& Snapshot::operator=(Snapshot other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
Snapshot::~Snapshot() { Ref<const SequenceState>::adopt(state_); }

VisibleRun Snapshot::run() const { return state_->run; }

std::int64_t Snapshot::layers() const { return static_cast<std::int64_t>(state_->store->layout.layers.size()); }

Status Snapshot::check() const { return state_->check(); }

LayerView Snapshot::layer(std::int64_t layer) const { return view_layer(*state_, layer); }

}  // namespace seriatim
