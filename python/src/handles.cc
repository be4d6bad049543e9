#include "handles.hpp"

#include <algorithm>

namespace seriatim::python {

const Geometry& LayerHandle::geometry() const { return borrowed ? borrowed->geometry : cache->cache->geometry(); }

std::shared_ptr<EngineHandle> LayerHandle::engine(const std::shared_ptr<EngineHandle>& given) const {
  return engine_or_default(given || !cache ? given : cache->engine);
}

Status HeldLayers::hold(std::span<const LayerHandle* const> layers) {
  std::vector<TransactionHandle*> transactions;
  for (const LayerHandle* layer : layers) {
    const LayerHandle* read = layer->borrowed && layer->borrowed->index ? &*layer->borrowed->index : layer;
    if (read->transaction) transactions.push_back(read->transaction.get());
  }
  // Each once, and in one order for all calls, so that none waits for another in a ring.
  std::sort(transactions.begin(), transactions.end());
  transactions.erase(std::unique(transactions.begin(), transactions.end()), transactions.end());
  for (TransactionHandle* transaction : transactions) locks_.emplace_back(transaction->turn);
  for (const LayerHandle* layer : layers) {
    Result<LayerView> view = view_of(*layer);
    if (!view.ok()) return view.status();
    views_.push_back(*view);
  }
  return {};
}

Result<LayerView> HeldLayers::view_of(const LayerHandle& handle) const {
  if (handle.snapshot) return handle.snapshot->layer(handle.layer);
  if (handle.transaction) return handle.transaction->transaction.layer(handle.sequence, handle.layer);
  LayerView view = handle.borrowed->layer.view();
  if (!handle.borrowed->index) return view;
  // Of an open transaction the pooled keys may have moved, though not while nothing is appended.
  const Result<LayerView> index = view_of(*handle.borrowed->index);
  if (!index.ok()) return index;
  if (index->run.anchor != view.run.anchor || index->run.tokens != view.run.tokens) {
    return Status::error(Code::kInvalidArgument, "index", "index: it has gone on since it was borrowed; borrow anew");
  }
  view.pooled = index->pooled;
  view.damaged = index->damaged;
  return view;
}

Status HeldLayers::check() const {
  for (const LayerView& view : views_) {
    if (view.damaged != nullptr && view.damaged->load()) {
      return Status::error(Code::kIo, "layer", "the mapped file was cut short; what was read past its end is zeros");
    }
  }
  return {};
}

}  // namespace seriatim::python
