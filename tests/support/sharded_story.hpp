// A story held by several ranks, each on a thread of its own, to be compared with one process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "seriatim/shard.hpp"
#include "support/path.hpp"

namespace seriatim::testing {

// Runs `work` on every rank of `transports`; gives the ranks' answers.
inline std::vector<Status> on_every_rank(const ThreadTransports& transports,
                                         const std::function<Status(Group&)>& work) {
  std::vector<Status> answers(static_cast<std::size_t>(transports.size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < transports.size(); ++rank) {
    threads.emplace_back([&, rank, end = transports.at(rank)] {
      auto group = Group::meet(end, Call("test"));
      answers[static_cast<std::size_t>(rank)] = group.ok() ? work(*group) : group.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

inline ThreadTransports some_ranks(std::int64_t ranks) {
  return *ThreadTransports::make(static_cast<int>(ranks), std::chrono::seconds(20));
}

// One rank's part of a story: its tokens in a cache of its own.
// Takes   cuts: tokens of the story that ranks 1, 2, ... begin with, ascending
class StoryPart {
 public:
  StoryPart(const Story& story, const std::vector<std::int64_t>& cuts, std::int64_t rank,
            std::int64_t page_tokens = 0) {
    borders_.push_back(story.anchor);
    for (const std::int64_t cut : cuts) borders_.push_back(story.anchor + cut);
    borders_.push_back(story.anchor + story.tokens());
    const std::int64_t first = borders_[static_cast<std::size_t>(rank)];
    const std::int64_t count = borders_[static_cast<std::size_t>(rank) + 1] - first;
    CacheOptions options;
    options.layers[0].index_norm_weight = story.norm_weight;
    options.capacity_tokens = story.tokens() + 4096;
    options.page_tokens = page_tokens;
    cache_ = *Cache::create(story.geometry, std::move(options));
    const SequenceId sequence = *cache_->add(first);
    if (count > 0) {
      auto transaction = cache_->begin();
      Status status = transaction->append(sequence, 0, story.batch(first - story.anchor, count));
      if (status.ok()) status = transaction->commit();
      EXPECT_TRUE(status.ok()) << status.message();
    }
    snapshot_.emplace(*cache_->snapshot(sequence));
    layer_ = {snapshot_->layer(0), {story.anchor, story.tokens()}, borders_};
  }

  const ShardedLayer& layer() const { return layer_; }
  ShardedLayer& layer() { return layer_; }

 private:
  std::vector<std::int64_t> borders_;
  std::unique_ptr<Cache> cache_;
  std::optional<Snapshot> snapshot_;
  ShardedLayer layer_;
};

}  // namespace seriatim::testing
