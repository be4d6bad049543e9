#include "workers.hpp"

#include <algorithm>
#include <new>

#include "team_executor.hpp"

namespace seriatim::plugin {

Workers::Team& Workers::team() {
  const auto found =
      std::find_if(teams_.begin(), teams_.end(), [this](const Team& t) { return t.threads == threads_; });
  if (found != teams_.end()) return *found;
  Team made;
  made.threads = threads_;
  if (threads_ > 1) {
    made.own = make_team_executor(threads_);
    if (made.own == nullptr) made.own = make_executor(threads_);
    if (made.own == nullptr) throw std::bad_alloc();
  }
  made.executor = made.own == nullptr ? &serial_executor() : made.own.get();
  auto engine = Engine::host(*made.executor);
  if (!engine.ok()) throw std::bad_alloc();
  made.engine.emplace(std::move(*engine));
  teams_.push_back(std::move(made));
  return teams_.back();
}

}  // namespace seriatim::plugin
