// What stands behind an Engine: the host or a device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "seriatim/step.hpp"

namespace seriatim {

class Engine::Impl {
 public:
  virtual ~Impl() = default;
  virtual Result<std::shared_ptr<PageAllocator>> allocator(const Geometry& geometry, const CacheOptions& options) = 0;
  virtual Result<std::int64_t> bytes_for(const Geometry& geometry, const StepLimits& limits) const = 0;
  virtual Status reserve(const Geometry& geometry, const StepLimits& limits) = 0;
  virtual std::int64_t bytes() const = 0;
  virtual Status plan(std::span<const PlanAsk> asks, NanPolicy nan, Rows rows) = 0;
  virtual Status attend(std::span<const AttendAsk> asks, ConstRows rows, Tensor output, Tensor lse) = 0;
  virtual void let_go() = 0;

  WorkDone done;
};

}  // namespace seriatim
