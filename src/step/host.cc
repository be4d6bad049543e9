// The engine on the host.
#include <algorithm>
#include <new>
#include <optional>

#include "base/format.hpp"
#include "step/engine.hpp"

namespace seriatim {
namespace {

Status at_ask(const Status& status, std::size_t ask) {
  if (status.ok()) return status;
  return Status::error(status.code(), status.argument(), status.message(),
                       {status.place().row, status.place().index, static_cast<std::int64_t>(ask)});
}

Tensor some_rows(Tensor all, std::int64_t first, std::int64_t count) {
  if (all.empty()) return all;
  all.data = all.at(first);
  all.shape[0] = count;
  return all;
}

class HostEngine final : public Engine::Impl {
 public:
  HostEngine(Executor& executor, Kernels kernels) : executor_(executor), kernels_(kernels) {}

  Result<std::shared_ptr<PageAllocator>> allocator(const Geometry&, const CacheOptions&) override {
    return std::shared_ptr<PageAllocator>();
  }

  Result<std::int64_t> bytes_for(const Geometry& geometry, const StepLimits& limits) const override {
    return Workspace::bytes(geometry, limits.visible_tokens, executor_.concurrency());
  }

  Status reserve(const Geometry& geometry, const StepLimits& limits) override {
    if (Status s = grow(geometry, limits.visible_tokens); !s.ok()) return s;
    reserved_ = true;
    return {};
  }

  std::int64_t bytes() const override { return work_ ? work_->bytes() : 0; }

  Status plan(std::span<const PlanAsk> asks, NanPolicy nan, Rows rows) override {
    std::int64_t first = 0;
    for (std::size_t a = 0; a < asks.size(); ++a) {
      const PlanAsk& ask = asks[a];
      if (Status s = at_ask(prepare(ask.layer), a); !s.ok()) return s;
      const Rows own{rows.positions + first * rows.stride, rows.stride, rows.counts + first};
      work_->clear_done();
      if (Status s = at_ask(seriatim::plan(*ask.layer, ask.queries, nan, *work_, own), a); !s.ok()) return s;
      count(work_->done());
      first += ask.queries.queries.shape[0];
    }
    return {};
  }

  Status attend(std::span<const AttendAsk> asks, ConstRows rows, Tensor output, Tensor lse) override {
    std::int64_t first = 0;
    for (std::size_t a = 0; a < asks.size(); ++a) {
      const AttendAsk& ask = asks[a];
      if (Status s = at_ask(prepare(ask.layer), a); !s.ok()) return s;
      const std::int64_t queries = ask.queries.queries.shape[0];
      const ConstRows own{rows.positions + first * rows.stride, rows.stride, rows.counts + first};
      if (Status s = at_ask(seriatim::attend(*ask.layer, ask.queries, own, *work_, some_rows(output, first, queries),
                                             some_rows(lse, first, queries)),
                            a);
          !s.ok()) {
        return s;
      }
      first += queries;
    }
    return {};
  }

  void let_go() override {}

 private:
  Status prepare(const LayerView* layer) {
    if (layer == nullptr) return Status::error(Code::kInvalidArgument, "layer", "layer: null");
    return reserved_ ? Status() : grow(*layer->geometry, layer->run.tokens);
  }

  Status grow(const Geometry& geometry, std::int64_t tokens) {
    if (work_ && tokens <= tokens_) return {};
    auto made = Workspace::create(geometry, tokens, executor_, kernels_);
    if (!made.ok()) return made.status();
    work_.emplace(*std::move(made));
    tokens_ = tokens;
    return {};
  }

  void count(const WorkDone& more) {
    done.queries += more.queries;
    done.dense_rows += more.dense_rows;
    done.groups_scored += more.groups_scored;
    done.groups_selected += more.groups_selected;
    done.row_tokens += more.row_tokens;
  }

  Executor& executor_;
  const Kernels kernels_;
  std::optional<Workspace> work_;
  std::int64_t tokens_ = 0;
  bool reserved_ = false;
};

}  // namespace

Result<Engine> Engine::host(Executor& executor, Kernels kernels) {
  if (executor.concurrency() < 1) {
    return Status::error(Code::kInvalidArgument, "executor",
                         formatted("executor: a concurrency of {}", executor.concurrency()));
  }
  try {
    return Engine(std::make_unique<HostEngine>(executor, kernels));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "engine", "engine: the system refused memory");
  }
}

}  // namespace seriatim
