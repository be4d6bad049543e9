// Binds Transaction: staged appends that are published together or not at all.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <optional>
#include <string>

#include "arrays.hpp"
#include "bind.hpp"
#include "docs.hpp"
#include "errors.hpp"
#include "handles.hpp"
#include "unlocked.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

namespace {

using Shared = std::shared_ptr<TransactionHandle>;

SequenceId id_in(const TransactionHandle& self, const SequenceHandle& sequence) {
  if (sequence.cache != self.cache) refuse("sequence", "belongs to another cache");
  return sequence.id;
}

// Runs `change(Transaction&)` alone, without the interpreter's lock.
template <typename Change>
void alone(TransactionHandle& self, const Change& change) {
  const Status status = [&] {
    const Unlocked unlocked;
    const std::unique_lock turn(self.turn);
    return change(self.transaction);
  }();
  check(status);
}

void append(TransactionHandle& self, const SequenceHandle& sequence, std::int64_t layer, nb::handle keys,
            nb::handle values, nb::handle index_keys, std::optional<std::int64_t> first_position,
            nb::handle given_coordinates) {
  const SequenceId id = id_in(self, sequence);
  const Input k = input(keys, "keys", 3);
  const Input v = input(values, "values", 3);
  const Input i = input(index_keys, "index_keys", 2);
  const std::vector<Coordinates> at = coordinates(given_coordinates, "coordinates");
  if (!given_coordinates.is_none() && static_cast<std::int64_t>(at.size()) != (k.view.empty() ? i : k).view.shape[0]) {
    refuse("coordinates", "there are " + std::to_string(at.size()) + ", one for each token is needed");
  }
  alone(self, [&](Transaction& transaction) {
    TokenBatch batch{0, k.view, v.view, i.view, given_coordinates.is_none() ? nullptr : at.data()};
    if (first_position) {
      batch.first_position = *first_position;
    } else {
      const Result<LayerView> staged = transaction.layer(id, layer);
      if (!staged.ok()) return staged.status();
      batch.first_position = staged->run.anchor + staged->run.tokens;
    }
    return transaction.append(id, layer, batch);
  });
}

void commit(TransactionHandle& self, std::optional<std::int64_t> tokens) {
  alone(self, [&](Transaction& transaction) {
    Status status = tokens ? transaction.commit_prefix(*tokens) : transaction.commit();
    if (status.ok()) self.ended = true;
    return status;
  });
}

void rollback(TransactionHandle& self) {
  alone(self, [&](Transaction& transaction) {
    transaction.rollback();
    self.ended = true;
    return Status();
  });
}

LayerHandle layer_of(const Shared& self, const SequenceHandle& sequence, std::int64_t layer) {
  const LayerHandle handle{self->cache, std::nullopt, self, id_in(*self, sequence), layer, nullptr};
  const Status status = [&] {
    const Unlocked unlocked;
    return with_layer(handle, [](const LayerView&) { return Status(); });
  }();
  check(status);
  return handle;
}

// Commits what the block staged unless it raised or has ended the transaction itself.
void leave(TransactionHandle& self, nb::handle type, nb::handle, nb::handle) {
  if (self.ended) return;
  if (!type.is_none()) return rollback(self);
  try {
    commit(self, std::nullopt);
  } catch (...) {
    rollback(self);
    throw;
  }
}

}  // namespace

void bind_transaction(nb::module_& module) {
  nb::class_<SequenceHandle> sequence(module, "Sequence", docs::kSequence);  // its methods: bind_cache
  nb::class_<TransactionHandle>(module, "Transaction", docs::kTransaction)
      .def(
          "append", &append, "sequence"_a, "layer"_a, "keys"_a = nb::none(), "values"_a = nb::none(),
          "index_keys"_a = nb::none(), nb::kw_only(), "first_position"_a = nb::none(), "coordinates"_a = nb::none(),
          nb::sig("def append(self, sequence: Sequence, layer: int, keys: seriatim._types.Array | None = None, values: "
                  "seriatim._types.Array | None = None, "
                  "index_keys: seriatim._types.Array | None = None, *, first_position: int | None = None, "
                  "coordinates: seriatim._types.Array | None = None) -> None"),
          docs::kAppend)
      .def("layer", &layer_of, "sequence"_a, "layer"_a = 0, docs::kStagedLayer)
      .def(
          "keep",
          [](TransactionHandle& self, const SequenceHandle& of, std::int64_t tokens) {
            const SequenceId id = id_in(self, of);
            alone(self, [&](Transaction& transaction) { return transaction.keep(id, tokens); });
          },
          "sequence"_a, "tokens"_a, docs::kKeep)
      .def(
          "commit", [](TransactionHandle& self) { commit(self, std::nullopt); }, docs::kCommit)
      .def(
          "commit_prefix", [](TransactionHandle& self, std::int64_t tokens) { commit(self, tokens); }, "tokens"_a,
          docs::kCommitPrefix)
      .def("rollback", &rollback, "Forgets everything that was staged and ends the transaction.")
      .def_ro("ended", &TransactionHandle::ended, "Whether it was committed or rolled back.")
      .def("__enter__", [](const Shared& self) { return self; })
      .def("__exit__", &leave, nb::arg().none(), nb::arg().none(), nb::arg().none(),
           nb::sig("def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object, "
                   "/) -> None"));
}

}  // namespace seriatim::python
