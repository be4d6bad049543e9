// Random programs of calls that a Cache and a ShardedCache both have, and the one cache's answers to them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "seriatim/shard_cache.hpp"
#include "support/cache.hpp"

namespace seriatim::testing {

// One call of a program. Operands that are none are refused alike.
struct Step {
  enum Kind { kAdd, kAppend, kAppendFrom, kTruncate, kFork, kEvict, kReset, kRemove, kRebalance, kEven };
  Kind kind = kAdd;
  SequenceId sequence = 0;
  std::int64_t number = 0;              // anchor or tokens
  std::int64_t keep = -1;               // of appended tokens; -1: all; -2: rolled back
  std::vector<std::int64_t> fractions;  // of cuts, in groups from the anchor
};

struct World {
  Geometry geometry;
  CacheOptions options;
  std::vector<Step> steps;
  // After step i: what the call answered, and every sequence's state.
  std::vector<Status> answers;
  std::vector<std::map<SequenceId, Snapshot>> states;
};

inline constexpr std::int64_t kLayers = 2;

inline std::vector<std::int64_t> cuts_of(const Step& step, std::int64_t anchor, std::int64_t r, int ranks) {
  std::vector<std::int64_t> cuts;
  for (int k = 0; k + 1 < ranks; ++k)
    cuts.push_back(anchor + r * step.fractions[static_cast<std::size_t>(k) % step.fractions.size()]);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

inline cache_testing::Batch batch_of(const World& world, const Step& step, std::size_t number, std::int64_t layer,
                                     std::int64_t first) {
  return cache_testing::make_batch(world.geometry, layer, first, cache_testing::ids(1000 * (number + 1), step.number),
                                   world.options.layers[static_cast<std::size_t>(layer)].indexed);
}

// `call` is a Cache or a ShardedCache; `frontier` where the sequence goes on.
template <typename AnyCache, typename Append>
Status append_all(AnyCache& cache, const World& world, std::size_t number, std::int64_t frontier,
                  const Append& append) {
  const Step& step = world.steps[number];
  auto transaction = cache.begin();
  if (!transaction.ok()) return transaction.status();
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const cache_testing::Batch batch = batch_of(world, step, number, layer, frontier);
    if (Status s = append(*transaction, layer, batch.view); !s.ok()) return s;
  }
  if (step.keep == -2) {
    transaction->rollback();
    return {};
  }
  return step.keep < 0 ? transaction->commit() : transaction->commit_prefix(step.keep);
}

template <typename AnyCache>
std::int64_t frontier_of(const AnyCache& cache, SequenceId sequence) {
  const auto snapshot = cache.snapshot(sequence);
  return snapshot.ok() ? snapshot->run().anchor + snapshot->run().tokens : 0;
}

// The calls that both have.
template <typename AnyCache>
Status common_step(AnyCache& cache, const Step& step) {
  switch (step.kind) {
    case Step::kTruncate:
      return cache.truncate(step.sequence, step.number);
    case Step::kFork:
      return cache.fork(step.sequence).status();
    case Step::kEvict:
      return cache.evict_prefix(step.sequence, step.number);
    case Step::kReset:
      return cache.reset(step.sequence, step.number);
    case Step::kRemove:
      return cache.remove(step.sequence);
    default:
      return {};
  }
}

inline void run_alone(World& world) {
  auto cache = cache_testing::make_cache(world.geometry, world.options);
  std::vector<SequenceId> ids;
  for (std::size_t i = 0; i < world.steps.size(); ++i) {
    const Step& step = world.steps[i];
    Status status;
    if (step.kind == Step::kAdd) {
      status = cache->add(step.number).status();
    } else if (step.kind == Step::kAppend || step.kind == Step::kAppendFrom) {
      status = append_all(*cache, world, i, frontier_of(*cache, step.sequence),
                          [&](Transaction& t, std::int64_t layer, const TokenBatch& batch) {
                            return t.append(step.sequence, layer, batch);
                          });
    } else if (step.kind == Step::kRebalance || step.kind == Step::kEven) {
      status = cache->snapshot(step.sequence).status();
    } else {
      status = common_step(*cache, step);
    }
    world.answers.push_back(status);
    std::map<SequenceId, Snapshot> states;
    for (SequenceId id = 0; id < static_cast<SequenceId>(world.steps.size()); ++id) {
      auto snapshot = cache->snapshot(id);
      if (snapshot.ok()) states.emplace(id, *std::move(snapshot));
    }
    world.states.push_back(std::move(states));
  }
}

inline Status run_step(ShardedCache& cache, const World& world, std::size_t number) {
  const Step& step = world.steps[number];
  const int ranks = cache.group().size();
  const std::int64_t r = world.geometry.group_tokens();
  if (step.kind == Step::kAdd) return cache.add(step.number, cuts_of(step, step.number, r, ranks)).status();
  if (step.kind == Step::kEven) return cache.rebalance(step.sequence);
  if (step.kind == Step::kRebalance) {
    const auto snapshot = cache.snapshot(step.sequence);
    return cache.rebalance(step.sequence, cuts_of(step, snapshot.ok() ? snapshot->run().anchor : 0, r, ranks));
  }
  if (step.kind != Step::kAppend && step.kind != Step::kAppendFrom) return common_step(cache, step);
  const std::int64_t frontier = frontier_of(cache, step.sequence);
  return append_all(cache, world, number, frontier,
                    [&](ShardedTransaction& t, std::int64_t layer, const TokenBatch& batch) {
                      if (step.kind == Step::kAppend) return t.append(step.sequence, layer, batch);
                      const int holder = static_cast<int>(number) % ranks;
                      return t.append_from(holder, step.sequence, layer, frontier, step.number,
                                           holder == cache.group().rank() ? batch : TokenBatch());
                    });
}

inline std::vector<std::byte> bytes_at(const std::byte* from, std::int64_t bytes) { return {from, from + bytes}; }

// Whether this rank's part of a layer is that part of the whole.
inline ::testing::AssertionResult is_part_of(const ShardedLayer& part, const LayerView& whole) {
  const Geometry& g = *whole.geometry;
  if (part.run.anchor != whole.run.anchor || part.run.tokens != whole.run.tokens)
    return ::testing::AssertionFailure() << "run " << part.run.anchor << " + " << part.run.tokens << " where "
                                         << whole.run.anchor << " + " << whole.run.tokens << " is due";
  const VisibleRun local = part.local.run;
  for (std::int64_t p = local.anchor; p < local.anchor + local.tokens; ++p) {
    for (std::int64_t h = 0; h < g.kv_heads(); ++h) {
      const std::int64_t key = row_bytes(g.kv_dtype(), g.head_dim());
      const std::int64_t value = row_bytes(g.kv_dtype(), g.value_dim());
      if (bytes_at(part.local.key(p, h), key) != bytes_at(whole.key(p, h), key))
        return ::testing::AssertionFailure() << "key of " << p;
      if (bytes_at(part.local.value(p, h), value) != bytes_at(whole.value(p, h), value))
        return ::testing::AssertionFailure() << "value of " << p;
    }
    const std::int64_t index = row_bytes(g.index_dtype(), g.index_dim());
    if (whole.raw_index_key(p) != nullptr &&
        bytes_at(part.local.raw_index_key(p), index) != bytes_at(whole.raw_index_key(p), index))
      return ::testing::AssertionFailure() << "index key of " << p;
    const Coordinates a = part.local.coordinates(p);
    const Coordinates b = whole.coordinates(p);
    if (std::memcmp(&a, &b, sizeof a) != 0) return ::testing::AssertionFailure() << "coordinates of " << p;
  }
  const std::int64_t first = (local.anchor - whole.run.anchor) / g.group_tokens();
  const std::int64_t element = dtype_bytes(g.index_dtype());
  for (std::int64_t group = 0; group < part.local.pooled.groups; ++group) {
    for (std::int64_t i = 0; i < g.index_dim(); ++i) {
      const std::int64_t at = i * element * PooledKeys::kPanelGroups;
      if (std::memcmp(part.local.pooled.group(group) + at, whole.pooled.group(first + group) + at,
                      static_cast<std::size_t>(element)) != 0)
        return ::testing::AssertionFailure() << "pooled key of group " << first + group;
    }
  }
  return ::testing::AssertionSuccess();
}

// That a rank's part of every sequence is that of the one cache after `step`; -1: before all.
inline ::testing::AssertionResult is_after(const ShardedCache& cache, const World& world, std::int64_t step) {
  const std::map<SequenceId, Snapshot> none;
  const auto& due = step < 0 ? none : world.states[static_cast<std::size_t>(step)];
  const std::vector<SequenceId> ids = cache.sequences();
  if (ids.size() != due.size()) return ::testing::AssertionFailure() << ids.size() << " sequences";
  for (const SequenceId id : ids) {
    const auto whole = due.find(id);
    if (whole == due.end()) return ::testing::AssertionFailure() << "sequence " << id;
    const auto snapshot = cache.snapshot(id);
    if (!snapshot.ok()) return ::testing::AssertionFailure() << snapshot.status().message();
    if (snapshot->borders().back() != snapshot->run().anchor + snapshot->run().tokens)
      return ::testing::AssertionFailure() << "borders";
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      if (auto same = is_part_of(snapshot->layer(layer), whole->second.layer(layer)); !same)
        return same << ", layer " << layer << " of sequence " << id;
    }
  }
  return ::testing::AssertionSuccess();
}

inline World random_world(std::uint64_t seed, std::int64_t steps) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  GeometryOptions options = cache_testing::small_options(seed % 3 == 0 ? 1 : 4);
  if (seed % 2 == 0) options.kv_dtype = options.index_dtype = DType::kBf16;
  if (seed % 5 == 0) options.values_alias_keys = true;
  if (seed % 3 == 0 && seed % 2 == 0) {
    options.pooling = Pooling::kNone;
    options.index_rotary_dim = 0;
  } else if (seed % 4 == 1) {
    options.rope_axes = {0, 1};
  }
  World world{cache_testing::admit(options), cache_testing::cache_options(kLayers, 1 << 20), {}, {}, {}};
  world.options.layers[1].indexed = seed % 2 == 1;
  SequenceId made = 0;
  std::vector<std::int64_t> lengths;
  std::vector<SequenceId> alive;
  for (std::int64_t i = 0; i < steps; ++i) {
    Step step;
    for (int k = 0; k < 4; ++k) step.fractions.push_back(below(3) == 0 ? below(400) : below(90));
    const std::int64_t kind = alive.empty() ? 0 : below(20);
    step.sequence =
        alive.empty() || below(15) == 0 ? below(made + 1) : alive[static_cast<std::size_t>(below(std::ssize(alive)))];
    std::int64_t known = 300;
    if (step.sequence < made) known = lengths[static_cast<std::size_t>(step.sequence)];
    const auto set = [&](std::int64_t tokens) {
      if (step.sequence < made) lengths[static_cast<std::size_t>(step.sequence)] = tokens;
    };
    if (kind == 0) {
      step.kind = Step::kAdd;
      step.number = below(3) * 7;
      alive.push_back(made++);
      lengths.push_back(0);
    } else if (kind < 9) {
      step.kind = kind < 6 ? Step::kAppend : Step::kAppendFrom;
      step.number = below(4) == 0 ? 1 + below(3) : below(150);
      step.keep = below(5) == 0 ? below(step.number + 1) : below(9) == 0 ? -2 : -1;
      set(known + (step.keep == -2 ? 0 : step.keep < 0 ? step.number : step.keep));
    } else if (kind < 11) {
      step.kind = Step::kTruncate;
      step.number = below(known + 2);
      set(std::min(step.number, known));
    } else if (kind < 12) {
      step.kind = Step::kFork;
      if (std::ranges::find(alive, step.sequence) != alive.end()) {
        alive.push_back(made++);
        lengths.push_back(known);
      }
    } else if (kind < 15) {
      step.kind = Step::kEvict;
      step.number = below(3) == 0 ? below(known + 2) : below(std::min<std::int64_t>(known, 30) + 1);
      set(known - std::min(step.number, known));
    } else if (kind < 16) {
      step.kind = below(3) == 0 ? Step::kReset : Step::kRemove;
      if (step.kind == Step::kRemove) std::erase(alive, step.sequence);
      step.number = below(3) * 5;
      set(0);
    } else {
      step.kind = kind < 19 ? Step::kRebalance : Step::kEven;
    }
    world.steps.push_back(step);
  }
  run_alone(world);
  return world;
}

}  // namespace seriatim::testing
