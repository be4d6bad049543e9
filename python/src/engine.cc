#include "engine.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "docs.hpp"
#include "errors.hpp"
#include "unlocked.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace seriatim::python {

namespace {

constexpr std::size_t kPooledWorkspaces = 16;

struct Engine {
  std::mutex lock;
  std::shared_ptr<Executor> executor;
  std::optional<Kernels> kernels;                      // absent: what the environment says, else the fastest
  std::vector<std::shared_ptr<SharedWorkspace>> free;  // most recently used last
  WorkDone done;
};

// Never destroyed: threads may still be in a call when the interpreter ends.
Engine& engine() {
  static Engine* const one = new Engine;
  return *one;
}

void add(WorkDone& sum, const WorkDone& w, std::int64_t sign) {
  sum.queries += sign * w.queries;
  sum.dense_rows += sign * w.dense_rows;
  sum.groups_scored += sign * w.groups_scored;
  sum.groups_selected += sign * w.groups_selected;
  sum.row_tokens += sign * w.row_tokens;
}

void set_threads(int threads) {
  if (threads < 0) refuse("threads", std::to_string(threads) + " is negative");
  std::shared_ptr<Executor> made;
  if (threads == 1) {
    made = std::shared_ptr<Executor>(&serial_executor(), [](Executor*) {});
  } else {
    made = make_executor(threads);
  }
  if (!made) raise(Status::error(Code::kOutOfMemory, "threads", "no memory for an executor"));
  std::vector<std::shared_ptr<SharedWorkspace>> old;
  Engine& e = engine();
  const std::lock_guard guard(e.lock);
  e.executor = std::move(made);
  old.swap(e.free);
}

void set_kernels(const std::optional<std::string>& name) {
  std::optional<Kernels> named;
  if (name) named = value(Kernels::named(*name));
  Engine& e = engine();
  const std::lock_guard guard(e.lock);
  e.kernels = named;
}

std::string repr(const WorkDone& w) {
  return "WorkDone(queries=" + std::to_string(w.queries) + ", dense_rows=" + std::to_string(w.dense_rows) +
         ", groups_scored=" + std::to_string(w.groups_scored) +
         ", groups_selected=" + std::to_string(w.groups_selected) + ", row_tokens=" + std::to_string(w.row_tokens) +
         ")";
}

std::shared_ptr<SharedWorkspace> new_workspace(const Geometry& geometry, std::int64_t max_visible_tokens) {
  const Kernels chosen = value(kernels());
  return value([&] {
    const Unlocked unlocked;
    return make_workspace(geometry, max_visible_tokens, executor(), chosen);
  }());
}

WorkDone workspace_done(const SharedWorkspace& self) { return self.workspace.done(); }

}  // namespace

std::shared_ptr<Executor> executor() {
  Engine& e = engine();
  const std::lock_guard guard(e.lock);
  if (!e.executor) e.executor = make_executor(0);
  if (!e.executor) e.executor = std::shared_ptr<Executor>(&serial_executor(), [](Executor*) {});
  return e.executor;
}

Result<Kernels> kernels() {
  Engine& e = engine();
  const std::lock_guard guard(e.lock);
  if (e.kernels) return *e.kernels;
  return Kernels::chosen();
}

Result<std::shared_ptr<SharedWorkspace>> make_workspace(const Geometry& geometry, std::int64_t visible_tokens,
                                                        std::shared_ptr<Executor> on, Kernels with) {
  Result<seriatim::Engine> made = seriatim::Engine::host(*on, with);
  if (!made.ok()) return made.status();
  if (Status s = made->reserve(geometry, {visible_tokens, Geometry::kPositions, 1}); !s.ok()) return s;
  return std::make_shared<SharedWorkspace>(std::move(on), std::move(*made), geometry, visible_tokens, with);
}

Result<std::shared_ptr<SharedWorkspace>> borrow_workspace(const Geometry& geometry, std::int64_t visible_tokens) {
  const Result<Kernels> with = kernels();
  if (!with.ok()) return with.status();
  const std::shared_ptr<Executor> on = executor();
  Engine& e = engine();
  {
    const std::lock_guard guard(e.lock);
    for (std::size_t i = e.free.size(); i-- > 0;) {
      const SharedWorkspace& w = *e.free[i];
      if (w.max_visible_tokens >= visible_tokens && w.threads == on && w.kernels == *with && w.geometry == geometry) {
        std::shared_ptr<SharedWorkspace> found = e.free[i];
        e.free.erase(e.free.begin() + static_cast<std::ptrdiff_t>(i));
        return found;
      }
    }
  }
  // A power of two, so that a sequence that grows asks for a new one rarely.
  const auto tokens = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(visible_tokens, 4096))));
  return make_workspace(geometry, tokens, on, *with);
}

void give_back(std::shared_ptr<SharedWorkspace> workspace) {
  std::vector<std::shared_ptr<SharedWorkspace>> dropped;  // freed after the lock
  Engine& e = engine();
  const std::lock_guard guard(e.lock);
  if (workspace->threads != e.executor) return;
  // One that is large enough for this geometry makes smaller ones useless.
  std::erase_if(e.free, [&](std::shared_ptr<SharedWorkspace>& w) {
    const bool useless = w->max_visible_tokens < workspace->max_visible_tokens && w->geometry == workspace->geometry;
    if (useless) dropped.push_back(w);
    return useless;
  });
  if (e.free.size() == kPooledWorkspaces) {
    dropped.push_back(e.free.front());
    e.free.erase(e.free.begin());
  }
  e.free.push_back(std::move(workspace));
}

void count_work(const WorkDone& before, const WorkDone& after) {
  Engine& e = engine();
  const std::lock_guard guard(e.lock);
  add(e.done, after, 1);
  add(e.done, before, -1);
}

void bind_engine(nb::module_& module) {
  nb::class_<WorkDone>(module, "WorkDone", docs::kWorkDone)
      .def_ro("queries", &WorkDone::queries, "Rows that were planned.")
      .def_ro("dense_rows", &WorkDone::dense_rows, "Rows that hold every visible token.")
      .def_ro("groups_scored", &WorkDone::groups_scored, "Candidate groups that were scored.")
      .def_ro("groups_selected", &WorkDone::groups_selected, "Groups that were chosen.")
      .def_ro("row_tokens", &WorkDone::row_tokens, "Entries of rows that were attended.")
      .def("__repr__", &repr);
  nb::class_<SharedWorkspace>(module, "Workspace", docs::kWorkspace)
      .def(nb::new_(&new_workspace), "geometry"_a, "max_visible_tokens"_a)
      .def_prop_ro(
          "bytes", [](const SharedWorkspace& self) { return self.workspace.bytes(); }, "Bytes that it holds.")
      .def_prop_ro("done", &workspace_done, "What was done with it.")
      .def(
          "clear_done",
          [](SharedWorkspace& self) {
            const Unlocked unlocked;
            const std::lock_guard turn(self.turn);
            self.workspace.clear_done();
          },
          "Starts counting again.");
  module.def(
      "work_done",
      [] {
        Engine& e = engine();
        const std::lock_guard guard(e.lock);
        return e.done;
      },
      docs::kWorkDoneOf);
  module.def(
      "clear_work_done",
      [] {
        Engine& e = engine();
        const std::lock_guard guard(e.lock);
        e.done = {};
      },
      "Starts the process's count of work again.");
  module.def(
      "kernels",
      [] {
        std::vector<std::string> names;
        for (const Kernels& one : Kernels::available()) names.push_back(one.name());
        return names;
      },
      docs::kKernels);
  module.def("current_kernels", [] { return value(kernels()).name(); }, docs::kCurrentKernels);
  module.def("set_kernels", &set_kernels, "name"_a.none(), docs::kSetKernels);
  module.def("set_threads", &set_threads, "threads"_a, docs::kSetThreads);
  module.def("threads", [] { return executor()->concurrency(); }, "The most threads that a call uses.");
  module.def(
      "trim",
      [] {
        std::vector<std::shared_ptr<SharedWorkspace>> old;
        Engine& e = engine();
        const std::lock_guard guard(e.lock);
        old.swap(e.free);
      },
      "Frees the workspaces that calls keep for the next one.");
}

}  // namespace seriatim::python
