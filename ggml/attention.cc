#include "attention.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <span>

#include "counters.hpp"
#include "mask_row.hpp"
#include "step/for_units.hpp"
#include "tensors.hpp"
#include "widener.hpp"

namespace seriatim::plugin {
namespace {

constexpr std::int64_t kSliceQueries = 128;  // between two looks at the abort callback
constexpr std::int64_t kWidenedBytes = std::int64_t{64} << 20;
constexpr std::int64_t kCellsPerUnit = 32;

float parameter(const ggml_tensor* node, int index) {
  float value;
  std::memcpy(&value, node->op_params + index, sizeof value);
  return value;
}

// Whether the values are the leading dims of the keys.
bool aliased(const ggml_tensor* k, const ggml_tensor* v) {
  return k->data == v->data && k->type == v->type && v->ne[0] <= k->ne[0] && k->nb[1] == v->nb[1] &&
         k->nb[2] == v->nb[2] && k->nb[3] == v->nb[3];
}

bool read_in_place(const ggml_tensor* k, const ggml_tensor* v) {
  return k->type == v->type && plain_dtype(k->type).has_value();
}

GeometryOptions geometry_options(const ggml_tensor* node, bool widened, bool alias) {
  GeometryOptions options;
  // Of the index nothing is used: as little scratch for it as can be.
  options.group_tokens = options.budget_tokens = 4096;
  options.index_heads = 1;
  options.index_dim = 4;
  options.index_rotary_dim = 0;
  options.query_heads = node->src[0]->ne[2];
  options.kv_heads = node->src[1]->ne[2];
  options.head_dim = node->src[1]->ne[0];
  options.value_dim = node->src[2]->ne[0];
  options.values_alias_keys = alias;
  options.softmax_scale = parameter(node, 0);
  options.kv_dtype = widened ? DType::kF32 : *plain_dtype(node->src[1]->type);
  return options;
}

}  // namespace

std::int64_t most_visible(const ggml_tensor* node) { return node->op_params[4]; }

std::string_view unfit_attention(const ggml_tensor* node) {
  if (node->op != GGML_OP_FLASH_ATTN_EXT) return "another op";
  const ggml_tensor* q = node->src[0];
  const ggml_tensor* k = node->src[1];
  const ggml_tensor* v = node->src[2];
  const ggml_tensor* mask = node->src[3];
  const ggml_tensor* sinks = node->src[4];
  if (q == nullptr || k == nullptr || v == nullptr) return "no queries, keys or values";
  if (mask == nullptr) return "no mask";
  if (is_empty_somewhere(node)) return "empty";
  if (parameter(node, 1) != 0.0f) return "ALiBi";
  if (parameter(node, 2) != 0.0f) return "softcap";
  if (!std::isfinite(parameter(node, 0)) || !(parameter(node, 0) > 0.0f)) return "scale";
  if (q->type != GGML_TYPE_F32 || node->type != GGML_TYPE_F32) return "queries or output not f32";
  if (!can_be_widened(k->type) || !can_be_widened(v->type)) return "type of keys or values";
  if (mask->type != GGML_TYPE_F16 || !ggml_is_contiguous(mask)) return "type of the mask";
  if (q->nb[0] != sizeof(float) || k->nb[0] != ggml_type_size(k->type) || v->nb[0] != ggml_type_size(v->type))
    return "strides";
  if (!ggml_is_contiguous(node)) return "output not contiguous";
  const bool same = q->ne[0] == k->ne[0] && k->ne[1] == v->ne[1] && k->ne[2] == v->ne[2] && k->ne[3] == q->ne[3] &&
                    v->ne[3] == q->ne[3] && node->ne[0] == v->ne[0] && node->ne[1] == q->ne[2] &&
                    node->ne[2] == q->ne[1] && node->ne[3] == q->ne[3];
  if (!same) return "shapes";
  if (k->ne[1] > std::int64_t{1} << 30) return "more cells than rows can name";
  if (q->ne[2] % k->ne[2] != 0) return "heads";
  if (mask->ne[0] != k->ne[1] || mask->ne[1] < q->ne[1] || mask->ne[2] != 1 || q->ne[3] % mask->ne[3] != 0)
    return "shape of the mask";
  if (sinks != nullptr && (sinks->type != GGML_TYPE_F32 || sinks->ne[0] != q->ne[2] || !ggml_is_contiguous(sinks) ||
                           ggml_nrows(sinks) != 1))
    return "sinks";
  return {};
}

const Geometry* Attention::geometry_for(const ggml_tensor* node, bool widened) {
  const auto admitted = Geometry::admit(geometry_options(node, widened, aliased(node->src[1], node->src[2])));
  if (!admitted.ok()) return nullptr;
  const GeometryOptions& wanted = admitted->options();
  const auto found =
      std::find_if(geometries_.begin(), geometries_.end(), [&](const Geometry& g) { return g.options() == wanted; });
  if (found != geometries_.end()) return &*found;
  return &geometries_.emplace_back(*admitted);
}

Outcome Attention::read_rows(const ggml_tensor* node, std::int64_t first, std::int64_t count, Workers& workers) {
  const ggml_tensor* q = node->src[0];
  const ggml_tensor* mask = node->src[3];
  const std::int64_t cells = mask->ne[0];
  const std::int64_t said = most_visible(node);
  const std::int64_t room = said > 0 ? std::min(said, cells) : cells;
  cells_.resize(static_cast<std::size_t>(count * room));
  counts_.resize(static_cast<std::size_t>(count));
  std::atomic<bool> too_many{false};
  std::atomic<bool> biased{false};
  const auto mask_of = [&](std::int64_t query) {
    const std::int64_t stream = query / q->ne[1] % mask->ne[3];
    return reinterpret_cast<const std::uint16_t*>(bytes_of(mask) + query % q->ne[1] * stride(mask, 1) +
                                                  stream * stride(mask, 3));
  };
  const auto row = [&](std::int64_t i) {
    return std::span<std::int32_t>(cells_.data() + i * room, static_cast<std::size_t>(room));
  };
  for_units(workers.executor(), count, [&](std::int64_t i, int) {
    const MaskRow read = read_mask_row(mask_of(first + i), cells, row(i));
    if (read.count > room) too_many = true;
    if (read.biased) biased = true;
    counts_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(std::min(read.count, room));
  });
  if (too_many || (said == 0 && is_dense(count, cells))) return Outcome::kLeft;
  biases_.clear();
  if (biased) {
    biases_.resize(cells_.size());
    for_units(workers.executor(), count, [&](std::int64_t i, int) {
      const auto visible = row(i).first(static_cast<std::size_t>(counts_[static_cast<std::size_t>(i)]));
      read_mask_values(mask_of(first + i), visible, biases_.data() + i * room);
    });
  }
  return Outcome::kDone;
}

// Of rows that the graph said nothing of: ggml's own attention is faster where most cells are visible.
bool Attention::is_dense(std::int64_t count, std::int64_t cells) const {
  std::int64_t visible = 0;
  for (std::int64_t i = 0; i < count; ++i) visible += counts_[static_cast<std::size_t>(i)];
  return 2 * visible > count * cells;
}

Outcome Attention::compute(const ggml_tensor* node, Workers& workers, const AbortCallback& abort) {
  const ggml_tensor* mask = node->src[3];
  const std::int64_t queries = node->src[0]->ne[1] * node->src[0]->ne[3];
  const std::int64_t cells = mask->ne[0];
  const std::int64_t said = most_visible(node);
  const std::int64_t room = said > 0 ? std::min(said, cells) : cells;
  for (std::int64_t first = 0; first < queries; first += kSliceQueries) {
    const std::int64_t count = std::min(kSliceQueries, queries - first);
    if (abort.wants_to_stop()) return Outcome::kAborted;
    if (const Outcome o = read_rows(node, first, count, workers); o != Outcome::kDone) return o;
    const CellRows rows{cells_.data(), room, counts_.data(), biases_.empty() ? nullptr : biases_.data()};
    if (const Outcome o = attend(node, first, count, rows, workers); o != Outcome::kDone) return o;
  }
  return Outcome::kDone;
}

Outcome Attention::attend(const ggml_tensor* node, std::int64_t first, std::int64_t count, const CellRows& rows,
                          Workers& workers) {
  const std::int64_t tokens = node->src[0]->ne[1];
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t query = first + done;
    const Piece piece{query / tokens, query % tokens, std::min(count - done, tokens - query % tokens)};
    CellRows part = rows;
    part.cells += done * rows.stride;
    part.counts += done;
    if (part.biases != nullptr) part.biases += done * rows.stride;
    const bool in_place = read_in_place(node->src[1], node->src[2]);
    const Outcome o = in_place ? attend_piece(node, piece, part, workers) : attend_widened(node, piece, part, workers);
    if (o != Outcome::kDone) return o;
    done += piece.count;
  }
  std::uint64_t entries = 0;
  for (std::int64_t i = 0; i < count; ++i) entries += static_cast<std::uint64_t>(rows.counts[i]);
  counters().row_entries += entries;
  counters().masked_entries += static_cast<std::uint64_t>(count * node->src[1]->ne[1]);
  return Outcome::kDone;
}

Outcome Attention::attend_piece(const ggml_tensor* node, const Piece& piece, const CellRows& rows, Workers& workers) {
  const ggml_tensor* k = node->src[1];
  const ggml_tensor* v = node->src[2];
  const Geometry* geometry = geometry_for(node, false);
  if (geometry == nullptr) return Outcome::kLeft;
  BorrowedTensors tensors;
  tensors.keys = view3(k, geometry->kv_dtype(), 1, 2, 0, piece.stream);
  if (!geometry->values_alias_keys()) tensors.values = view3(v, geometry->kv_dtype(), 1, 2, 0, piece.stream);
  BorrowedLayer layer(*geometry);
  if (!layer.bind({0, k->ne[1]}, tensors).ok()) return Outcome::kLeft;
  ConstRows taken(rows.cells, rows.stride, rows.counts);
  taken.biases = rows.biases;
  return run(node, piece, taken, layer.view(), workers);
}

// Keys and values that the kernels cannot read are widened first, those of the rows alone, some queries at a time.
Outcome Attention::attend_widened(const ggml_tensor* node, const Piece& piece, const CellRows& rows, Workers& workers) {
  const ggml_tensor* k = node->src[1];
  const ggml_tensor* v = node->src[2];
  const Geometry* geometry = geometry_for(node, true);
  if (geometry == nullptr) return Outcome::kLeft;
  const bool alias = geometry->values_alias_keys();
  const Widener widen_key(k->type), widen_value(v->type);
  const std::int64_t heads = k->ne[2];
  const std::int64_t cell_floats = heads * (k->ne[0] + (alias ? 0 : v->ne[0]));
  const std::int64_t most_cells = std::max<std::int64_t>(kWidenedBytes / 4 / cell_floats, 1);
  place_.assign(static_cast<std::size_t>(k->ne[1]), -1);
  renumbered_.resize(static_cast<std::size_t>(piece.count * rows.stride));
  for (std::int64_t first = 0, count = 0; first < piece.count; first += count) {
    union_.clear();
    for (count = 0; first + count < piece.count; ++count) {
      const std::int32_t* row = rows.cells + (first + count) * rows.stride;
      const std::int32_t width = rows.counts[first + count];
      if (count > 0 && static_cast<std::int64_t>(union_.size()) + width > most_cells) break;
      for (std::int32_t i = 0; i < width; ++i) {
        std::int32_t& place = place_[static_cast<std::size_t>(row[i])];
        if (place < 0) union_.push_back(row[i]);
        place = 0;
      }
    }
    std::sort(union_.begin(), union_.end());
    const auto many = static_cast<std::int64_t>(union_.size());
    for (std::int64_t u = 0; u < many; ++u)
      place_[static_cast<std::size_t>(union_[static_cast<std::size_t>(u)])] = static_cast<std::int32_t>(u);
    for (std::int64_t q = first; q < first + count; ++q) {
      for (std::int32_t i = 0; i < rows.counts[q]; ++i) {
        renumbered_[static_cast<std::size_t>(q * rows.stride + i)] =
            place_[static_cast<std::size_t>(rows.cells[q * rows.stride + i])];
      }
    }
    if (static_cast<std::int64_t>(keys_.size()) < std::max<std::int64_t>(many, 1) * heads * k->ne[0])
      keys_.resize(static_cast<std::size_t>(std::max<std::int64_t>(many, 1) * heads * k->ne[0]));
    if (!alias && static_cast<std::int64_t>(values_.size()) < std::max<std::int64_t>(many, 1) * heads * v->ne[0])
      values_.resize(static_cast<std::size_t>(std::max<std::int64_t>(many, 1) * heads * v->ne[0]));
    for_units(workers.executor(), (many + kCellsPerUnit - 1) / kCellsPerUnit, [&](std::int64_t unit, int) {
      for (std::int64_t u = unit * kCellsPerUnit; u < std::min(many, (unit + 1) * kCellsPerUnit); ++u) {
        const std::int64_t cell = union_[static_cast<std::size_t>(u)];
        for (std::int64_t h = 0; h < heads; ++h) {
          const auto at = [&](const ggml_tensor* t) {
            return bytes_of(t) + piece.stream * stride(t, 3) + h * stride(t, 2) + cell * stride(t, 1);
          };
          widen_key(at(k), k->ne[0], keys_.data() + (u * heads + h) * k->ne[0]);
          if (!alias) widen_value(at(v), v->ne[0], values_.data() + (u * heads + h) * v->ne[0]);
        }
      }
    });
    for (const std::int32_t cell : union_) place_[static_cast<std::size_t>(cell)] = -1;
    // Rows of no entries still need a layer to stand on.
    const std::int64_t held = std::max<std::int64_t>(many, 1);
    BorrowedTensors tensors;
    tensors.keys = dense_view(static_cast<const void*>(keys_.data()), DType::kF32, {held, heads, k->ne[0]});
    if (!alias)
      tensors.values = dense_view(static_cast<const void*>(values_.data()), DType::kF32, {held, heads, v->ne[0]});
    BorrowedLayer layer(*geometry);
    if (!layer.bind({0, held}, tensors).ok()) return Outcome::kLeft;
    ConstRows taken(renumbered_.data() + first * rows.stride, rows.stride, rows.counts + first);
    if (rows.biases != nullptr) taken.biases = rows.biases + first * rows.stride;
    const Outcome o = run(node, {piece.stream, piece.first + first, count}, taken, layer.view(), workers);
    if (o != Outcome::kDone) return o;
  }
  return Outcome::kDone;
}

Outcome Attention::run(const ggml_tensor* node, const Piece& piece, const ConstRows& rows, const LayerView& layer,
                       Workers& workers) {
  const ggml_tensor* sinks = node->src[4];
  AttendAsk ask;
  ask.layer = &layer;
  ask.queries.queries = view3(node->src[0], DType::kF32, 1, 2, 0, piece.stream);
  ask.queries.queries.data += piece.first * ask.queries.queries.stride_bytes[0];
  ask.queries.queries.shape[0] = piece.count;
  positions_.assign(static_cast<std::size_t>(piece.count), layer.run.tokens - 1);
  ask.queries.positions = positions_;
  if (sinks != nullptr)
    ask.queries.sinks = {static_cast<const float*>(sinks->data), static_cast<std::size_t>(sinks->ne[0])};
  auto* out = static_cast<std::byte*>(node->data) + piece.stream * stride(node, 3) + piece.first * stride(node, 2);
  const Tensor output = dense_view(static_cast<void*>(out), DType::kF32, {piece.count, node->ne[1], node->ne[0]});
  const Status status = workers.engine().attend({&ask, 1}, rows, output, {});
  // An overflow is in the output, as NaN: what ggml's own arithmetic would leave there is not better.
  return status.ok() || status.code() == Code::kOverflow ? Outcome::kDone : Outcome::kLeft;
}

}  // namespace seriatim::plugin
