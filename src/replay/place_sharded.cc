#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "capture/filled_cache.hpp"
#include "replay/place.hpp"
#include "seriatim/group.hpp"
#include "seriatim/score.hpp"
#include "seriatim/shard.hpp"

namespace seriatim {
namespace {

// As many whole groups on every rank, or one more on the first ones; the tail on the last.
std::vector<std::int64_t> even_borders(const Capture& capture, std::int64_t ranks) {
  const std::int64_t r = capture.geometry.group_tokens();
  const std::int64_t groups = capture.tokens() / r;
  std::vector<std::int64_t> borders;
  for (std::int64_t k = 0; k < ranks; ++k)
    borders.push_back(capture.anchor + r * (groups / ranks * k + std::min(groups % ranks, k)));
  borders.push_back(capture.anchor + capture.tokens());
  return borders;
}

class Sharded final : public ReplayPlace {
 public:
  Sharded(const Capture& capture, ShardedEngine& engine, Group& group)
      : capture_(capture), engine_(engine), group_(group) {}

  Status fill(const std::function<void(std::int64_t)>& progress) override {
    layer_.run = {capture_.anchor, capture_.tokens()};
    layer_.borders = even_borders(capture_, group_.size());
    const std::int64_t first = layer_.borders[rank()] - capture_.anchor;
    const std::int64_t count = layer_.borders[rank() + 1] - layer_.borders[rank()];
    auto filled = fill_cache(capture_, {first, count}, nullptr, progress);
    // A rank that lacks memory tells the others before they wait for it.
    const Status mine = filled.ok() ? Status() : filled.status();
    if (Status s = group_.agree(Call("fill").with("tokens", capture_.tokens()), mine); !s.ok()) return s;
    filled_.emplace(*std::move(filled));
    layer_.local = filled_->layer;
    return {};
  }

  Status plan(const IndexQueries& queries, Rows rows) override {
    const ShardedPlanAsk ask{&layer_, queries};
    if (Status s = engine_.plan({&ask, 1}, NanPolicy::kRefuse, rows); !s.ok()) return s;
    const Geometry& g = capture_.geometry;
    done_.queries += static_cast<std::int64_t>(queries.positions.size());
    for (std::size_t q = 0; q < queries.positions.size(); ++q) {
      const std::int64_t visible = queries.positions[q] - capture_.anchor + 1;
      const std::int64_t width = rows.counts[q];
      done_.dense_rows += width == visible ? 1 : 0;
      done_.groups_scored += width == visible ? 0 : g.groups(visible);
      done_.groups_selected += (width - g.tail_tokens(visible)) / g.group_tokens();
      done_.row_tokens += width;
    }
    return {};
  }

  Status attend(const AttendQueries& queries, ConstRows rows, Tensor output, Tensor lse) override {
    const ShardedAttendAsk ask{&layer_, queries};
    return engine_.attend({&ask, 1}, rows, output, lse);
  }

  Status score(const ConstTensor& query, const ConstTensor& weights, std::int64_t position,
               std::vector<float>& scores) override {
    const std::int64_t r = capture_.geometry.group_tokens();
    const auto groups_of = [&](std::size_t k) {
      const std::int64_t end = std::min(layer_.borders[k + 1], position + 1);
      return static_cast<std::size_t>(std::max<std::int64_t>(end - layer_.borders[k], 0) / r);
    };
    std::size_t most = 0;
    for (std::size_t k = 0; k < ranks(); ++k) most = std::max(most, groups_of(k));
    std::vector<float> mine(most);
    std::vector<float> all(most * ranks());
    Status refused;
    if (groups_of(rank()) > 0) {
      const std::int64_t newest = std::min(position, layer_.borders[rank() + 1] - 1);
      refused = score_groups(capture_.geometry, query, weights, layer_.local.pooled_up_to(newest),
                             std::span(mine).first(groups_of(rank())));
    }
    if (Status s = group_.gather(Call("score").with("position", position), refused, std::as_bytes(std::span(mine)),
                                 std::as_writable_bytes(std::span(all)));
        !s.ok())
      return s;
    scores.clear();
    for (std::size_t k = 0; k < ranks(); ++k) {
      const auto part = std::span(all).subspan(k * most, groups_of(k));
      scores.insert(scores.end(), part.begin(), part.end());
    }
    return {};
  }

  Status account(Replay& replay) override {
    struct Share {
      RankShare share;
      CacheBytes bytes;
      std::int64_t scratch;
    };
    const Traffic& sent = group_.transport().traffic();
    const CacheBytes held = filled_->cache->bytes();
    const Share mine{{layer_.borders[rank() + 1] - layer_.borders[rank()], held.total(), sent.messages, sent.bytes},
                     held,
                     engine_.engine().bytes()};
    std::vector<Share> all(ranks());
    if (Status s = group_.gather(Call("account"), {}, std::as_bytes(std::span(&mine, 1)),
                                 std::as_writable_bytes(std::span(all)));
        !s.ok())
      return s;
    replay.done = done_;
    replay.bytes = {};
    replay.scratch_bytes = 0;
    for (const Share& one : all) {
      replay.ranks.push_back(one.share);
      replay.bytes.keys_values += one.bytes.keys_values;
      replay.bytes.raw_index_keys += one.bytes.raw_index_keys;
      replay.bytes.pooled_keys += one.bytes.pooled_keys;
      replay.bytes.tables += one.bytes.tables;
      replay.scratch_bytes += one.scratch;
    }
    return {};
  }

 private:
  std::size_t rank() const { return static_cast<std::size_t>(group_.rank()); }
  std::size_t ranks() const { return static_cast<std::size_t>(group_.size()); }

  const Capture& capture_;
  ShardedEngine& engine_;
  Group& group_;
  ShardedLayer layer_;
  std::optional<FilledCache> filled_;
  WorkDone done_;
};

}  // namespace

std::unique_ptr<ReplayPlace> place_sharded(const Capture& capture, ShardedEngine& engine, Group& group) {
  return std::make_unique<Sharded>(capture, engine, group);
}

}  // namespace seriatim
