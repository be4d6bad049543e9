#include "step/engine.hpp"

#include <utility>

namespace seriatim {

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<std::shared_ptr<PageAllocator>> Engine::allocator(const Geometry& geometry, const CacheOptions& options) {
  return impl_->allocator(geometry, options);
}
Result<std::int64_t> Engine::bytes_for(const Geometry& geometry, const StepLimits& limits) const {
  return impl_->bytes_for(geometry, limits);
}
Status Engine::reserve(const Geometry& geometry, const StepLimits& limits) { return impl_->reserve(geometry, limits); }
std::int64_t Engine::bytes() const { return impl_->bytes(); }
Status Engine::plan(std::span<const PlanAsk> asks, NanPolicy nan, Rows rows) { return impl_->plan(asks, nan, rows); }
Status Engine::attend(std::span<const AttendAsk> asks, ConstRows rows, Tensor output, Tensor lse) {
  return impl_->attend(asks, rows, output, lse);
}
WorkDone Engine::done() const { return impl_->done; }
void Engine::clear_done() { impl_->done = {}; }
void Engine::let_go() { impl_->let_go(); }

}  // namespace seriatim
