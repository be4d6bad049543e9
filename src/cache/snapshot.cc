#include <utility>

#include "cache/state.hpp"
#include "seriatim/cache.hpp"

namespace seriatim {

Snapshot::Snapshot(const SequenceState* state) : state_(Ref<const SequenceState>(state).leak()) {}
Snapshot::Snapshot(const Snapshot& other) : Snapshot(other.state_) {}
Snapshot::Snapshot(Snapshot&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
Snapshot& Snapshot::operator=(Snapshot other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
Snapshot::~Snapshot() { Ref<const SequenceState>::adopt(state_); }

Snapshot Snapshot::of(const LayerView& view) { return Snapshot(view.state); }

VisibleRun Snapshot::run() const { return state_->run; }

std::int64_t Snapshot::layers() const { return static_cast<std::int64_t>(state_->store->layout.layers.size()); }

Status Snapshot::check() const { return state_->check(); }

LayerView Snapshot::layer(std::int64_t layer) const { return view_layer(*state_, layer); }

}  // namespace seriatim
