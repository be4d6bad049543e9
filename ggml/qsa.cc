#include "qsa.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <span>

#include "index/pool_kernels.hpp"
#include "mask_row.hpp"
#include "step/for_units.hpp"
#include "tensors.hpp"
#include "widener.hpp"

namespace seriatim::plugin {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint16_t kHidden = 0xfc00;
constexpr std::int64_t kUnitGroups = 4 * kPoolGroups;
constexpr std::int64_t kSliceFloats = std::int64_t{2} << 20;  // scores of the queries that are served together
constexpr std::int64_t kMostSliceQueries = 64;

GeometryOptions index_options(std::int64_t heads, std::int64_t dim) {
  GeometryOptions options;  // of the rest nothing is used
  options.query_heads = options.kv_heads = options.head_dim = 1;
  options.index_heads = heads;
  options.index_dim = dim;
  options.index_rotary_dim = 0;
  return options;
}

Result<Geometry> pool_geometry(const PoolChain& chain) {
  const ggml_tensor* rope = chain.pooled;
  GeometryOptions options = index_options(1, rope->ne[0]);
  options.group_tokens = options.budget_tokens = chain.group_tokens;
  options.index_rotary_dim = rope->op_params[1];
  options.norm_eps = chain.eps;
  float base;
  std::memcpy(&base, rope->op_params + 5, sizeof base);
  options.rope_theta = static_cast<double>(base);
  const std::int32_t* sections = rope->op_params + 11;
  const std::int32_t all = sections[0] + sections[1] + sections[2];
  if (all <= 0) return Status::error(Code::kUnsupported, "sections", "sections: none");
  for (std::int32_t pair = 0; pair < options.index_rotary_dim / 2; ++pair) {
    const std::int32_t sector = pair % all, axis = sector % 3;
    if (sector >= 3 * sections[axis]) return Status::error(Code::kUnsupported, "sections", "sections: a fourth axis");
    options.rope_axes.push_back(static_cast<std::uint8_t>(axis));
  }
  return Geometry::admit(std::move(options));
}

template <typename T>
std::span<const T> elements(const ggml_tensor* tensor, std::int64_t first, std::int64_t count) {
  return {static_cast<const T*>(tensor->data) + first, static_cast<std::size_t>(count)};
}

bool are_neighbours(std::span<const std::int32_t> cells) {
  bool are = true;
  for (std::size_t i = 1; i < cells.size(); ++i) are &= cells[i] == cells[0] + static_cast<std::int32_t>(i);
  return are;
}

bool all_below(std::span<const std::int32_t> numbers, std::int64_t bound) {
  std::uint32_t greatest = 0;  // no exit from the loop, so that it becomes vector code; a negative number is great
  for (const std::int32_t n : numbers) greatest = std::max(greatest, static_cast<std::uint32_t>(n));
  return numbers.empty() || static_cast<std::int64_t>(greatest) < bound;
}

}  // namespace

// Sines and cosines of the positions at which groups of text stand, for all layers and steps.
void Qsa::prepare_turns(const Geometry& geometry, std::int64_t groups, Workers& workers) {
  const std::int64_t row = turn_floats(geometry), tokens = geometry.group_tokens();
  const auto frequencies = geometry.inv_freq();
  const bool same = turns_.tokens == tokens && std::equal(frequencies.begin(), frequencies.end(),
                                                          turns_.frequencies.begin(), turns_.frequencies.end());
  if (same && turns_.groups >= groups) return;
  turns_.tokens = tokens;
  turns_.frequencies.assign(frequencies.begin(), frequencies.end());
  turns_.groups = 0;  // none, should memory be refused
  turns_.numbers.resize(static_cast<std::size_t>(groups * 2 * row));
  const PoolKernels& pooling = pool_kernels(default_kernels());
  for_units(workers.executor(), (groups + kUnitGroups - 1) / kUnitGroups, [&](std::int64_t unit, int worker) {
    float* angles = pool_scratch_[static_cast<std::size_t>(worker)].work.data();
    for (std::int64_t g = unit * kUnitGroups; g < std::min(groups, (unit + 1) * kUnitGroups); ++g) {
      float* sines = turns_.numbers.data() + g * 2 * row;
      for (std::size_t i = 0; i < frequencies.size(); ++i) angles[i] = static_cast<float>(g * tokens) * frequencies[i];
      pooling.sincos(angles, static_cast<std::int64_t>(frequencies.size()), sines, sines + row);
    }
  });
  turns_.groups = groups;
}

Outcome Qsa::pool(const PoolChain& chain, Workers& workers, const AbortCallback& abort) {
  if (abort.wants_to_stop()) return Outcome::kAborted;
  const auto geometry = pool_geometry(chain);
  if (!geometry.ok()) return Outcome::kLeft;
  const std::int64_t dim = geometry->index_dim(), tokens = chain.group_tokens, groups = chain.groups;
  const std::int64_t streams = chain.keys->ne[2];
  if (!all_below(elements<std::int32_t>(chain.cells, 0, tokens * groups * streams), chain.keys->ne[1]) ||
      !all_below(elements<std::int32_t>(chain.positions, 0, 3 * groups * streams), Geometry::kPositions)) {
    return Outcome::kLeft;
  }
  // The kernels add the 1 that the model's file has added already; where that gives other bits the chain is ggml's.
  norm_weight_.clear();
  for (const float weight : elements<float>(chain.weight, 0, dim)) {
    norm_weight_.push_back(weight - 1.0f);
    if (1.0f + norm_weight_.back() != weight) return Outcome::kLeft;
  }
  grow_to(pool_scratch_, workers.threads());
  for (PoolScratch& own : pool_scratch_) {
    grow_to(own.raw, kPoolGroups * tokens * dim);
    grow_to(own.work, pool_scratch_floats(*geometry));
  }
  const Kernels chosen = default_kernels();
  const PoolKernels& pooling = pool_kernels(chosen);
  const Widener widen(chain.keys->type, chosen);
  const bool in_place = plain_dtype(chain.keys->type).has_value();
  prepare_turns(*geometry, groups, workers);
  const std::int64_t units = (groups + kUnitGroups - 1) / kUnitGroups;
  for_units(workers.executor(), units * streams, [&](std::int64_t unit, int worker) {
    PoolScratch& own = pool_scratch_[static_cast<std::size_t>(worker)];
    const std::int64_t stream = unit / units;
    const std::int64_t end = std::min(groups, (unit % units + 1) * kUnitGroups);
    const auto cells = elements<std::int32_t>(chain.cells, stream * groups * tokens, groups * tokens);
    const std::byte* keys = bytes_of(chain.keys) + stream * stride(chain.keys, 2);
    const auto* positions = static_cast<const std::int32_t*>(chain.positions->data) + stream * groups;
    for (std::int64_t first = unit % units * kUnitGroups; first < end; first += kPoolGroups) {
      const std::int64_t count = std::min(kPoolGroups, end - first);
      const auto members =
          cells.subspan(static_cast<std::size_t>(first * tokens), static_cast<std::size_t>(count * tokens));
      Coordinates at[kPoolGroups];
      bool known = true;  // whether the table has them: text, at a whole number of groups
      for (std::int64_t g = 0; g < count; ++g) {
        for (std::size_t axis = 0; axis < 3; ++axis)
          at[g][axis] = positions[static_cast<std::int64_t>(axis) * groups * streams + first + g];
        for (const std::int32_t axis : at[g]) known = known && axis == std::int64_t{at[0][0]} + g * tokens;
      }
      known = known && at[0][0] % tokens == 0 && at[0][0] / tokens + count <= turns_.groups;
      PoolTask task;
      task.geometry = &*geometry;
      task.norm_weight = norm_weight_.data();
      if (in_place && are_neighbours(members)) {
        task.raw = keys + members[0] * stride(chain.keys, 1);
        task.stride_bytes = stride(chain.keys, 1);
        task.raw_dtype = plain_dtype(chain.keys->type);
      } else {
        for (std::int64_t i = 0; i < count * tokens; ++i)
          widen(keys + members[static_cast<std::size_t>(i)] * stride(chain.keys, 1), dim, own.raw.data() + i * dim);
        task.raw = reinterpret_cast<const std::byte*>(own.raw.data());
        task.stride_bytes = row_bytes(DType::kF32, dim);
      }
      if (known) task.turns = turns_.numbers.data() + at[0][0] / tokens * 2 * turn_floats(*geometry);
      task.tokens = tokens;
      task.groups = count;
      task.at = at;
      task.scratch = own.work.data();
      task.pooled = static_cast<std::byte*>(chain.pooled->data) + (stream * groups + first) * stride(chain.pooled, 2);
      task.group_stride_bytes = stride(chain.pooled, 2);
      task.dim_stride_bytes = dtype_bytes(DType::kF32);
      pooling.pool(task);
    }
  });
  return Outcome::kDone;
}

// A group that is not there has the same cell in all its places.
bool Qsa::read_groups(const SelectChain& chain, std::int64_t stream) {
  const std::int64_t tokens = chain.pool.group_tokens, groups = chain.pool.groups;
  const auto members = elements<std::int32_t>(chain.pool.cells, stream * groups * tokens, groups * tokens);
  const auto group_of = elements<std::int32_t>(chain.cell_group, stream * chain.cells(), chain.cells());
  if (!all_below(members, chain.cells())) return false;
  whole_groups_ = groups;
  while (whole_groups_ > 0 && members[static_cast<std::size_t>((whole_groups_ - 1) * tokens)] ==
                                  members[static_cast<std::size_t>((whole_groups_ - 1) * tokens + 1)]) {
    --whole_groups_;
  }
  loose_.clear();
  constexpr std::size_t kRun = 64;  // looked at together, so that the look becomes vector code
  const auto whole = static_cast<std::int32_t>(whole_groups_);
  for (std::size_t first = 0; first < group_of.size(); first += kRun) {
    const auto run = group_of.subspan(first, std::min(kRun, group_of.size() - first));
    std::int32_t greatest = 0;
    for (const std::int32_t group : run) greatest = std::max(greatest, group);
    if (greatest < whole) continue;
    for (std::size_t i = 0; i < run.size(); ++i) {
      if (run[i] >= whole) loose_.push_back(static_cast<std::int32_t>(first + i));
    }
  }
  return true;
}

// Of query `token`, whose scores stand in place `place`.
void Qsa::choose_row(const SelectChain& chain, std::int64_t stream, std::int64_t token, std::int64_t place,
                     QsaScratch& scratch) {
  const std::int64_t tokens = chain.pool.group_tokens, groups = chain.pool.groups, width = chain.top_k->ne[0];
  const auto bias = elements<float>(chain.bias, (stream * chain.tokens() + token) * groups, groups);
  const auto* members = static_cast<const std::int32_t*>(chain.pool.cells->data) + stream * groups * tokens;
  const std::uint16_t* mask =
      static_cast<const std::uint16_t*>(chain.mask->data) + (stream * chain.tokens() + token) * chain.cells();
  const float* scores = scores_.data() + place * groups;
  scratch.scores.assign(scores, scores + whole_groups_);
  scratch.forced.clear();
  for (std::int64_t g = 0; g < whole_groups_; ++g) {
    const auto at = static_cast<std::size_t>(g);
    if (bias[at] == 0.0f) continue;
    if (bias[at] >= kForcedBias) {
      for (std::int64_t i = 0; i < tokens; ++i) {
        const std::int32_t cell = members[g * tokens + i];
        if (mask[cell] != kHidden) scratch.forced.push_back(cell);
      }
      scratch.scores[at] = kNaN;
    } else {
      scratch.scores[at] = bias[at] > -std::numeric_limits<float>::infinity() ? scratch.scores[at] + bias[at] : kNaN;
    }
  }
  for (const std::int32_t cell : loose_) {
    if (mask[cell] != kHidden) scratch.forced.push_back(cell);
  }
  if (!std::is_sorted(scratch.forced.begin(), scratch.forced.end()))
    std::sort(scratch.forced.begin(), scratch.forced.end());
  const std::span<std::int32_t> row(cells_.data() + place * width, static_cast<std::size_t>(width));
  const std::int64_t count = qsa_row_of_groups(members, tokens, mask, scratch, row);
  counts_[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(count);
  read_mask_values(mask, row.first(static_cast<std::size_t>(count)), biases_.data() + place * width);
}

Outcome Qsa::choose_rows(const SelectChain& chain, Workers& workers, const AbortCallback& abort,
                         const std::function<Outcome(std::int64_t, std::int64_t)>& use) {
  // Scores go straight to their places; a group's rank is all that counts.
  class Places final : public Scorer::Sink {
   public:
    Places(float* scores, std::int64_t groups) : scores_(scores), groups_(groups) {}
    void take(std::int64_t query, std::int64_t first, std::int64_t count, const float* scores, float*) override {
      std::copy_n(scores, count, scores_ + query * groups_ + first);
    }

   private:
    float* scores_;
    std::int64_t groups_;
  };

  const std::int64_t groups = chain.pool.groups, width = chain.top_k->ne[0], tokens = chain.tokens();
  const std::int64_t dim = chain.queries->ne[0];
  const auto geometry = Geometry::admit(index_options(chain.heads, dim));
  if (!geometry.ok()) return Outcome::kLeft;
  const std::int64_t slice = std::clamp<std::int64_t>(kSliceFloats / groups, 1, kMostSliceQueries);
  grow_to(scores_, slice * groups);
  grow_to(cells_, slice * width);
  grow_to(counts_, slice);
  grow_to(biases_, slice * width);
  grow_to(row_scratch_, workers.threads());
  const auto* pooled = static_cast<const std::byte*>(chain.pool.pooled->data);
  const std::int64_t row = stride(chain.pool.pooled, 2);
  for (std::int64_t stream = 0; stream < chain.streams(); ++stream) {
    if (!read_groups(chain, stream)) return Outcome::kLeft;
    for (std::int64_t first = 0; first < tokens; first += slice) {
      if (abort.wants_to_stop()) return Outcome::kAborted;
      const std::int64_t count = std::min(slice, tokens - first);
      const float* queries =
          static_cast<const float*>(chain.queries->data) + (stream * tokens + first) * chain.heads * dim;
      Places places(scores_.data(), groups);
      scorer_.run(*geometry, dense_view(static_cast<const void*>(queries), DType::kF32, {count, chain.heads, dim}), {},
                  {GGML_TYPE_F32, pooled + stream * groups * row, row, groups}, workers, places);
      for_units(workers.executor(), count, [&](std::int64_t i, int worker) {
        choose_row(chain, stream, first + i, i, row_scratch_[static_cast<std::size_t>(worker)]);
      });
      if (const Outcome o = use(stream * tokens + first, count); o != Outcome::kDone) return o;
    }
  }
  return Outcome::kDone;
}

Outcome Qsa::attend(const AttendChain& chain, Attention& attention, Workers& workers, const AbortCallback& abort) {
  const std::int64_t width = chain.select.top_k->ne[0];
  return choose_rows(chain.select, workers, abort, [&](std::int64_t first, std::int64_t count) {
    const bool biased = std::any_of(biases_.begin(), biases_.begin() + static_cast<std::ptrdiff_t>(count * width),
                                    [](float b) { return b != 0.0f; });
    const CellRows rows{cells_.data(), width, counts_.data(), biased ? biases_.data() : nullptr};
    return attention.attend(chain.attention, first, count, rows, workers);
  });
}

Outcome Qsa::select(const SelectChain& chain, Workers& workers, const AbortCallback& abort) {
  const std::int64_t width = chain.top_k->ne[0];
  return choose_rows(chain, workers, abort, [&](std::int64_t first, std::int64_t count) {
    auto* out = static_cast<std::int32_t*>(chain.top_k->data) + first * width;
    std::copy_n(cells_.begin(), count * width, out);
    for (std::int64_t i = 0; i < count; ++i, out += width) {
      const std::int32_t many = counts_[static_cast<std::size_t>(i)];
      std::fill(out + many, out + width, many == 0 ? 0 : out[many - 1]);
    }
    return Outcome::kDone;
  });
}

Outcome Qsa::select_cells(const SelectChain& chain, Workers& workers, const AbortCallback& abort) {
  if (abort.wants_to_stop()) return Outcome::kAborted;
  const ggml_tensor* node = chain.top_k;
  const ggml_tensor* scores = node->src[0];
  const std::int64_t cells = chain.cells(), width = node->ne[0];
  grow_to(row_scratch_, workers.threads());
  for_units(workers.executor(), chain.tokens() * chain.streams(), [&](std::int64_t row, int worker) {
    const std::int64_t stream = row / chain.tokens();
    qsa_row_of_cells({reinterpret_cast<const float*>(row_of(scores, row)), static_cast<std::size_t>(cells)},
                     elements<std::int32_t>(chain.cell_group, stream * cells, cells), chain.pool.groups,
                     chain.pool.group_tokens, row_scratch_[static_cast<std::size_t>(worker)],
                     {static_cast<std::int32_t*>(node->data) + row * width, static_cast<std::size_t>(width)});
  });
  return Outcome::kDone;
}

}  // namespace seriatim::plugin
