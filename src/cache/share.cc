// The calls that make one sequence out of another: fork, copy, and the eviction of a prefix.

#include <utility>

#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "cache/impl.hpp"

namespace seriatim {
namespace {

Status out_of_range(std::string_view argument, std::int64_t value, std::int64_t most, SequenceId sequence) {
  return Status::error(Code::kInvalidArgument, argument,
                       formatted("{}: {} is not in 0..{}, what sequence {} holds", argument, value, most, sequence),
                       {sequence, -1});
}

// Errors and throws as StagedSequence::repool.
Result<Ref<const SequenceState>> evicted(const SequenceState& state, std::int64_t tokens, PoolBuffers& buffers) {
  if (tokens == state.run.tokens) {
    return SequenceState::make_empty(state.store, state.run.anchor + tokens);
  }
  Suffix suffix = state_suffix(state, tokens);
  if (!suffix.repool) return std::move(suffix.state);
  StagedSequence staged(-1, std::move(suffix.state), true);
  if (Status s = staged.repool(buffers); !s.ok()) return s;
  auto repooled = staged.published(0);
  staged.keep(0);
  return repooled;
}

}  // namespace

Result<SequenceId> Cache::fork(SequenceId sequence) {
  return guarded([&]() -> Result<SequenceId> {
    const std::lock_guard writing(impl_->writing);
    const Impl::Entry* entry = impl_->find(sequence);
    if (entry == nullptr) return not_found(sequence);
    return impl_->add(entry->state);
  });
}

Status Cache::evict_prefix(SequenceId sequence, std::int64_t tokens) {
  DefaultFloatEnvironment environment;
  return guarded([&]() -> Status {
    const std::lock_guard writing(impl_->writing);
    const auto entry = impl_->find_unstaged(sequence);
    if (!entry.ok()) return entry.status();
    const SequenceState& state = *(*entry)->state;
    if (tokens < 0 || tokens > state.run.tokens) return out_of_range("tokens", tokens, state.run.tokens, sequence);
    if (tokens == 0) return {};
    if (Status s = geometry().check_run({state.run.anchor + tokens, state.run.tokens - tokens}, sequence); !s.ok())
      return s;
    auto left = evicted(state, tokens, impl_->buffers);
    if (!left.ok()) return left.status();
    impl_->publish(**entry, std::move(*left));
    return {};
  });
}

Status Cache::copy(SequenceId source, std::int64_t first_position, std::int64_t tokens, SequenceId destination) {
  DefaultFloatEnvironment environment;
  return guarded([&]() -> Status {
    const std::lock_guard writing(impl_->writing);
    const Impl::Entry* from = impl_->find(source);
    if (from == nullptr) return not_found(source);
    const auto to = impl_->find_unstaged(destination);
    if (!to.ok()) return to.status();
    const VisibleRun held = from->state->run;
    if (tokens < 0 || tokens > held.tokens) return out_of_range("tokens", tokens, held.tokens, source);
    const std::int64_t skipped = first_position - held.anchor;
    if (first_position < held.anchor || skipped > held.tokens - tokens) {
      return Status::error(
          Code::kInvalidArgument, "first_position",
          formatted("first_position: {} tokens from {} are not all in sequence {}, which holds {} from {}", tokens,
                    first_position, source, held.tokens, held.anchor),
          {source, first_position});
    }
    const VisibleRun kept = (*to)->state->run;
    if (first_position != kept.anchor + kept.tokens) {
      return Status::error(Code::kNotContiguous, "first_position",
                           formatted("first_position: {} where sequence {} goes on at {}", first_position, destination,
                                     kept.anchor + kept.tokens),
                           {destination, kept.anchor + kept.tokens});
    }
    if (tokens == 0) return {};
    if (kept.tokens == 0) {
      const auto prefix = state_prefix(*from->state, skipped + tokens);
      auto shared = skipped == 0 ? Result<Ref<const SequenceState>>(prefix) : evicted(*prefix, skipped, impl_->buffers);
      if (!shared.ok()) return shared.status();
      impl_->publish(**to, std::move(*shared));
      return {};
    }
    StagedSequence staged(destination, (*to)->state);
    if (Status s = staged.append_from(*from->state, first_position, tokens, impl_->buffers); !s.ok()) return s;
    auto state = staged.published(tokens);
    staged.keep(tokens);
    impl_->publish(**to, std::move(state));
    return {};
  });
}

}  // namespace seriatim
