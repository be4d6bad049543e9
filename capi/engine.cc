#include <iterator>
#include <optional>

#include "base/checked.hpp"
#include "base/format.hpp"
#include "cache_options.hpp"
#include "call.hpp"
#include "convert.hpp"
#include "devices.hpp"
#include "handles.hpp"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

constexpr std::int32_t kMostThreads = 1024;

// What runs an engine's work on the host: the caller's executor, threads of the library's own, or the calling thread.
Status take_runner(const seriatim_engine_options& from, seriatim_runner& to) {
  if (Status s = check_choice("threads", from.threads, kMostThreads); !s.ok()) return s;
  if (from.executor != nullptr) {
    if (from.threads != 1) return invalid("threads", "given beside an executor, which has its own");
    to = seriatim_runner(*from.executor);
  } else if (from.threads != 1) {
    to.executor = make_executor(from.threads);
    if (to.executor == nullptr)
      return Status::error(Code::kOutOfMemory, "threads", "threads: the system refused memory");
  }
  return {};
}

Status take_screening(const char* word, std::optional<Screening>& taken) {
  if (word == nullptr) return {};
  for (std::size_t i = 0; i < std::size(kScreeningNames); ++i) {
    if (kScreeningNames[i] == word) taken = static_cast<Screening>(i);
  }
  return taken ? Status() : invalid("screening", "none of auto, off and on");
}

Status create_on_host(const seriatim_engine_options& options, seriatim_engine*& engine) {
  if (options.work_group != 0) return invalid("work_group", "given without a device");
  Kernels kernels = default_kernels();
  if (Status s = take_kernels(options.kernels, kernels); !s.ok()) return s;
  seriatim_runner runner;
  if (Status s = take_runner(options, runner); !s.ok()) return s;
  std::optional<Screening> screening;
  if (Status s = take_screening(options.screening, screening); !s.ok()) return s;
  auto made = Engine::host(runner.runs(), kernels, screening);
  if (!made.ok()) return made.status();
  engine = new seriatim_engine{std::move(runner), std::move(*made), {}};
  return {};
}

Status create_on_device(const seriatim_engine_options& options, seriatim_engine*& engine) {
  if (options.executor != nullptr) return invalid("executor", "given beside a device");
  if (options.kernels != nullptr) return invalid("kernels", "given beside a device");
  if (options.threads != 1) return invalid("threads", "given beside a device");
  if (options.screening != nullptr) return invalid("screening", "given beside a device");
  auto made = engine_on(options.device, options.work_group);
  if (!made.ok()) return made.status();
  engine = new seriatim_engine{{}, std::move(*made), {}};
  return {};
}

Status take_limits(const seriatim_step_limits* given, StepLimits& taken) {
  seriatim_step_limits limits;
  seriatim_step_limits_init(&limits);
  if (Status s = take_struct("limits", given, limits); !s.ok()) return s;
  taken = {limits.visible_tokens, limits.queries, limits.asks};
  return {};
}

}  // namespace

void seriatim_engine_options_init(seriatim_engine_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
  options->threads = 1;
}

void seriatim_step_limits_init(seriatim_step_limits* limits) {
  if (limits == nullptr) return;
  *limits = {};
  limits->struct_size = sizeof *limits;
}

void seriatim_work_init(seriatim_work* work) {
  if (work == nullptr) return;
  *work = {};
  work->struct_size = sizeof *work;
}

seriatim_status seriatim_engine_create(const seriatim_engine_options* options, seriatim_engine** engine,
                                       seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}}); !s.ok()) return s;
    seriatim_engine_options taken;
    seriatim_engine_options_init(&taken);
    if (options != nullptr) {
      if (Status s = take_struct("options", options, taken); !s.ok()) return s;
    }
    return taken.device != nullptr ? create_on_device(taken, *engine) : create_on_host(taken, *engine);
  });
}

seriatim_status seriatim_engine_allocator(seriatim_engine* engine, const seriatim_geometry* geometry,
                                          const seriatim_cache_options* options, seriatim_allocator** allocator,
                                          seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}, {"geometry", geometry}, {"allocator", allocator}}); !s.ok()) return s;
    CacheOptions wanted;
    if (Status s = take_cache_options(options, wanted); !s.ok()) return s;
    auto memory = engine->engine.allocator(geometry->geometry, wanted);
    if (!memory.ok()) return memory.status();
    *allocator = *memory == nullptr ? nullptr : new seriatim_allocator{*std::move(memory)};
    return {};
  });
}

seriatim_status seriatim_engine_bytes_for(const seriatim_engine* engine, const seriatim_geometry* geometry,
                                          const seriatim_step_limits* limits, std::int64_t* bytes,
                                          seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}, {"geometry", geometry}, {"bytes", bytes}}); !s.ok()) return s;
    StepLimits taken;
    if (Status s = take_limits(limits, taken); !s.ok()) return s;
    const auto scratch = engine->engine.bytes_for(geometry->geometry, taken);
    if (!scratch.ok()) return scratch.status();
    const auto asks = Asks::bytes_for(taken.asks);
    const auto sum = asks ? checked_add(*scratch, *asks) : asks;
    if (!sum) return Status::error(Code::kOverflow, "asks", "asks: bytes past 64 bits");
    *bytes = *sum;
    return {};
  });
}

seriatim_status seriatim_engine_reserve(seriatim_engine* engine, const seriatim_geometry* geometry,
                                        const seriatim_step_limits* limits, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}, {"geometry", geometry}}); !s.ok()) return s;
    StepLimits taken;
    if (Status s = take_limits(limits, taken); !s.ok()) return s;
    if (const auto known = engine->engine.bytes_for(geometry->geometry, taken); !known.ok()) return known.status();
    engine->asks.reserve(taken.asks);
    return engine->engine.reserve(geometry->geometry, taken);
  });
}

seriatim_status seriatim_engine_bytes(const seriatim_engine* engine, std::int64_t* bytes, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}, {"bytes", bytes}}); !s.ok()) return s;
    *bytes = engine->engine.bytes() + engine->asks.bytes();
    return {};
  });
}

seriatim_status seriatim_engine_work(const seriatim_engine* engine, seriatim_work* work, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}}); !s.ok()) return s;
    if (Status s = check_output_bytes("work", work); !s.ok()) return s;
    const WorkDone done = engine->engine.done();
    give_struct(
        work, seriatim_work{0, done.queries, done.dense_rows, done.groups_scored, done.groups_selected, done.row_tokens,
                            done.groups_screened, done.groups_rescored, done.screen_fallbacks, done.index_bytes_read});
    return {};
  });
}

seriatim_status seriatim_engine_clear_work(seriatim_engine* engine, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}}); !s.ok()) return s;
    engine->engine.clear_done();
    return {};
  });
}

seriatim_status seriatim_engine_let_go(seriatim_engine* engine, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"engine", engine}}); !s.ok()) return s;
    engine->engine.let_go();
    return {};
  });
}

void seriatim_engine_destroy(seriatim_engine* engine) { delete engine; }
