#include <optional>
#include <utility>

#include "capture/filled_cache.hpp"
#include "replay/place.hpp"
#include "seriatim/score.hpp"

namespace seriatim {
namespace {

class Alone final : public ReplayPlace {
 public:
  Alone(const Capture& capture, Engine& engine) : capture_(capture), engine_(engine) {}

  Status fill(const std::function<void(std::int64_t)>& progress) override {
    auto pages = engine_.allocator(capture_.geometry, cache_options_for(capture_));
    if (!pages.ok()) return pages.status();
    auto filled = fill_cache(capture_, all_tokens(capture_), *std::move(pages), progress);
    if (!filled.ok()) return filled.status();
    filled_.emplace(*std::move(filled));
    return engine_.reserve(capture_.geometry, {capture_.tokens(), kReplayQueries, 1});
  }

  Status plan(const IndexQueries& queries, Rows rows) override {
    return engine_.plan(filled_->layer, queries, NanPolicy::kRefuse, rows);
  }

  Status attend(const AttendQueries& queries, ConstRows rows, Tensor output, Tensor lse) override {
    return engine_.attend(filled_->layer, queries, rows, output, lse);
  }

  Status score(const ConstTensor& query, const ConstTensor& weights, std::int64_t position,
               std::vector<float>& scores) override {
    const PooledKeys pooled = filled_->layer.pooled_up_to(position);
    scores.resize(static_cast<std::size_t>(pooled.groups));
    return score_groups(capture_.geometry, query, weights, pooled, scores);
  }

  Status account(Replay& replay) override {
    replay.done = engine_.done();
    replay.bytes = filled_->cache->bytes();
    replay.scratch_bytes = engine_.bytes();
    return {};
  }

 private:
  const Capture& capture_;
  Engine& engine_;
  std::optional<FilledCache> filled_;
};

}  // namespace

std::unique_ptr<ReplayPlace> place_alone(const Capture& capture, Engine& engine) {
  return std::make_unique<Alone>(capture, engine);
}

}  // namespace seriatim
