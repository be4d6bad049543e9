#include "shard/engine.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/float_environment.hpp"

namespace seriatim {

LayerView whole_view(const ShardedLayer& layer) {
  LayerView whole;
  whole.geometry = layer.local.geometry;
  whole.run = layer.run;
  whole.indexed = layer.local.indexed;
  if (whole.indexed) whole.pooled.groups = whole.geometry->groups(layer.run.tokens);
  return whole;
}

Status admit_borders(const ShardedLayer& layer, int rank, int ranks) {
  const auto invalid = [](std::string_view what) {
    return Status::error(Code::kInvalidArgument, "layer", formatted("layer: {}", what));
  };
  if (!layer.local.geometry->is_plain()) {
    return Status::error(Code::kUnsupported, "geometry",
                         "geometry: ranks share rows of the rule of contract section 2 alone");
  }
  const std::vector<std::int64_t>& borders = layer.borders;
  if (borders.size() != static_cast<std::size_t>(ranks) + 1)
    return invalid(formatted("{} borders for {} ranks", borders.size(), ranks));
  const std::int64_t end = layer.run.anchor + layer.run.tokens;
  if (borders.front() != layer.run.anchor || borders.back() != end || !std::is_sorted(borders.begin(), borders.end()))
    return invalid("its borders do not cut its run");
  for (const std::int64_t border : borders) {
    if (border != end && (border - layer.run.anchor) % layer.local.geometry->group_tokens() != 0)
      return invalid(formatted("the border {} is inside a group", border));
  }
  const auto own = static_cast<std::size_t>(rank);
  const std::int64_t tokens = borders[own + 1] - borders[own];
  if (layer.local.run.tokens != tokens || (tokens > 0 && layer.local.run.anchor != borders[own]))
    return invalid(formatted("the local layer does not hold the {} tokens from {} on", tokens, borders[own]));
  return {};
}

void Digest::add(std::span<const std::byte> bytes) {
  value_ = XXH3_64bits_withSeed(bytes.data(), bytes.size(), value_);
}

void Digest::add(const ConstTensor& view) {
  add(std::span<const std::int64_t>(view.shape));
  const std::int64_t element = dtype_bytes(view.dtype);
  const auto last = static_cast<std::size_t>(std::max(view.rank, 1) - 1);
  const auto row = static_cast<std::size_t>(view.shape[last] * element);
  if (view.empty() || row == 0) return;
  ConstTensor rows = view;  // without the last axis
  rows.shape[last] = 1;
  std::vector<std::byte> packed(row);
  for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
    for (std::int64_t j = 0; j < rows.shape[1]; ++j) {
      for (std::int64_t k = 0; k < rows.shape[2]; ++k) {
        const std::byte* at = rows.at(i, j, k);
        if (view.stride_bytes[last] == element) {
          add(std::span(at, row));
          continue;
        }
        for (std::int64_t e = 0; e < view.shape[last]; ++e)
          std::copy_n(at + e * view.stride_bytes[last], element, packed.data() + e * element);
        add(std::span<const std::byte>(packed));
      }
    }
  }
}

void Digest::add(const ShardedLayer& layer) {
  const std::int64_t run[] = {layer.run.anchor, layer.run.tokens, layer.local.layer};
  add(std::span<const std::int64_t>(run));
  add(std::span<const std::int64_t>(layer.borders));
}

ShardedEngine::ShardedEngine(Engine engine, Group& group) : impl_(std::make_unique<Impl>(std::move(engine), group)) {}
ShardedEngine::ShardedEngine(ShardedEngine&&) noexcept = default;
ShardedEngine& ShardedEngine::operator=(ShardedEngine&&) noexcept = default;
ShardedEngine::~ShardedEngine() = default;

Status ShardedEngine::plan(std::span<const ShardedPlanAsk> asks, NanPolicy nan, Rows rows) {
  const DefaultFloatEnvironment environment;
  return impl_->plan(asks, nan, rows);
}

Status ShardedEngine::attend(std::span<const ShardedAttendAsk> asks, ConstRows rows, Tensor output, Tensor lse,
                             AttendOptions options) {
  const DefaultFloatEnvironment environment;
  return impl_->attend(asks, rows, output, lse, options);
}

Engine& ShardedEngine::engine() { return impl_->engine; }

}  // namespace seriatim
