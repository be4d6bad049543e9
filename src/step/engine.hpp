// What stands behind an Engine: admission, limits and accounting, the same for every place; and the place itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "seriatim/step.hpp"
#include "step/batch.hpp"

namespace seriatim {

class Engine::Impl {
 public:
  virtual ~Impl() = default;

  Result<std::int64_t> bytes_for(const Geometry& geometry, const StepLimits& limits) const;
  Status reserve(const Geometry& geometry, const StepLimits& limits);
  std::int64_t bytes() const {
    return scratch_bytes() + table_.capacity() * static_cast<std::int64_t>(sizeof(AskPart));
  }
  Status plan(std::span<const PlanAsk> asks, NanPolicy nan, Rows rows);
  Status attend(std::span<const AttendAsk> asks, ConstRows rows, Tensor output, Tensor lse);
  Status attend_partials(const AttendAsk& ask, ConstRows rows, std::int64_t first_split, std::int64_t splits,
                         std::span<float> partials);
  Status plan_candidates(std::span<const PlanAsk> asks, NanPolicy nan, const Candidates& candidates);
  Status fold_partials(const FoldBatch& batch);

  virtual Result<std::shared_ptr<PageAllocator>> allocator(const Geometry& geometry, const CacheOptions& options) = 0;
  virtual void let_go() = 0;

  WorkDone done;

 protected:
  // Of a place that holds none yet. `limits` are admitted. Errors  Overflow; InvalidArgument: past the place's own.
  virtual Result<std::int64_t> scratch_bytes_for(const Geometry& geometry, const StepLimits& limits) const = 0;
  virtual std::int64_t scratch_bytes() const = 0;
  // Whether a call that needs this takes no memory.
  virtual bool holds(const Geometry& geometry, const StepLimits& needed) const = 0;
  // Takes what lacks for every call within `limits`. Throws bad_alloc.
  virtual Status take(const Geometry& geometry, const StepLimits& limits) = 0;
  // For what admission looks at.
  virtual Executor& executor() = 0;
  // Does the admitted work, for which there is room.
  virtual Status run(const PlanBatch& batch) = 0;
  virtual Status run(const AttendBatch& batch) = 0;
  virtual Status run(const PartialBatch& batch) = 0;
  virtual Status run(const FoldBatch& batch) = 0;

 private:
  Status make_table(std::size_t asks);
  Status make_room(const Geometry& geometry, const StepLimits& needed);
  Status admit_size(const PlanBatch& batch) const;
  Status admit_count() const;
  StepLimits needs(std::int64_t visible_tokens) const;

  AskTable table_;
  bool reserved_ = false;
  StepLimits limits_;  // where reserved
};

}  // namespace seriatim
