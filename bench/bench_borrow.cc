// A decode step over pages of 16 tokens that an engine keeps, against the same tokens in the cache's own pages.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "bench/bench.hpp"
#include "bench/inputs.hpp"
#include "seriatim/borrow.hpp"

namespace seriatim::bench {
namespace {

constexpr std::int64_t kPageTokens = 16;

// Memory for which the system is asked for huge pages, as the cache's own pages are.
class HugeMemory {
 public:
  std::byte* take(std::int64_t bytes) {
    constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
    const std::size_t whole = (static_cast<std::size_t>(bytes) + kHugeBytes - 1) / kHugeBytes * kHugeBytes;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugeBytes, whole)));
    require(memory_ != nullptr, "take memory");
    static_cast<void>(madvise(memory_.get(), whole, MADV_HUGEPAGE));
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

// A layer's keys and values in pools of pages [pages, 16, kv_heads, dim], in no order.
class Pools {
 public:
  explicit Pools(const Layer& layer) {
    const Geometry& g = layer.geometry();
    const std::int64_t pages = (layer.tokens() + kPageTokens - 1) / kPageTokens;
    table_.resize(static_cast<std::size_t>(pages));
    std::iota(table_.begin(), table_.end(), 0);
    Random random(77);
    for (std::size_t i = table_.size(); i > 1; --i)
      std::swap(table_[i - 1], table_[static_cast<std::size_t>(random.bits() % i)]);
    place(layer, g.head_dim(), keys_, tensors_.keys,
          [&](std::int64_t t, std::int64_t h) { return layer.view().key(t, h); });
    place(layer, g.value_dim(), values_, tensors_.values,
          [&](std::int64_t t, std::int64_t h) { return layer.view().value(t, h); });
    tensors_.block_table = dense_view(static_cast<const void*>(table_.data()), DType::kI32, {pages});
    tensors_.index = &layer.view();
  }
  const BorrowedTensors& tensors() const { return tensors_; }

 private:
  template <typename At>
  void place(const Layer& layer, std::int64_t dim, HugeMemory& memory, ConstTensor& tensor, const At& at) {
    const Geometry& g = layer.geometry();
    const auto pages = static_cast<std::int64_t>(table_.size());
    const std::int64_t bytes = row_bytes(g.kv_dtype(), dim);
    std::byte* const pool = memory.take(pages * kPageTokens * g.kv_heads() * bytes);
    tensor = dense_view(static_cast<const void*>(pool), g.kv_dtype(), {pages, kPageTokens, g.kv_heads(), dim});
    for (std::int64_t t = 0; t < layer.tokens(); ++t) {
      const std::int64_t page = table_[static_cast<std::size_t>(t / kPageTokens)];
      for (std::int64_t h = 0; h < g.kv_heads(); ++h) {
        std::memcpy(pool + (tensor.at(page, t % kPageTokens, h) - tensor.data), at(t, h),
                    static_cast<std::size_t>(bytes));
      }
    }
  }

  std::vector<std::int32_t> table_;
  HugeMemory keys_;
  HugeMemory values_;
  BorrowedTensors tensors_;
};

class BorrowedStep {
 public:
  BorrowedStep(Bench& bench, const Layer& layer)
      : bench_(bench),
        layer_(layer),
        pools_(layer),
        borrowed_(layer.geometry()),
        engine_(*Engine::host(bench.executor(1), bench.kernels())),
        answer_(layer.geometry(), 1),
        own_(layer.geometry(), 1) {
    run_borrowed();
    run(layer.view(), own_);
    require(answer_.positions == own_.positions &&
                std::memcmp(answer_.values.data(), own_.values.data(), own_.values.size() * 4) == 0,
            "borrowed pages by the cache's own");
  }

  Contestant borrowed(bool cold) {
    return {"ours", [this] { run_borrowed(); }, next(cold)};
  }
  Contestant own(bool cold) {
    return {"the cache's own pages", [this] { run(layer_.view(), own_); }, next(cold)};
  }
  Work work(bool cold) const {
    const Geometry& g = layer_.geometry();
    const auto groups = static_cast<double>(g.groups(layer_.tokens()));
    const auto dims = static_cast<double>(g.head_dim() + g.value_dim());
    const auto index_dim = static_cast<double>(g.index_dim());
    const auto entries = static_cast<double>(answer_.counts[0]);
    Work work;
    work.fmas = groups * index_dim * static_cast<double>(g.index_heads()) +
                entries * static_cast<double>(g.query_heads()) * dims;
    if (cold) {
      work.cold_bytes = groups * index_dim * static_cast<double>(dtype_bytes(g.index_dtype())) +
                        entries * static_cast<double>(row_bytes(g.kv_dtype(), g.kv_heads())) * dims;
    }
    return work;
  }

 private:
  std::function<void()> next(bool cold) {
    return [this, cold] {
      turn_ = (turn_ + 1) % layer_.queries();
      if (cold) bench_.chill(1);
    };
  }

  // As an engine does it: its block table is looked at in every step.
  void run_borrowed() {
    require(borrowed_.bind({0, layer_.tokens()}, pools_.tensors()).ok(), "borrow");
    run(borrowed_.view(), answer_);
  }

  void run(const LayerView& view, Answer& answer) {
    require(engine_.plan(view, layer_.index_queries(turn_, 1), NanPolicy::kRefuse, answer.rows()).ok(), "plan");
    require(engine_.attend(view, layer_.attend_queries(turn_, 1), answer.rows(), answer.output(), {}).ok(), "attend");
    consume(answer.values.data());
  }

  Bench& bench_;
  const Layer& layer_;
  const Pools pools_;
  BorrowedLayer borrowed_;
  Engine engine_;
  Answer answer_;
  Answer own_;
  std::int64_t turn_ = 0;
};

}  // namespace

void bench_borrow(Bench& bench) {
  if (!bench.wants("borrow")) return;
  for (const std::int64_t tokens : {8'192, 65'536}) {
    Layer layer(real_geometry(DType::kF16), tokens, 32, 0.0, 43);
    layer.stand_at(tokens - 1);
    BorrowedStep step(bench, layer);
    for (const bool cold : {false, true}) {
      bench.add(fmt::format("decode step at {}, borrowed pages of 16 tokens, f16, {}, 1 thread", tokens,
                            cold ? "cold" : "warm"),
                step.borrowed(cold), step.work(cold), 1, {step.own(cold)}, {0.0, 1.0 / 1.15, "<= 1.15x our own pages"});
    }
  }
}

}  // namespace seriatim::bench
