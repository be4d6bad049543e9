// What plan and attend of a sharded engine share: the engine, the group, and how a call is described to other ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "seriatim/shard.hpp"
#include "step/ask_table.hpp"

namespace seriatim {

class ShardedEngine::Impl {
 public:
  Impl(Engine by, Group& with) : engine(std::move(by)), group(with) {}

  Status plan(std::span<const ShardedPlanAsk> asks, NanPolicy nan, Rows rows);
  Status attend(std::span<const ShardedAttendAsk> asks, ConstRows rows, Tensor output, Tensor lse,
                AttendOptions options);

  Engine engine;
  Group& group;
};

// Asks over whole sequences, as if one process held them: to be admitted, never to be read from.
template <typename Ask>
struct WholeAsks {
  std::deque<LayerView> views;
  std::vector<Ask> asks;
};

// The layer as one process would have it, without memory.
LayerView whole_view(const ShardedLayer& layer);

// Errors  InvalidArgument: borders that do not cut the run into whole groups, or a local layer of another range.
Status admit_borders(const ShardedLayer& layer, int rank, int ranks);

// Errors  InvalidArgument: a null layer; as admit_borders.
template <typename Ask, typename ShardedAsk>
Status make_whole(std::span<const ShardedAsk> asks, const Group& group, WholeAsks<Ask>& whole) {
  for (std::size_t a = 0; a < asks.size(); ++a) {
    const ShardedLayer* layer = asks[a].layer;
    if (layer == nullptr || layer->local.geometry == nullptr)
      return at_ask(Status::error(Code::kInvalidArgument, "layer", "layer: null"), a, asks.size());
    if (Status s = admit_borders(*layer, group.rank(), group.size()); !s.ok()) return at_ask(s, a, asks.size());
    whole.views.push_back(whole_view(*layer));
    whole.asks.push_back({&whole.views.back(), asks[a].queries});
  }
  return {};
}

// A digest of what all ranks must have in common.
class Digest {
 public:
  void add(std::span<const std::byte> bytes);
  template <typename T>
  void add(std::span<const T> values) {
    add(std::as_bytes(values));
  }
  // An admitted view. Its bytes, and its shape.
  void add(const ConstTensor& view);
  void add(const ShardedLayer& layer);
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(&value_, 1)); }

 private:
  std::uint64_t value_ = 0;
};

// Runs `body`, which returns a Status; memory that the system refuses becomes OutOfMemory.
template <typename Body>
Status without_throwing(std::string_view argument, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, argument, formatted("{}: the system refused memory", argument));
  }
}

// What the others do with a rank's numbers.
template <typename T>
void put(std::vector<std::byte>& to, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace seriatim
