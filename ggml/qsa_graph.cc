#include "qsa_graph.hpp"

#include <cmath>
#include <cstring>
#include <string_view>

#include "attention.hpp"
#include "tensors.hpp"

namespace seriatim::plugin {
namespace {

// A walk up the graph that fails for good at the first node that is not the one expected.
class Walk {
 public:
  explicit Walk(std::vector<const ggml_tensor*>& inside) : inside_(inside) {}

  // The node itself, noted, if its op is that.
  const ggml_tensor* is(const ggml_tensor* node, ggml_op op) {
    if (node == nullptr || node->op != op) return fail();
    inside_.push_back(node);
    return node;
  }
  const ggml_tensor* source(const ggml_tensor* node, int index) {
    return node == nullptr || node->src[index] == nullptr ? fail() : node->src[index];
  }
  // Source 0 of a node of that op.
  const ggml_tensor* past(const ggml_tensor* node, ggml_op op) { return source(is(node, op), 0); }
  void demand(bool holds) {
    if (!holds) failed_ = true;
  }
  bool failed() const { return failed_; }

 private:
  const ggml_tensor* fail() {
    failed_ = true;
    return nullptr;
  }

  std::vector<const ggml_tensor*>& inside_;
  bool failed_ = false;
};

float float_parameter(const ggml_tensor* node, int index) {
  float value;
  std::memcpy(&value, node->op_params + index, sizeof value);
  return value;
}

bool has_extents(const ggml_tensor* t, std::array<std::int64_t, 4> extents) {
  return t->ne[0] == extents[0] && t->ne[1] == extents[1] && t->ne[2] == extents[2] && t->ne[3] == extents[3];
}

bool is_dense(const ggml_tensor* t, ggml_type type) { return t->type == type && ggml_is_contiguous(t); }

constexpr std::int64_t kMostParts = 64;  // of a sum of slices

// ((slice 0 + slice 1) + slice 2) + ...: slice i is a view of one tensor at i times the stride of an axis. Gives that
// tensor; `parts` how many there are. Slices are copied first where `copied` says so, and the first one always.
const ggml_tensor* sum_of_slices(Walk& walk, const ggml_tensor* sum, int axis, bool copied, std::int64_t& parts) {
  std::vector<const ggml_tensor*> slices;
  while (sum != nullptr && sum->op == GGML_OP_ADD && static_cast<std::int64_t>(slices.size()) < kMostParts) {
    walk.is(sum, GGML_OP_ADD);
    slices.push_back(copied ? walk.past(walk.source(sum, 1), GGML_OP_CONT) : walk.source(sum, 1));
    sum = sum->src[0];
  }
  slices.push_back(walk.past(sum, GGML_OP_CONT));
  if (walk.failed()) return nullptr;
  parts = static_cast<std::int64_t>(slices.size());
  const ggml_tensor* whole = walk.past(slices.back(), GGML_OP_VIEW);
  for (std::int64_t i = 0; i < parts && !walk.failed(); ++i) {
    const ggml_tensor* slice = slices[static_cast<std::size_t>(parts - 1 - i)];
    if (i > 0) walk.demand(walk.past(slice, GGML_OP_VIEW) == whole);
    const bool same_root = whole->view_src == nullptr ? slice->view_src == whole : slice->view_src == whole->view_src;
    walk.demand(same_root && slice->view_offs == whole->view_offs + static_cast<std::size_t>(i) * whole->nb[axis]);
    walk.demand(slice->ne[0] == whole->ne[0] && slice->nb[0] == whole->nb[0] && slice->ne[3] == 1);
    const int next = axis == 1 ? 2 : 1;  // the axes that are left
    walk.demand(slice->ne[1] == whole->ne[next] && slice->ne[2] == whole->ne[3] && slice->nb[1] == whole->nb[next] &&
                slice->nb[2] == whole->nb[3]);
  }
  return walk.failed() || whole->ne[axis] != parts ? nullptr : whole;
}

bool is_plain_imrope(const ggml_tensor* rope) {
  const std::int32_t* p = rope->op_params;
  const bool plain = float_parameter(rope, 6) == 1.0f && float_parameter(rope, 7) == 0.0f &&
                     float_parameter(rope, 8) == 1.0f && p[15] == 0 && rope->src[2] == nullptr;
  return plain && p[2] == GGML_ROPE_TYPE_IMROPE && p[14] == 0 && p[1] > 0 && p[1] % 2 == 0;
}

}  // namespace

std::optional<PoolChain> pool_chain(const ggml_tensor* rope) {
  if (rope->op != GGML_OP_ROPE || rope->type != GGML_TYPE_F32 || !is_plain_imrope(rope)) return std::nullopt;
  PoolChain chain;
  Walk walk(chain.inside);
  chain.pooled = rope;
  chain.positions = walk.source(rope, 1);
  const ggml_tensor* scaled = walk.past(walk.source(rope, 0), GGML_OP_RESHAPE);
  chain.weight = walk.source(scaled, 1);
  const ggml_tensor* normed = walk.is(walk.past(scaled, GGML_OP_MUL), GGML_OP_RMS_NORM);
  const ggml_tensor* mean = walk.past(walk.source(normed, 0), GGML_OP_RESHAPE);
  const ggml_tensor* sum = walk.past(mean, GGML_OP_SCALE);
  if (walk.failed()) return std::nullopt;
  chain.eps = float_parameter(normed, 0);
  const ggml_tensor* members = sum_of_slices(walk, sum, 1, true, chain.group_tokens);
  const ggml_tensor* gathered = walk.is(walk.past(members, GGML_OP_RESHAPE), GGML_OP_GET_ROWS);
  chain.keys = walk.source(gathered, 0);
  chain.cells = walk.source(gathered, 1);
  if (walk.failed()) return std::nullopt;
  const std::int64_t dim = members->ne[0], groups = members->ne[2], streams = members->ne[3];
  chain.groups = groups;
  // A group of one could not be told from the cell that stands in for a group that is not there.
  walk.demand(chain.group_tokens >= 2 && float_parameter(mean, 0) == 1.0f / static_cast<float>(chain.group_tokens) &&
              float_parameter(mean, 1) == 0.0f);
  walk.demand(chain.keys->ne[0] == dim && chain.keys->ne[2] == streams && chain.keys->ne[3] == 1 &&
              chain.keys->nb[0] == ggml_type_size(chain.keys->type) && can_be_widened(chain.keys->type));
  walk.demand(is_dense(chain.cells, GGML_TYPE_I32) &&
              has_extents(chain.cells, {chain.group_tokens * groups, streams, 1, 1}));
  walk.demand(is_dense(chain.weight, GGML_TYPE_F32) && has_extents(chain.weight, {dim, 1, 1, 1}));
  walk.demand(is_dense(chain.positions, GGML_TYPE_I32) && ggml_nelements(chain.positions) == 4 * groups * streams);
  walk.demand(is_dense(rope, GGML_TYPE_F32) && has_extents(rope, {dim, 1, groups * streams, 1}) &&
              rope->op_params[1] <= dim);
  return walk.failed() ? std::nullopt : std::optional(std::move(chain));
}

std::optional<SelectChain> select_chain(const ggml_tensor* top_k) {
  if (top_k->op != GGML_OP_TOP_K) return std::nullopt;
  SelectChain chain;
  Walk walk(chain.inside);
  chain.top_k = top_k;
  const ggml_tensor* masked = walk.is(walk.source(top_k, 0), GGML_OP_ADD);
  const ggml_tensor* wide_mask = walk.past(walk.source(masked, 1), GGML_OP_RESHAPE);
  chain.mask = walk.past(wide_mask, GGML_OP_CPY);
  const ggml_tensor* turned_back = walk.past(walk.source(masked, 0), GGML_OP_CONT);
  const ggml_tensor* expanded = walk.is(walk.past(turned_back, GGML_OP_PERMUTE), GGML_OP_GET_ROWS);
  chain.cell_group = walk.source(expanded, 1);
  const ggml_tensor* turned = walk.past(walk.source(expanded, 0), GGML_OP_CONT);
  const ggml_tensor* biased = walk.is(walk.past(turned, GGML_OP_PERMUTE), GGML_OP_ADD);
  chain.bias = walk.source(biased, 1);
  const ggml_tensor* sum = walk.source(biased, 0);
  if (walk.failed()) return std::nullopt;
  const ggml_tensor* rectified = sum_of_slices(walk, sum, 1, false, chain.heads);
  if (walk.failed() || rectified == nullptr || rectified->op != GGML_OP_UNARY ||
      ggml_get_unary_op(rectified) != GGML_UNARY_OP_RELU) {
    return std::nullopt;
  }
  const ggml_tensor* products =
      walk.is(walk.past(walk.past(rectified, GGML_OP_UNARY), GGML_OP_RESHAPE), GGML_OP_MUL_MAT);
  const ggml_tensor* pooled = walk.past(walk.source(products, 0), GGML_OP_RESHAPE);
  chain.queries = walk.source(products, 1);
  if (walk.failed()) return std::nullopt;
  auto pool = pool_chain(pooled);
  if (!pool.has_value()) return std::nullopt;
  chain.pool = std::move(*pool);
  const std::int64_t groups = chain.pool.groups, cells = chain.cell_group->ne[0], streams = chain.cell_group->ne[1];
  const std::int64_t tokens = chain.bias->ne[1], dim = pooled->ne[0];
  walk.demand(is_dense(chain.cell_group, GGML_TYPE_I32) && has_extents(chain.cell_group, {cells, streams, 1, 1}));
  walk.demand(is_dense(chain.bias, GGML_TYPE_F32) && has_extents(chain.bias, {groups, tokens, streams, 1}));
  walk.demand(is_dense(chain.mask, GGML_TYPE_F16) && has_extents(chain.mask, {cells, tokens, 1, streams}));
  walk.demand(is_dense(chain.queries, GGML_TYPE_F32) &&
              has_extents(chain.queries, {dim, chain.heads * tokens, streams, 1}));
  walk.demand(has_extents(products->src[0], {dim, groups, streams, 1}) &&
              has_extents(rectified, {groups, chain.heads, tokens, streams}));
  walk.demand(has_extents(masked, {cells, tokens, streams, 1}) && has_extents(expanded, {tokens, cells, streams, 1}) &&
              has_extents(expanded->src[0], {tokens, groups, streams, 1}));
  walk.demand(has_extents(top_k, {top_k->ne[0], tokens, streams, 1}) && top_k->ne[0] < cells &&
              chain.pool.keys->ne[1] == cells);
  return walk.failed() ? std::nullopt : std::optional(std::move(chain));
}

std::optional<AttendChain> attend_chain(const ggml_tensor* attention) {
  if (!unfit_attention(attention).empty()) return std::nullopt;
  AttendChain chain;
  Walk walk(chain.inside);
  chain.attention = attention;
  const ggml_tensor* masked = walk.is(walk.source(attention, 3), GGML_OP_ADD);
  const ggml_tensor* mask = walk.source(masked, 1);
  const ggml_tensor* scattered = walk.is(walk.past(walk.source(masked, 0), GGML_OP_VIEW), GGML_OP_SET_ROWS);
  const ggml_tensor* zeros = walk.source(scattered, 0);
  const ggml_tensor* hidden = walk.is(walk.past(walk.source(scattered, 2), GGML_OP_VIEW), GGML_OP_FILL);
  const ggml_tensor* row = walk.past(walk.source(scattered, 1), GGML_OP_VIEW);
  const ggml_tensor* top_k = walk.is(walk.past(walk.past(row, GGML_OP_RESHAPE), GGML_OP_CONT), GGML_OP_TOP_K);
  if (walk.failed()) return std::nullopt;
  chain.zeros = zeros;
  walk.demand(zeros->op == GGML_OP_FILL && float_parameter(zeros, 0) == 0.0f);
  walk.demand(hidden->src[0] == mask && float_parameter(hidden, 0) == -INFINITY);
  auto select = select_chain(top_k);
  if (walk.failed() || !select.has_value()) return std::nullopt;
  chain.select = std::move(*select);
  const ggml_tensor* q = attention->src[0];
  const SelectChain& s = chain.select;
  walk.demand(s.mask == mask && q->ne[1] == s.tokens() && q->ne[3] == s.streams() &&
              attention->src[1]->ne[1] == s.cells());
  if (walk.failed()) return std::nullopt;
  chain.inside.insert(chain.inside.end(), s.inside.begin(), s.inside.end());
  return chain;
}

bool is_of_chain(const ggml_tensor* node) {
  constexpr int kLongest = 64;
  constexpr std::string_view kCache = "cache_idx_k_l";
  // The mask's copy and the row of -inf start from an input alone.
  if (node->op == GGML_OP_SET_ROWS) node = node->src[1];
  for (int step = 0; step < kLongest && node != nullptr; ++step) {
    if (node->op == GGML_OP_NONE || node->op == GGML_OP_VIEW) {
      const ggml_tensor* root = node->view_src == nullptr ? node : node->view_src;
      if (std::string_view(root->name).starts_with(kCache)) return true;
      if (node->op == GGML_OP_NONE) return false;
    }
    node = node->op == GGML_OP_SET_ROWS ? node->src[1] : node->src[0];
  }
  return false;
}

}  // namespace seriatim::plugin
