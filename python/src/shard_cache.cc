// Binds ShardedCache, its sequences and its transactions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "arrays.hpp"
#include "docs_shard.hpp"
#include "errors.hpp"
#include "paths.hpp"
#include "shard.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

namespace {

using Shared = std::shared_ptr<ShardedCacheHandle>;
using SharedStep = std::shared_ptr<ShardedTransactionHandle>;

void construct(ShardedCacheHandle* self, std::shared_ptr<GroupHandle> group, const Geometry& geometry,
               nb::handle layers, std::int64_t capacity_tokens, std::int64_t page_tokens, double imbalance) {
  ShardedCacheOptions options;
  options.cache.layers.clear();
  std::int64_t count = 0;
  if (nb::try_cast(layers, count, false)) {
    if (count < 1 || count > 65536) refuse("layers", std::to_string(count) + " is outside 1..65536");
    options.cache.layers.resize(static_cast<std::size_t>(count));
  } else {
    PyErr_Clear();
    for (nb::handle one : nb::iter(layers))
      options.cache.layers.emplace_back().index_norm_weight = floats(one, "layers");
  }
  options.cache.capacity_tokens = capacity_tokens;
  options.cache.page_tokens = page_tokens;
  options.imbalance = imbalance;
  auto made = in_turn(*group, [&] { return ShardedCache::create(geometry, std::move(options), group->group); });
  new (self) ShardedCacheHandle{std::move(group), value(std::move(made))};
}

ShardedSequenceHandle add(const Shared& self, std::int64_t anchor, nb::handle cuts) {
  const std::vector<std::int64_t> at = cuts.is_none() ? std::vector<std::int64_t>{} : integers(cuts, "cuts");
  return {self, value(in_turn(*self->group, [&] { return self->cache->add(anchor, at); }))};
}

SharedStep begin(const Shared& self) {
  return std::make_shared<ShardedTransactionHandle>(self,
                                                    value(in_turn(*self->group, [&] { return self->cache->begin(); })));
}

void save(const Shared& self, nb::handle path, nb::handle sequences) {
  const std::string folder = path_of(path);
  std::optional<std::vector<SequenceId>> ids;
  if (!sequences.is_none()) {
    ids.emplace();
    for (nb::handle one : nb::iter(sequences)) {
      const auto at = static_cast<std::int64_t>(ids->size());
      if (!nb::isinstance<ShardedSequenceHandle>(one))
        refuse("sequences", "holds what is no ShardedSequence", {.row = at});
      const auto& sequence = nb::cast<const ShardedSequenceHandle&>(one);
      if (sequence.cache != self) refuse("sequences", "one belongs to another cache", {.row = at});
      ids->push_back(sequence.id);
    }
  }
  check(in_turn(*self->group, [&] { return ids ? self->cache->save(folder, *ids) : self->cache->save(folder); }));
}

nb::dict restore(const Shared& self, nb::handle path, const std::string& mode) {
  const std::string from = path_of(path);
  const RestoreMode how = restore_mode_of(mode);
  nb::dict restored;
  for (const RestoredSequence& one : value(in_turn(*self->group, [&] { return self->cache->restore(from, how); })))
    restored[nb::cast(one.saved)] = ShardedSequenceHandle{self, one.id};
  return restored;
}

template <typename Work>
void changed(const ShardedSequenceHandle& self, const Work& work) {
  check(in_turn(*self.cache->group, [&] { return work(*self.cache->cache); }));
}

ShardedSnapshot snapshot_of(const ShardedSequenceHandle& self) {
  return value(in_turn(*self.cache->group, [&] { return self.cache->cache->snapshot(self.id); }));
}

ShardedLayerHandle layer_of(const ShardedSequenceHandle& self, std::int64_t layer) {
  ShardedSnapshot now = snapshot_of(self);
  if (layer < 0 || layer >= now.local().layers())
    refuse("layer", std::to_string(layer) + " is none of " + std::to_string(now.local().layers()));
  return {self.cache, std::move(now), nullptr, self.id, layer};
}

void rebalance(const ShardedSequenceHandle& self, nb::handle cuts) {
  if (cuts.is_none()) return changed(self, [&](ShardedCache& cache) { return cache.rebalance(self.id); });
  const std::vector<std::int64_t> at = integers(cuts, "cuts");
  changed(self, [&](ShardedCache& cache) { return cache.rebalance(self.id, at); });
}

SequenceId id_in(const ShardedTransactionHandle& self, const ShardedSequenceHandle& sequence) {
  if (sequence.cache != self.cache) refuse("sequence", "belongs to another cache");
  return sequence.id;
}

void append(ShardedTransactionHandle& self, const ShardedSequenceHandle& sequence, std::int64_t layer, nb::handle keys,
            nb::handle values, nb::handle index_keys, std::optional<std::int64_t> first_position,
            nb::handle given_coordinates) {
  const SequenceId id = id_in(self, sequence);
  const Input k = input(keys, "keys", 3);
  const Input v = input(values, "values", 3);
  const Input i = input(index_keys, "index_keys", 2);
  const std::vector<Coordinates> at = coordinates(given_coordinates, "coordinates");
  if (!given_coordinates.is_none() && static_cast<std::int64_t>(at.size()) != k.view.shape[0])
    refuse("coordinates", "there are " + std::to_string(at.size()) + ", one for each token is needed");
  check(in_turn(*self.cache->group, [&] {
    TokenBatch batch{0, k.view, v.view, i.view, given_coordinates.is_none() ? nullptr : at.data()};
    if (first_position) {
      batch.first_position = *first_position;
    } else {
      const Result<ShardedLayer> staged = self.transaction.layer(id, layer);
      if (!staged.ok()) return staged.status();
      batch.first_position = staged->run.anchor + staged->run.tokens;
    }
    return self.transaction.append(id, layer, batch);
  }));
}

void commit(ShardedTransactionHandle& self, std::optional<std::int64_t> tokens) {
  check(in_turn(*self.cache->group, [&] {
    Status status = tokens ? self.transaction.commit_prefix(*tokens) : self.transaction.commit();
    if (status.ok()) self.ended = true;
    return status;
  }));
}

void rollback(ShardedTransactionHandle& self) {
  in_turn(*self.cache->group, [&] {
    self.transaction.rollback();
    self.ended = true;
    return true;
  });
}

// Commits what the block staged unless it raised or has ended the transaction itself.
void leave(ShardedTransactionHandle& self, nb::handle type, nb::handle, nb::handle) {
  if (self.ended) return;
  if (!type.is_none()) return rollback(self);
  try {
    commit(self, std::nullopt);
  } catch (...) {
    rollback(self);
    throw;
  }
}

void bind_sequence(nb::module_& module) {
  const auto run_of = [](const ShardedSequenceHandle& self) { return snapshot_of(self).run(); };
  nb::class_<ShardedSequenceHandle>(module, "ShardedSequence", docs::kShardedSequence)
      .def_prop_ro("anchor", [run_of](const ShardedSequenceHandle& self) { return run_of(self).anchor; })
      .def_prop_ro("tokens", [run_of](const ShardedSequenceHandle& self) { return run_of(self).tokens; })
      .def_prop_ro(
          "borders", [](const ShardedSequenceHandle& self) { return snapshot_of(self).borders(); }, docs::kBorders)
      .def("layer", &layer_of, "layer"_a = 0, "One layer of its present state.")
      .def("rebalance", &rebalance, "cuts"_a = nb::none(),
           nb::sig("def rebalance(self, cuts: seriatim._types.Integers | None = None) -> None"), docs::kRebalance)
      .def(
          "truncate",
          [](const ShardedSequenceHandle& self, std::int64_t tokens) {
            changed(self, [&](ShardedCache& cache) { return cache.truncate(self.id, tokens); });
          },
          "tokens"_a, "Forgets the newest tokens, so that `tokens` stay.")
      .def(
          "evict_prefix",
          [](const ShardedSequenceHandle& self, std::int64_t tokens) {
            changed(self, [&](ShardedCache& cache) { return cache.evict_prefix(self.id, tokens); });
          },
          "tokens"_a, "Forgets the oldest tokens; the anchor moves.")
      .def(
          "fork",
          [](const ShardedSequenceHandle& self) {
            return ShardedSequenceHandle{
                self.cache, value(in_turn(*self.cache->group, [&] { return self.cache->cache->fork(self.id); }))};
          },
          "A new sequence that shares its tokens.")
      .def(
          "reset",
          [](const ShardedSequenceHandle& self, std::int64_t anchor) {
            changed(self, [&](ShardedCache& cache) { return cache.reset(self.id, anchor); });
          },
          "anchor"_a = 0, "Forgets every token and starts over at `anchor`.")
      .def(
          "remove",
          [](const ShardedSequenceHandle& self) {
            changed(self, [&](ShardedCache& cache) { return cache.remove(self.id); });
          },
          "Forgets the sequence.");
}

void bind_transaction(nb::module_& module) {
  nb::class_<ShardedTransactionHandle>(module, "ShardedTransaction", docs::kShardedTransaction)
      .def("append", &append, "sequence"_a, "layer"_a, "keys"_a, "values"_a = nb::none(), "index_keys"_a = nb::none(),
           nb::kw_only(), "first_position"_a = nb::none(), "coordinates"_a = nb::none(),
           nb::sig("def append(self, sequence: ShardedSequence, layer: int, keys: seriatim._types.Array, values: "
                   "seriatim._types.Array | None = None, index_keys: seriatim._types.Array | None = None, *, "
                   "first_position: int | None = None, coordinates: seriatim._types.Array | None = None) -> None"),
           docs::kShardedAppend)
      .def(
          "layer",
          [](const SharedStep& self, const ShardedSequenceHandle& of, std::int64_t layer) {
            return ShardedLayerHandle{self->cache, std::nullopt, self, id_in(*self, of), layer};
          },
          "sequence"_a, "layer"_a = 0, "The staged state; its tokens are visible to their own queries.")
      .def(
          "commit", [](ShardedTransactionHandle& self) { commit(self, std::nullopt); },
          "Publishes everything on all ranks, or nothing on any.")
      .def(
          "commit_prefix", [](ShardedTransactionHandle& self, std::int64_t tokens) { commit(self, tokens); },
          "tokens"_a, "Publishes the first `tokens` staged tokens of each sequence.")
      .def("rollback", &rollback, "Forgets everything that was staged and ends the transaction.")
      .def_ro("ended", &ShardedTransactionHandle::ended, "Whether it was committed or rolled back.")
      .def("__enter__", [](const SharedStep& self) { return self; })
      .def("__exit__", &leave, nb::arg().none(), nb::arg().none(), nb::arg().none(),
           nb::sig("def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object, "
                   "/) -> None"));
}

}  // namespace

void bind_sharded_cache(nb::module_& module, nb::class_<GroupHandle>& group) {
  nb::class_<ShardedLayerHandle> layer(module, "ShardedLayer", docs::kShardedLayer);
  bind_sequence(module);
  bind_transaction(module);
  nb::class_<ShardedCacheHandle>(module, "ShardedCache", docs::kShardedCache)
      .def("__init__", &construct, "group"_a, "geometry"_a, nb::kw_only(), "layers"_a = 1, "capacity_tokens"_a = 0,
           "page_tokens"_a = 0, "imbalance"_a = 0.25,
           nb::sig("def __init__(self, group: Group, geometry: Geometry, *, layers: int | "
                   "collections.abc.Iterable[seriatim._types.Floats] = 1, capacity_tokens: int = 0, page_tokens: int = "
                   "0, imbalance: float = 0.25) -> None"))
      .def_prop_ro("geometry", [](const ShardedCacheHandle& self) { return self.cache->geometry(); })
      .def_prop_ro("group", [](const ShardedCacheHandle& self) { return self.group; })
      .def("add", &add, "anchor"_a = 0, "cuts"_a = nb::none(),
           nb::sig("def add(self, anchor: int = 0, cuts: seriatim._types.Integers | None = None) -> ShardedSequence"),
           docs::kShardedAdd)
      .def(
          "even_cuts",
          [](const ShardedCacheHandle& self, std::int64_t tokens, std::int64_t anchor) {
            return self.cache->even_cuts({anchor, tokens});
          },
          "tokens"_a, "anchor"_a = 0, "Cuts that give every rank about as many whole pages of so many tokens.")
      .def("begin", &begin, "A transaction: appends that all ranks publish together or not at all.")
      .def("save", &save, "folder"_a, "sequences"_a = nb::none(),
           nb::sig("def save(self, folder: seriatim._types.Path, sequences: "
                   "collections.abc.Iterable[ShardedSequence] | None = None) -> None"),
           docs::kShardedSave)
      .def("restore", &restore, "path"_a, "mode"_a = "copy",
           nb::sig("def restore(self, path: seriatim._types.Path, mode: str = 'copy') -> dict[int, ShardedSequence]"),
           docs::kShardedRestore)
      .def_prop_ro(
          "bytes",
          [](const ShardedCacheHandle& self) {
            return in_turn(*self.group, [&] { return self.cache->local().bytes(); });
          },
          "Bytes held by this rank, by owner: a CacheBytes.");
  bind_sharded_steps(group, layer);
}

}  // namespace seriatim::python
