#include "engine.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.hpp"
#include "device.hpp"
#include "docs_step.hpp"
#include "errors.hpp"
#include "step.hpp"
#include "unlocked.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace seriatim::python {

namespace {

constexpr std::size_t kKeptEngines = 16;  // as many threads may call in turn without making engines anew

void add(WorkDone& sum, const WorkDone& w) {
  sum.queries += w.queries;
  sum.dense_rows += w.dense_rows;
  sum.groups_scored += w.groups_scored;
  sum.groups_selected += w.groups_selected;
  sum.row_tokens += w.row_tokens;
  sum.groups_screened += w.groups_screened;
  sum.groups_rescored += w.groups_rescored;
  sum.screen_fallbacks += w.screen_fallbacks;
  sum.index_bytes_read += w.index_bytes_read;
}

std::string repr(const WorkDone& w) {
  return "WorkDone(queries=" + std::to_string(w.queries) + ", dense_rows=" + std::to_string(w.dense_rows) +
         ", groups_scored=" + std::to_string(w.groups_scored) +
         ", groups_selected=" + std::to_string(w.groups_selected) + ", row_tokens=" + std::to_string(w.row_tokens) +
         ")";
}

std::shared_ptr<EngineHandle> make_engine(const std::optional<std::string>& device, int threads,
                                          const std::optional<std::string>& kernels) {
  if (threads < 0) refuse("threads", std::to_string(threads) + " is negative");
  if (!device) {
    std::optional<Kernels> named;
    if (kernels) named = value(Kernels::named(*kernels));
    return std::make_shared<EngineHandle>(threads, named);
  }
  if (kernels) refuse("kernels", "a device has its own");
  if (threads != 0) refuse("threads", "a device has its own");
  Result<Engine> engine = [&] {
    const Unlocked unlocked;
    return engine_on(*device);
  }();
  return std::make_shared<EngineHandle>(*device, value(std::move(engine)));
}

nb::tuple reduce(const EngineHandle& self) {
  nb::dict options;
  if (!self.device().empty()) options["device"] = self.device();
  if (self.asked_threads() != 0) options["threads"] = self.asked_threads();
  if (self.asked_kernels()) options["kernels"] = self.asked_kernels()->name();
  const nb::object make = nb::module_::import_("functools").attr("partial")(nb::type<EngineHandle>(), **options);
  return nb::make_tuple(make, nb::tuple());
}

}  // namespace

EngineHandle::EngineHandle(std::string device, Engine engine) : device_(std::move(device)) {
  free_.push_back(std::move(engine));
}

std::shared_ptr<Executor> EngineHandle::executor() {
  const std::lock_guard guard(lock_);
  if (!executor_ && asked_threads_ != 1) executor_ = make_executor(asked_threads_);
  if (!executor_) executor_ = std::shared_ptr<Executor>(&serial_executor(), [](Executor*) {});
  return executor_;
}

Result<Engine> EngineHandle::take() {
  {
    const std::lock_guard guard(lock_);
    if (!free_.empty()) {
      Engine engine = std::move(free_.back());
      free_.pop_back();
      return engine;
    }
  }
  const Result<Kernels> with = kernels();
  if (!with.ok()) return with.status();
  Result<Engine> made = Engine::host(*executor(), *with);
  if (!made.ok()) return made;
  std::vector<std::pair<Geometry, StepLimits>> reserved;
  {
    const std::lock_guard guard(lock_);
    reserved = reserved_;
  }
  for (const auto& [geometry, limits] : reserved) {
    if (Status s = made->reserve(geometry, limits); !s.ok()) return s;
  }
  return made;
}

void EngineHandle::give_back(Engine engine) {
  const WorkDone done = engine.done();
  engine.clear_done();
  const std::lock_guard guard(lock_);
  add(done_, done);
  if (free_.size() < kKeptEngines) free_.push_back(std::move(engine));
}

Status EngineHandle::reserve(const Geometry& geometry, const StepLimits& limits) {
  const Status status = with([&](Engine& engine) { return engine.reserve(geometry, limits); });
  if (!status.ok()) return status;
  const std::lock_guard guard(lock_);
  reserved_.emplace_back(geometry, limits);
  return {};
}

Result<std::shared_ptr<PageAllocator>> EngineHandle::allocator(const Geometry& geometry, const CacheOptions& options) {
  std::shared_ptr<PageAllocator> pages;
  if (device_.empty()) return pages;
  const Status status = with([&](Engine& engine) {
    auto made = engine.allocator(geometry, options);
    if (made.ok()) pages = *made;
    return made.status();
  });
  if (!status.ok()) return status;
  return pages;
}

void EngineHandle::let_go() {
  if (device_.empty()) return;
  static_cast<void>(with([](Engine& engine) {
    engine.let_go();
    return Status();
  }));
}

std::int64_t EngineHandle::bytes() const {
  const std::lock_guard guard(lock_);
  std::int64_t bytes = 0;
  for (const Engine& engine : free_) bytes += engine.bytes();
  return bytes;
}

WorkDone EngineHandle::done() const {
  const std::lock_guard guard(lock_);
  return done_;
}

void EngineHandle::clear_done() {
  const std::lock_guard guard(lock_);
  done_ = {};
}

void EngineHandle::trim() {
  if (!device_.empty()) return;
  std::vector<Engine> dropped;  // freed after the lock
  const std::lock_guard guard(lock_);
  if (reserved_.empty()) dropped.swap(free_);
}

// Never destroyed: threads may still be in a call when the interpreter ends.
const std::shared_ptr<EngineHandle>& default_engine() {
  static auto* const one = new std::shared_ptr<EngineHandle>(std::make_shared<EngineHandle>(0, std::nullopt));
  return *one;
}

std::shared_ptr<EngineHandle> engine_or_default(const std::shared_ptr<EngineHandle>& given) {
  return given ? given : default_engine();
}

void bind_engine(nb::module_& module) {
  nb::class_<WorkDone>(module, "WorkDone", docs::kWorkDone)
      .def_ro("queries", &WorkDone::queries, "Rows that were planned.")
      .def_ro("dense_rows", &WorkDone::dense_rows, "Rows that hold every visible token.")
      .def_ro("groups_scored", &WorkDone::groups_scored, "Candidate groups that were scored.")
      .def_ro("groups_selected", &WorkDone::groups_selected, "Groups that were chosen.")
      .def_ro("row_tokens", &WorkDone::row_tokens, "Entries of the rows.")
      .def_ro("groups_screened", &WorkDone::groups_screened, "Of groups_scored, those of queries that were screened.")
      .def_ro("groups_rescored", &WorkDone::groups_rescored, "Of those, the ones that were scored canonically.")
      .def_ro("screen_fallbacks", &WorkDone::screen_fallbacks, "Queries to be screened that were scored in full.")
      .def_ro("index_bytes_read", &WorkDone::index_bytes_read, "Pooled keys read to score, on the host.")
      .def("__repr__", &repr);
  nb::class_<EngineHandle> engine(module, "Engine", docs::kEngine);
  engine.def(nb::new_(&make_engine), nb::kw_only(), "device"_a = nb::none(), "threads"_a = 0, "kernels"_a = nb::none())
      .def_prop_ro(
          "device",
          [](const EngineHandle& self) -> std::optional<std::string> {
            if (self.device().empty()) return std::nullopt;
            return self.device();
          },
          "Its device; None: the host.")
      .def_prop_ro(
          "threads", [](EngineHandle& self) { return self.device().empty() ? self.executor()->concurrency() : 0; },
          "The most threads that a call uses; 0 on a device.")
      .def_prop_ro(
          "kernels",
          [](const EngineHandle& self) -> std::optional<std::string> {
            if (!self.device().empty()) return std::nullopt;
            return value(self.kernels()).name();
          },
          docs::kEngineKernels)
      .def(
          "reserve",
          [](EngineHandle& self, const Geometry& geometry, std::int64_t visible_tokens, std::int64_t queries,
             std::int64_t asks) {
            check([&] {
              const Unlocked unlocked;
              return self.reserve(geometry, {visible_tokens, queries, asks});
            }());
          },
          "geometry"_a, "visible_tokens"_a, "queries"_a, "asks"_a = 1, docs::kReserve)
      .def_prop_ro("bytes", &EngineHandle::bytes, "Bytes of scratch that it holds between calls.")
      .def_prop_ro("done", &EngineHandle::done, "What its calls have done since the start or clear_done(): a WorkDone.")
      .def("clear_done", &EngineHandle::clear_done, "Starts counting again.")
      .def("trim", &EngineHandle::trim, "Frees scratch that it keeps for the next call, unless it was reserved.");
  engine.def("__reduce__", &reduce, "Made anew where it arrives.");
  bind_steps(engine);
  module.def("default_engine", [] { return default_engine(); }, docs::kDefaultEngine);
  module.def(
      "kernels",
      [] {
        std::vector<std::string> names;
        for (const Kernels& one : Kernels::available()) names.push_back(one.name());
        return names;
      },
      docs::kKernels);
}

}  // namespace seriatim::python
