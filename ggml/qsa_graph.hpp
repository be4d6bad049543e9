// The chains of llama.cpp's `qwen4exp` graph, recognised by walking up its sources. A graph that differs anywhere is
// not recognised, and its nodes are computed one by one.
#pragma once

#include <ggml.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace seriatim::plugin {

// Raw index keys of the cache -> pooled keys: gathered, averaged, normed, rotated.
struct PoolChain {
  const ggml_tensor* keys = nullptr;       // the cache, [dim, cells, streams]
  const ggml_tensor* cells = nullptr;      // i32 [group_tokens * groups, streams]: the cells of each group
  const ggml_tensor* weight = nullptr;     // f32 [dim]: 1 + w
  const ggml_tensor* positions = nullptr;  // i32 [4][streams][groups]
  const ggml_tensor* pooled = nullptr;     // the last node, f32 [dim, 1, groups * streams]
  std::int64_t group_tokens = 0;
  std::int64_t groups = 0;
  float eps = 0.0f;
  std::vector<const ggml_tensor*> inside;  // the other nodes, of which nobody else should know
};
std::optional<PoolChain> pool_chain(const ggml_tensor* rope);

// Pooled keys and index queries -> the selection.
struct SelectChain {
  PoolChain pool;
  const ggml_tensor* queries = nullptr;  // f32 [dim, heads * tokens, streams]
  const ggml_tensor* bias = nullptr;     // f32 [groups, tokens, streams]: 0, 1e9 for what is always attended, or -inf
  const ggml_tensor* cell_group = nullptr;  // i32 [cells, streams]
  const ggml_tensor* mask = nullptr;        // f16 [cells, tokens, 1, streams]
  const ggml_tensor* top_k = nullptr;       // the last node, i32 [width, tokens, streams]
  std::int64_t heads = 0;
  std::vector<const ggml_tensor*> inside;

  std::int64_t cells() const { return cell_group->ne[0]; }
  std::int64_t tokens() const { return bias->ne[1]; }
  std::int64_t streams() const { return cell_group->ne[1]; }
};
std::optional<SelectChain> select_chain(const ggml_tensor* top_k);

// The same to the end: the mask that the selection leaves, and attention under it.
struct AttendChain {
  SelectChain select;
  const ggml_tensor* attention = nullptr;  // the last node
  const ggml_tensor* zeros = nullptr;      // what the selection scatters into the mask, made before the run
  std::vector<const ggml_tensor*> inside;  // those of the selection and its last node too
};
std::optional<AttendChain> attend_chain(const ggml_tensor* attention);

// For claims, which see one node at a time: whether it computes something of such a chain, up to what a name and a few
// steps upwards can tell.
bool is_of_chain(const ggml_tensor* node);

}  // namespace seriatim::plugin
