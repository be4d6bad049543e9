// Binds groups of processes and the ranks of one process.
#include "shard.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "bind.hpp"
#include "docs_shard.hpp"
#include "errors.hpp"
#include "unlocked.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

namespace nb = nanobind;

namespace {

Call call_of(const std::string& name, const nb::kwargs& terms) {
  Call call(name);
  for (const auto& [key, value] : terms) {
    const std::string argument = nb::cast<std::string>(key);
    std::int64_t number = 0;
    if (nb::try_cast(value, number, false)) {
      call.with(argument, number);
    } else {
      PyErr_Clear();
      call.with(argument, nb::cast<std::string>(nb::str(value)));
    }
  }
  return call;
}

std::vector<ThreadEndHandle> thread_ends(int ranks, double timeout) {
  if (!(timeout > 0.0) || !(timeout < 1e6)) refuse("timeout", "seconds, above 0");
  const auto all = value(
      ThreadTransports::make(ranks, std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(timeout * 1000.0)))));
  std::vector<ThreadEndHandle> ends;
  for (int rank = 0; rank < ranks; ++rank) ends.push_back({all.at(rank)});
  return ends;
}

std::shared_ptr<GroupHandle> meet(nb::handle given, std::shared_ptr<EngineHandle> engine, const nb::kwargs& terms) {
  if (!engine) engine = default_engine();
  if (!engine->device().empty()) refuse("engine", "a group works on the host");
  const std::shared_ptr<Transport> transport = transport_of(given);
  const Call call = call_of("group", terms);
  const Kernels kernels = value(engine->kernels());
  std::shared_ptr<Executor> executor;
  Result<Group> group = [&] {
    const Unlocked unlocked;
    executor = engine->executor();
    return Group::meet(transport, call);
  }();
  Group met = value(std::move(group));
  if (!executor) refuse("engine", "the system refused memory");
  Engine host = value(Engine::host(*executor, kernels));
  return std::make_shared<GroupHandle>(std::move(met), std::move(engine), std::move(executor), std::move(host));
}

void agree(GroupHandle& self, const std::string& name, const nb::kwargs& terms) {
  const Call call = call_of(name, terms);
  check([&] {
    const Unlocked unlocked;
    const std::lock_guard turn(self.turn);
    return self.group.agree(call);
  }());
}

}  // namespace

void bind_shard(nb::module_& module) {
  nb::class_<ThreadEndHandle>(module, "ThreadEnd", docs::kThreadEnd)
      .def_prop_ro("rank", [](const ThreadEndHandle& self) { return self.transport->rank(); })
      .def_prop_ro("size", [](const ThreadEndHandle& self) { return self.transport->size(); });
  module.def("thread_ends", &thread_ends, "ranks"_a, "timeout"_a = 60.0, docs::kThreadEnds);
  nb::class_<GroupHandle> group(module, "Group", docs::kGroup);
  group.def_prop_ro("rank", [](const GroupHandle& self) { return self.group.rank(); })
      .def_prop_ro("size", [](const GroupHandle& self) { return self.group.size(); })
      .def_prop_ro("messages_sent", [](GroupHandle& self) { return self.group.transport().traffic().messages; })
      .def_prop_ro("bytes_sent", [](GroupHandle& self) { return self.group.transport().traffic().bytes; })
      .def("agree", &agree, "name"_a, "terms"_a, nb::sig("def agree(self, name: str, **terms: int | str) -> None"),
           docs::kAgree);
  bind_sharded_cache(module, group);
  module.def("meet", &meet, "transport"_a, "engine"_a = nb::none(), "terms"_a,
             nb::sig("def meet(transport: object, engine: Engine | None = None, **terms: int | str) -> Group"),
             docs::kMeet);
}

}  // namespace seriatim::python
