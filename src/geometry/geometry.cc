#include "seriatim/geometry.hpp"

#include <algorithm>
#include <cmath>

#include "base/checked.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "base/inv_freq.hpp"

namespace seriatim {
namespace {

Status invalid(std::string_view argument, std::string_view message, std::int64_t index = -1) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, message), {-1, index});
}

template <typename Number>
std::optional<Number> numbered(std::span<const std::string_view> names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt : std::optional(static_cast<Number>(found - names.begin()));
}

struct NamedExtent {
  std::string_view name;
  std::int64_t value;
};

Status check_extents(const GeometryOptions& o) {
  const NamedExtent extents[] = {{"group_tokens", o.group_tokens}, {"budget_tokens", o.budget_tokens},
                                 {"query_heads", o.query_heads},   {"kv_heads", o.kv_heads},
                                 {"head_dim", o.head_dim},         {"value_dim", o.value_dim},
                                 {"index_heads", o.index_heads},   {"index_dim", o.index_dim}};
  for (const auto& [name, value] : extents) {
    if (value < 1 || value > Geometry::kMaxExtent) {
      return invalid(name, formatted("{} is not in 1..{}", value, Geometry::kMaxExtent));
    }
  }
  return {};
}

Status check_relations(const GeometryOptions& o) {
  if (o.budget_tokens % o.group_tokens != 0) {
    return invalid("budget_tokens",
                   formatted("{} is not a multiple of group_tokens {}", o.budget_tokens, o.group_tokens));
  }
  if (o.query_heads % o.kv_heads != 0) {
    return invalid("query_heads", formatted("{} is not a multiple of kv_heads {}", o.query_heads, o.kv_heads));
  }
  if (o.values_alias_keys && o.value_dim > o.head_dim) {
    return invalid("value_dim", formatted("{} aliases keys of only {} dims", o.value_dim, o.head_dim));
  }
  if (static_cast<std::size_t>(o.pooling) >= std::size(kPoolingNames))
    return invalid("pooling", formatted("{} is no pooling", static_cast<int>(o.pooling)));
  if (static_cast<std::size_t>(o.scale_at) >= std::size(kScaleAtNames)) {
    return invalid("scale_at", formatted("{} is no place of the scale", static_cast<int>(o.scale_at)));
  }
  if (o.pooling == Pooling::kNone && o.group_tokens != 1) {
    return invalid("group_tokens",
                   formatted("{} with pooling none, which takes finished keys of single tokens", o.group_tokens));
  }
  if (o.pooling == Pooling::kMean && o.tail == Tail::kGroup && o.group_tokens > 1 && o.forced_newest == 0) {
    return invalid("forced_newest", "0 with pooling mean and tail group: a partial group has no pooled key");
  }
  if (!is_float(o.kv_dtype)) return invalid("kv_dtype", formatted("{} is not a float type", dtype_name(o.kv_dtype)));
  if (!is_float(o.index_dtype)) {
    return invalid("index_dtype", formatted("{} is not a float type", dtype_name(o.index_dtype)));
  }
  return {};
}

Status check_sets(const GeometryOptions& o) {
  if (static_cast<std::size_t>(o.tail) >= std::size(kTailNames))
    return invalid("tail", formatted("{} is no tail", static_cast<int>(o.tail)));
  for (const auto& [name, value] : {NamedExtent{"forced_first", o.forced_first}, {"forced_newest", o.forced_newest}}) {
    if (value < 0 || value > Geometry::kMaxExtent)
      return invalid(name, formatted("{} is not in 0..{}", value, Geometry::kMaxExtent));
  }
  const std::int64_t forced = o.forced_first + o.forced_newest;
  if (!o.forced_outside && forced > o.budget_tokens / o.group_tokens) {
    return invalid("forced_newest",
                   formatted("{} groups forced inside a budget of {}", forced, o.budget_tokens / o.group_tokens));
  }
  if (o.forced_outside && forced > (Geometry::kPositions - o.budget_tokens) / o.group_tokens - 1)
    return invalid("forced_newest", formatted("{} groups forced beside the budget pass the positions", forced));
  const NamedExtent shared[] = {{"kv_heads", o.kv_heads}, {"index_heads", o.index_heads}};
  for (const auto& [name, heads] : shared) {
    if (o.selections < 1 || heads % o.selections != 0)
      return invalid("selections", formatted("{} does not divide the {} {}", o.selections, heads, name));
  }
  return {};
}

Status check_rotation(const GeometryOptions& o) {
  const std::int64_t rotary = o.index_rotary_dim;
  if (rotary < 0 || rotary % 2 != 0 || rotary > o.index_dim) {
    return invalid("index_rotary_dim", formatted("{} is not an even number in 0..index_dim {}", rotary, o.index_dim));
  }
  const auto pairs = static_cast<std::size_t>(rotary / 2);
  if (!o.inv_freq.empty() && o.inv_freq.size() != pairs) {
    return invalid("inv_freq", formatted("{} entries for {} pairs", o.inv_freq.size(), pairs));
  }
  for (std::size_t i = 0; i < o.inv_freq.size(); ++i) {
    // Above 1 an angle could pass the range in which sine and cosine are correctly rounded.
    if (!(o.inv_freq[i] >= 0.0f && o.inv_freq[i] <= 1.0f)) {
      return invalid("inv_freq", formatted("entry {} is {}, not in 0..1", i, o.inv_freq[i]),
                     static_cast<std::int64_t>(i));
    }
  }
  // Past f32 there are no inverse frequencies; below 1 they would pass 1.
  if (o.inv_freq.empty() && rotary > 0 && !(o.rope_theta >= 1.0 && o.rope_theta < 0x1p+128)) {
    return invalid("rope_theta", formatted("{} is not a number from 1 to below 2^128", o.rope_theta));
  }
  if (!o.rope_axes.empty() && o.rope_axes.size() != pairs) {
    return invalid("rope_axes", formatted("{} entries for {} pairs", o.rope_axes.size(), pairs));
  }
  for (std::size_t i = 0; i < o.rope_axes.size(); ++i) {
    if (o.rope_axes[i] > 2) {
      return invalid("rope_axes", formatted("entry {} is {}, not in 0..2", i, o.rope_axes[i]),
                     static_cast<std::int64_t>(i));
    }
  }
  return {};
}

Status check_scalars(const GeometryOptions& o) {
  if (!(std::isfinite(o.norm_eps) && o.norm_eps > 0.0f)) {
    return invalid("norm_eps", formatted("{} is not finite and positive", o.norm_eps));
  }
  if (o.softmax_scale && !(std::isfinite(*o.softmax_scale) && *o.softmax_scale > 0.0f)) {
    return invalid("softmax_scale", formatted("{} is not finite and positive", *o.softmax_scale));
  }
  return {};
}

// Everything later sized by this geometry must fit 64 bits even for the largest number of tokens there can be.
Status check_bytes(const GeometryOptions& o) {
  const auto keys = checked_product({o.kv_heads, o.head_dim, 4, Geometry::kPositions});
  const auto values = checked_product({o.kv_heads, o.value_dim, 4, Geometry::kPositions});
  const auto queries = checked_product({o.query_heads, std::max(o.head_dim, o.value_dim), 4});
  const auto index = checked_product({o.index_heads, o.index_dim, 4});
  if (!keys || !values || !checked_add(*keys, *values) || !queries || !index) {
    return Status::error(Code::kOverflow, "geometry", "geometry: heads x dims do not fit 64-bit sizes");
  }
  return {};
}

}  // namespace

Result<Geometry> Geometry::admit(GeometryOptions options) {
  DefaultFloatEnvironment environment;
  if (options.value_dim == 0) options.value_dim = options.head_dim;
  for (auto check : {check_extents, check_sets, check_relations, check_rotation, check_scalars, check_bytes}) {
    if (Status status = check(options); !status.ok()) return status;
  }
  if (!options.softmax_scale) {
    options.softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(options.head_dim)));
  }
  if (options.inv_freq.empty()) {
    for (std::int64_t pair = 0; pair < options.index_rotary_dim / 2; ++pair) {
      options.inv_freq.push_back(inv_freq_from_theta(options.rope_theta, pair, options.index_rotary_dim));
    }
  }
  options.rope_theta = 0.0;
  return Geometry(std::move(options));
}

std::optional<Pooling> pooling_named(std::string_view name) { return numbered<Pooling>(kPoolingNames, name); }
std::optional<Tail> tail_named(std::string_view name) { return numbered<Tail>(kTailNames, name); }
std::optional<ScaleAt> scale_at_named(std::string_view name) { return numbered<ScaleAt>(kScaleAtNames, name); }

std::int64_t Geometry::row_width(std::int64_t visible_tokens) const {
  if (visible_tokens <= row_capacity()) return visible_tokens;
  const std::int64_t missing = forced_newest() > 0 ? missing_tokens(visible_tokens) : 0;
  return row_groups() * group_tokens() - missing + tail_tokens(visible_tokens);
}

std::int64_t Geometry::scored_keys(std::int64_t visible_tokens) const {
  if (pooling() != Pooling::kUnitMax) return index_keys(visible_tokens);
  return visible_tokens - tail_tokens(visible_tokens);
}

Status Geometry::check_run(VisibleRun run, std::int64_t row) const {
  const auto refuse = [row](std::string_view argument, std::string_view what) {
    const auto where = row < 0 ? std::string() : formatted(" (row {})", row);
    return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}{}", argument, what, where), {row, -1});
  };
  if (run.anchor < 0 || run.anchor >= kPositions) {
    return refuse("anchor", formatted("{} is not in 0..{}", run.anchor, kPositions - 1));
  }
  if (run.tokens < 0) return refuse("visible", formatted("{} tokens is negative", run.tokens));
  if (run.tokens > kPositions - run.anchor) {
    return refuse("visible", formatted("{} tokens from anchor {} pass the last position {}", run.tokens, run.anchor,
                                       kPositions - 1));
  }
  return {};
}

}  // namespace seriatim
