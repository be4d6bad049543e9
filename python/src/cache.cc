// Binds Cache and Sequence.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "bind.hpp"
#include "docs.hpp"
#include "errors.hpp"
#include "handles.hpp"
#include "paths.hpp"
#include "unlocked.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

namespace {

using Shared = std::shared_ptr<CacheHandle>;

// Calls `work(Cache&)` without the interpreter's lock and gives its value, or raises.
template <typename Work>
auto released(const Shared& self, const Work& work) {
  auto result = [&] {
    const Unlocked unlocked;
    return work(*self->cache);
  }();
  if constexpr (std::is_same_v<decltype(result), Status>) {
    check(result);
  } else {
    return value(std::move(result));
  }
}

std::vector<LayerParameters> layers_of(nb::handle given) {
  std::vector<LayerParameters> layers;
  std::int64_t count = 0;
  if (nb::try_cast(given, count, false)) {
    if (count < 1 || count > 65536) refuse("layers", std::to_string(count) + " is outside 1..65536");
    layers.resize(static_cast<std::size_t>(count));
    return layers;
  }
  PyErr_Clear();
  for (nb::handle one : nb::iter(given)) {
    LayerParameters& layer = layers.emplace_back();
    if (nb::isinstance<nb::bool_>(one)) {
      layer.indexed = nb::cast<bool>(one);
    } else {
      layer.index_norm_weight = floats(one, "layers");
    }
  }
  return layers;
}

void construct(CacheHandle* self, const Geometry& geometry, nb::handle layers, std::int64_t capacity_tokens,
               std::int64_t capacity_bytes, bool reserve, std::int64_t page_tokens, bool index_only,
               const std::shared_ptr<EngineHandle>& engine) {
  CacheOptions options;
  options.layers = layers_of(layers);
  options.capacity_tokens = capacity_tokens;
  options.capacity_bytes = capacity_bytes;
  options.index_only = index_only;
  options.reserve = reserve;
  options.page_tokens = page_tokens;
  std::shared_ptr<PageAllocator> pages;
  if (engine) {
    Result<std::shared_ptr<PageAllocator>> from = [&] {
      const Unlocked unlocked;
      return engine->allocator(geometry, options);
    }();
    pages = value(std::move(from));
    options.allocator = pages.get();
  }
  Result<std::unique_ptr<Cache>> made = [&] {
    const Unlocked unlocked;
    return Cache::create(geometry, std::move(options));
  }();
  new (self) CacheHandle{engine, std::move(pages), value(std::move(made))};
}

void save(const Shared& self, nb::handle path, nb::handle sequences) {
  const std::string name = path_of(path);
  std::optional<std::vector<SequenceId>> ids;
  if (!sequences.is_none()) {
    ids.emplace();
    for (nb::handle one : nb::iter(sequences)) {
      if (!nb::isinstance<SequenceHandle>(one))
        refuse("sequences", "holds what is no Sequence", {.row = static_cast<std::int64_t>(ids->size())});
      const auto& sequence = nb::cast<const SequenceHandle&>(one);
      if (sequence.cache != self)
        refuse("sequences", "one belongs to another cache", {.row = static_cast<std::int64_t>(ids->size())});
      ids->push_back(sequence.id);
    }
  }
  static std::mutex saving;  // saves to one path take turns
  released(self, [&](Cache& cache) {
    const std::lock_guard turn(saving);
    return ids ? cache.save(name, *ids) : cache.save(name);
  });
}

nb::dict restore(const Shared& self, nb::handle path, const std::string& mode) {
  const std::string name = path_of(path);
  const RestoreMode how = restore_mode_of(mode);
  nb::dict restored;
  for (const RestoredSequence& one : released(self, [&](Cache& cache) { return cache.restore(name, how); })) {
    restored[nb::cast(one.saved)] = SequenceHandle{self, one.id};
  }
  return restored;
}

std::string repr(const CacheBytes& b) {
  return "CacheBytes(keys_values=" + std::to_string(b.keys_values) +
         ", raw_index_keys=" + std::to_string(b.raw_index_keys) + ", pooled_keys=" + std::to_string(b.pooled_keys) +
         ", coordinates=" + std::to_string(b.coordinates) + ", free_pages=" + std::to_string(b.free_pages) +
         ", mapped=" + std::to_string(b.mapped) + ", tables=" + std::to_string(b.tables) + ")";
}

SnapshotHandle snapshot_of(const SequenceHandle& self) {
  return {self.cache, released(self.cache, [&](Cache& cache) { return cache.snapshot(self.id); })};
}

VisibleRun run_of(const SequenceHandle& self) { return snapshot_of(self).snapshot.run(); }

LayerHandle layer_of(const SequenceHandle& self, std::int64_t layer) {
  const SnapshotHandle now = snapshot_of(self);
  if (layer < 0 || layer >= now.snapshot.layers())
    refuse("layer", std::to_string(layer) + " is none of " + std::to_string(now.snapshot.layers()));
  return {self.cache, now.snapshot, nullptr, self.id, layer, nullptr};
}

void copy_from(const SequenceHandle& self, const SequenceHandle& source, std::int64_t first_position,
               std::int64_t tokens) {
  if (source.cache != self.cache) refuse("source", "belongs to another cache");
  released(self.cache, [&](Cache& cache) { return cache.copy(source.id, first_position, tokens, self.id); });
}

// As released(), for what takes tokens from a sequence.
template <typename Work>
void shrunk(const SequenceHandle& self, const Work& work) {
  released(self.cache, [&](Cache& cache) {
    const Status status = work(cache);
    if (status.ok() && self.cache->engine) self.cache->engine->let_go();
    return status;
  });
}

void remove(const SequenceHandle& self) {
  shrunk(self, [&](Cache& cache) { return cache.remove(self.id); });
}

// The end of a `with` block forgets the sequence, unless the block has done so.
void leave(const SequenceHandle& self, nb::handle, nb::handle, nb::handle) {
  released(self.cache, [&](Cache& cache) {
    Status status = cache.remove(self.id);
    return status.code() == Code::kNotFound ? Status() : status;
  });
}

void bind_sequence(nb::module_& module) {
  auto sequence = nb::borrow<nb::class_<SequenceHandle>>(module.attr("Sequence"));
  sequence.def_ro("id", &SequenceHandle::id, "Its number, never used again in this cache.")
      .def_prop_ro(
          "anchor", [](const SequenceHandle& self) { return run_of(self).anchor; }, "Position of the first token.")
      .def_prop_ro(
          "tokens", [](const SequenceHandle& self) { return run_of(self).tokens; }, "Tokens that it holds.")
      .def_prop_ro(
          "frontier",
          [](const SequenceHandle& self) {
            const VisibleRun run = run_of(self);
            return run.anchor + run.tokens;
          },
          "Position of the next token.")
      .def("__len__", [](const SequenceHandle& self) { return run_of(self).tokens; })
      .def("snapshot", &snapshot_of, "Its present state, which stays as it is while the sequence goes on.")
      .def("layer", &layer_of, "layer"_a = 0, "One layer of its present state.")
      .def(
          "truncate",
          [](const SequenceHandle& self, std::int64_t tokens) {
            shrunk(self, [&](Cache& cache) { return cache.truncate(self.id, tokens); });
          },
          "tokens"_a, docs::kTruncate)
      .def(
          "fork",
          [](const SequenceHandle& self) {
            return SequenceHandle{self.cache, released(self.cache, [&](Cache& cache) { return cache.fork(self.id); })};
          },
          docs::kFork)
      .def(
          "evict_prefix",
          [](const SequenceHandle& self, std::int64_t tokens) {
            shrunk(self, [&](Cache& cache) { return cache.evict_prefix(self.id, tokens); });
          },
          "tokens"_a, docs::kEvict)
      .def("copy_from", &copy_from, "source"_a, "first_position"_a, "tokens"_a, docs::kCopyFrom)
      .def(
          "reset",
          [](const SequenceHandle& self, std::int64_t anchor) {
            shrunk(self, [&](Cache& cache) { return cache.reset(self.id, anchor); });
          },
          "anchor"_a = 0, "Forgets every token and starts over at `anchor`.")
      .def("remove", &remove, "Forgets the sequence. Snapshots of it stay valid.")
      .def("__enter__", [](const SequenceHandle& self) { return self; })
      .def("__exit__", &leave, nb::arg().none(), nb::arg().none(), nb::arg().none(),
           nb::sig("def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object, "
                   "/) -> None"))
      .def(
          "__eq__",
          [](const SequenceHandle& a, nb::handle b) {
            if (!nb::isinstance<SequenceHandle>(b)) return false;
            const auto& other = nb::cast<const SequenceHandle&>(b);
            return a.cache == other.cache && a.id == other.id;
          },
          nb::arg().none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const SequenceHandle& self) { return static_cast<Py_hash_t>(self.id); })
      .def("__repr__", [](const SequenceHandle& self) { return "Sequence(id=" + std::to_string(self.id) + ")"; });
}

}  // namespace

void bind_cache(nb::module_& module) {
  bind_sequence(module);
  nb::class_<CacheBytes>(module, "CacheBytes", docs::kCacheBytes)
      .def_ro("keys_values", &CacheBytes::keys_values)
      .def_ro("raw_index_keys", &CacheBytes::raw_index_keys)
      .def_ro("pooled_keys", &CacheBytes::pooled_keys)
      .def_ro("coordinates", &CacheBytes::coordinates)
      .def_ro("free_pages", &CacheBytes::free_pages)
      .def_ro("mapped", &CacheBytes::mapped)
      .def_ro("tables", &CacheBytes::tables)
      .def_prop_ro("pages", &CacheBytes::pages)
      .def_prop_ro("total", &CacheBytes::total)
      .def("__repr__", &repr);
  nb::class_<CacheHandle>(module, "Cache", docs::kCache)
      .def("__init__", &construct, "geometry"_a, nb::kw_only(), "layers"_a = 1, "capacity_tokens"_a = 0,
           "capacity_bytes"_a = 0, "reserve"_a = false, "page_tokens"_a = 0, "index_only"_a = false,
           "engine"_a = nb::none(),
           nb::sig("def __init__(self, geometry: Geometry, *, layers: int | "
                   "collections.abc.Iterable[seriatim._types.Floats | bool | None] = 1, "
                   "capacity_tokens: int = 0, capacity_bytes: int = 0, reserve: bool = False, page_tokens: int = 0, "
                   "index_only: bool = False, engine: Engine | None = None) -> None"))
      .def_prop_ro("geometry", [](const CacheHandle& self) { return self.cache->geometry(); })
      .def_prop_ro(
          "engine", [](const CacheHandle& self) { return engine_or_default(self.engine); },
          "Where its layers plan and attend unless a call names another.")
      .def(
          "add",
          [](const Shared& self, std::int64_t anchor) {
            return SequenceHandle{self, released(self, [&](Cache& cache) { return cache.add(anchor); })};
          },
          "anchor"_a = 0, docs::kAdd)
      .def(
          "begin",
          [](const Shared& self) {
            return std::make_shared<TransactionHandle>(self,
                                                       released(self, [](Cache& cache) { return cache.begin(); }));
          },
          docs::kBegin)
      .def("save", &save, "path"_a, "sequences"_a = nb::none(),
           nb::sig("def save(self, path: seriatim._types.Path, sequences: collections.abc.Iterable[Sequence] | None "
                   "= None) -> None"),
           docs::kSave)
      .def("restore", &restore, "path"_a, "mode"_a = "copy",
           nb::sig("def restore(self, path: seriatim._types.Path, mode: str = 'copy') -> dict[int, Sequence]"),
           docs::kRestore)
      .def_prop_ro(
          "bytes",
          [](const Shared& self) {
            const Unlocked unlocked;
            return self->cache->bytes();
          },
          "Bytes held, by owner: a CacheBytes.")
      .def(
          "trim",
          [](const Shared& self) {
            const Unlocked unlocked;
            self->cache->trim();
          },
          "Gives free pages back to the allocator.");
}

}  // namespace seriatim::python
