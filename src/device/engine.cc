#include "device/engine.hpp"

#include <algorithm>
#include <new>

#include "base/format.hpp"
#include "cache/state.hpp"

namespace seriatim {
namespace {

Status foreign(std::string_view what) {
  return Status::error(Code::kInvalidArgument, "layer", formatted("layer: {}", what));
}

// The kernels know the rule of contract section 2 alone.
Status admit_rule(const Geometry& geometry) {
  if (geometry.is_plain()) return {};
  return Status::error(
      Code::kUnsupported, "geometry",
      "geometry: pooling unit_max, tail group, forced groups and selections are not served on devices");
}

// The layers as the sequence's cache was made with them.
std::vector<LayerParameters> parameters_of(const Store& store) {
  std::vector<LayerParameters> layers(store.layout.layers.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    layers[l].index_norm_weight = store.norm_weights[l];
    layers[l].indexed = store.layout.layers[l].pooled != kAbsent;
  }
  return layers;
}

}  // namespace

Result<std::shared_ptr<PageAllocator>> DeviceEngine::allocator(const Geometry& geometry, const CacheOptions& options) {
  if (Status s = admit_rule(geometry); !s.ok()) return s;
  const auto bytes = DeviceMemory::bytes_for(geometry, options);
  if (!bytes.ok()) return bytes.status();
  auto made = DeviceMemory::create(device_, *bytes);
  if (!made.ok()) return made.status();
  try {
    const std::shared_ptr<DeviceMemory> memory = *std::move(made);
    std::erase_if(memories_, [](const auto& one) { return one.expired(); });
    memories_.push_back(memory);
    return std::shared_ptr<PageAllocator>(memory);
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "allocator", "allocator: the system refused memory");
  }
}

void DeviceEngine::let_go() {
  const Status drained = device_->impl().finish();  // an error moves the epoch on, and all is sent anew
  std::erase_if(followed_, [](const std::unique_ptr<Followed>& one) {
    const auto& held = one->sequence.impl().held;
    return !held || held->layer(0).state->exclusive();
  });
}

std::int64_t DeviceEngine::take_sent_bytes() {
  std::int64_t all = 0;
  for (const auto& one : followed_) all += one->sequence.take_sent_bytes();
  return all;
}

std::shared_ptr<DeviceMemory> DeviceEngine::memory_of(const LayerView& view) {
  const std::byte* page = view.pages[view.first_slot / view.page_tokens];
  for (const auto& one : memories_) {
    if (auto memory = one.lock(); memory && memory->impl().place_of(page)) return memory;
  }
  return nullptr;
}

Result<DeviceEngine::Followed*> DeviceEngine::make(const SequenceState& state,
                                                   const std::shared_ptr<DeviceMemory>& memory) {
  if (followed_.size() == kMostSequences) {
    if (Status s = device_->impl().finish(); !s.ok()) return s;  // its tables may be in use
    followed_.erase(std::min_element(followed_.begin(), followed_.end(),
                                     [](const auto& a, const auto& b) { return a->used < b->used; }));
  }
  const Store& store = *state.store;
  const std::int64_t pages = memory->impl().buffer.bytes() / store.layout.token_page_bytes;
  auto made = DeviceSequence::create(*memory, store.geometry, parameters_of(store),
                                     std::min(pages * store.layout.page_tokens, Geometry::kPositions));
  if (!made.ok()) return made.status();
  followed_.push_back(std::make_unique<Followed>(Followed{memory, *std::move(made)}));
  return followed_.back().get();
}

Result<DeviceEngine::Followed*> DeviceEngine::find_or_make(const LayerView& view,
                                                           const std::shared_ptr<DeviceMemory>& memory) {
  const Snapshot state = Snapshot::of(view);
  Followed* nearest = nullptr;  // shares the most tokens with the state
  std::int64_t most = 0;
  for (const auto& one : followed_) {
    const auto& held = one->sequence.impl().held;
    if (one->memory != memory || !held || held->layers() != state.layers()) continue;
    const LayerView before = held->layer(0);
    if (before.state == view.state) return one.get();
    if (before.geometry != view.geometry) continue;  // another cache
    const std::int64_t shared = device::held_tokens(state.layer(0), before);
    // Of equals rather one that nobody holds: it is what the sequence was before it moved on.
    if (shared > most || (shared == most && shared > 0 && before.state->exclusive())) {
      most = shared;
      nearest = one.get();
    }
  }
  Followed* to = nearest;
  if (nearest == nullptr || !nearest->sequence.impl().held->layer(0).state->exclusive()) {
    auto made = make(*view.state, memory);
    if (!made.ok()) return made;
    to = *made;
    const bool still_there =
        std::any_of(followed_.begin(), followed_.end(), [nearest](const auto& one) { return one.get() == nearest; });
    if (still_there) to->sequence.share(nearest->sequence);
  }
  if (Status s = to->sequence.follow(state); !s.ok()) {
    // One that holds nothing, or what it shared, is of no use.
    if (to != nearest) followed_.pop_back();
    return s;
  }
  return to;
}

Result<DeviceSequence*> DeviceEngine::bring_up(const LayerView& view) {
  if (view.state == nullptr) return foreign("borrowed memory, which has no copy on the device");
  const auto memory = memory_of(view);
  if (memory == nullptr) {
    return foreign("a page is not of this engine's memory (a file that was mapped, or a cache of another allocator)");
  }
  auto found = find_or_make(view, memory);
  if (!found.ok()) return found.status();
  Followed& to = **found;
  to.used = ++clock_;
  if (view.staged) {
    if (Status s = to.sequence.stage(view.layer, view); !s.ok()) return s;
  } else if (to.sequence.impl().staged || !to.sequence.impl().holds()) {
    if (Status s = to.sequence.follow(Snapshot::of(view)); !s.ok()) return s;
  }
  return &to.sequence;
}

DeviceEngine::Work* DeviceEngine::find(const Geometry& geometry) const {
  for (const auto& one : work_) {
    if (one->workspace.impl().geometry == geometry) return one.get();
  }
  return nullptr;
}

Result<std::int64_t> DeviceEngine::scratch_bytes_for(const Geometry& geometry, const StepLimits& limits) const {
  if (Status s = admit_rule(geometry); !s.ok()) return s;
  return DeviceWorkspace::bytes_for(geometry, limits.visible_tokens, std::max<std::int64_t>(limits.queries, 1));
}

std::int64_t DeviceEngine::scratch_bytes() const {
  std::int64_t all = 0;
  for (const auto& one : work_) all += one->workspace.device_bytes();
  return all;
}

bool DeviceEngine::holds(const Geometry& geometry, const StepLimits& needed) const {
  const Work* work = find(geometry);
  return work != nullptr && needed.visible_tokens <= work->limits.visible_tokens &&
         needed.queries <= work->limits.queries;
}

Status DeviceEngine::take(const Geometry& geometry, const StepLimits& limits) {
  if (Status s = admit_rule(geometry); !s.ok()) return s;
  if (holds(geometry, limits)) return {};
  StepLimits all = limits;
  all.queries = std::max<std::int64_t>(all.queries, 1);
  if (const Work* smaller = find(geometry)) {
    all.visible_tokens = std::max(all.visible_tokens, smaller->limits.visible_tokens);
    all.queries = std::max(all.queries, smaller->limits.queries);
    // Before the larger one, so that the device need not hold both.
    std::erase_if(work_, [smaller](const auto& one) { return one.get() == smaller; });
  }
  all.queries = std::min(all.queries, DeviceWorkspace::kMostQueries);
  auto made = DeviceWorkspace::create(device_, geometry, all.visible_tokens, all.queries);
  if (!made.ok()) return made.status();
  work_.push_back(std::make_unique<Work>(Work{*std::move(made), all}));
  return {};
}

// What one call may bring, whatever was reserved.
Status DeviceEngine::admit_count(const AskTable& table) const {
  if (table.queries() <= DeviceWorkspace::kMostQueries) return {};
  return Status::error(
      Code::kCapacity, "engine",
      formatted("engine: {} queries in a call, a device takes {}", table.queries(), DeviceWorkspace::kMostQueries));
}

Status DeviceEngine::run(const PlanBatch& batch) {
  if (batch.candidates != nullptr)
    return Status::error(Code::kUnsupported, "engine", "engine: candidates are chosen on the host alone");
  if (Status s = admit_count(batch.table); !s.ok()) return s;
  DeviceWorkspace& workspace = find(batch.geometry())->workspace;
  for (std::size_t a = 0; a < batch.asks.size(); ++a) {
    const PlanAsk& ask = batch.asks[a];
    if (batch.table[a].queries == 0) continue;
    const auto sequence = bring_up(*ask.layer);
    if (!sequence.ok()) return at_ask(workspace.drop(sequence.status()), a, batch.asks.size());
    if (Status s = workspace.plan(**sequence, ask.layer->layer, ask.queries, batch.nan, batch.rows); !s.ok()) return s;
  }
  const Status status = workspace.wait();
  if (status.code() != Code::kNotANumber) return status;
  const AskTable::Place place = batch.table.of_query(status.place().row);
  return nan_at(batch, place.ask, place.number, {.group = status.place().index});
}

namespace {

// What the host takes besides.
Status admit_host_only(const AttendBatch& batch) {
  const auto unsupported = [](std::string_view argument, std::string_view what) {
    return Status::error(Code::kUnsupported, argument, formatted("{}: {}", argument, what));
  };
  if (batch.rows.biases != nullptr) return unsupported("rows", "biases are added on the host alone");
  for (std::size_t a = 0; a < batch.asks.size(); ++a) {
    if (batch.asks[a].queries.queries.dtype == batch.geometry().kv_dtype()) continue;
    return at_ask(unsupported("queries", "a dtype other than that of the keys, on a device"), a, batch.asks.size());
  }
  return {};
}

}  // namespace

Status DeviceEngine::run(const AttendBatch& batch) {
  if (Status s = admit_count(batch.table); !s.ok()) return s;
  if (Status s = admit_host_only(batch); !s.ok()) return s;
  DeviceWorkspace& workspace = find(batch.geometry())->workspace;
  const std::int64_t capacity = batch.geometry().row_capacity();
  for (std::int64_t q = 0; q < batch.table.queries(); ++q) {
    if (batch.rows.counts[q] <= capacity) continue;
    const AskTable::Place place = batch.table.of_query(q);
    return at_ask(Status::error(Code::kCapacity, "rows",
                                formatted("rows: {} entries of query {}, the device takes {}", batch.rows.counts[q],
                                          place.number, capacity),
                                {place.number, -1}),
                  place.ask, batch.asks.size());
  }
  for (std::size_t a = 0; a < batch.asks.size(); ++a) {
    const AttendAsk& ask = batch.asks[a];
    if (batch.table[a].queries == 0) continue;
    const auto sequence = bring_up(*ask.layer);
    if (!sequence.ok()) return at_ask(workspace.drop(sequence.status()), a, batch.asks.size());
    const std::int64_t first = batch.table[a].first_query;
    const ConstRows rows{batch.rows.positions + first * batch.rows.stride, batch.rows.stride,
                         batch.rows.counts + first};
    if (Status s = workspace.attend(**sequence, ask.layer->layer, ask.queries, rows, batch.output, batch.lse); !s.ok())
      return s;
  }
  const Status status = workspace.wait();
  return status.code() == Code::kOverflow ? overflow_at(batch, status.place().row, status.place().index) : status;
}

Status DeviceEngine::run(const PartialBatch&) {
  return Status::error(Code::kUnsupported, "engine", "engine: partials are made on the host alone");
}

Status DeviceEngine::run(const FoldBatch&) {
  return Status::error(Code::kUnsupported, "engine", "engine: partials are folded on the host alone");
}

Result<Engine> Engine::on(std::shared_ptr<Device> device) {
  if (device == nullptr) return Status::error(Code::kInvalidArgument, "device", "device: null");
  try {
    return Engine(std::make_unique<DeviceEngine>(std::move(device)));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "engine", "engine: the system refused memory");
  }
}

}  // namespace seriatim
