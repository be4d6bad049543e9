#include "claims.hpp"

#include <string_view>

#include "attention.hpp"
#include "indexer.hpp"
#include "options.hpp"
#include "qsa_graph.hpp"
#include "tensors.hpp"
#include "top_k.hpp"

namespace seriatim::plugin {
namespace {

constexpr int kLongestWalk = 8;

// A mask that the graph makes itself in f32, as families do that say nothing of what their selection leaves.
bool is_made_mask(const ggml_tensor* mask) {
  if (mask->op != GGML_OP_CPY || mask->src[0]->type != GGML_TYPE_F32) return false;
  const ggml_tensor* from = mask->src[0];
  while (is_view(from) && from->src[0] != nullptr) from = from->src[0];
  return from->op != GGML_OP_NONE;
}

// Whether few cells may be visible, so that rows are worth reading off the mask: the graph says so, or made the mask.
bool is_sparse(const ggml_tensor* node) {
  const std::int64_t most = most_visible(node);
  return most > 0 ? node->src[1]->ne[1] > most : is_made_mask(node->src[3]);
}

// The masks that qwen4exp's chains have copied to f32. That copy comes before the row of -inf in every graph, and no
// other family makes one.
class ChainMasks {
 public:
  void note(const ggml_tensor* mask) {
    const std::lock_guard lock(mutex_);
    if (masks_.size() > kMost) masks_.clear();
    masks_.insert(mask);
  }
  bool has(const ggml_tensor* mask) {
    const std::lock_guard lock(mutex_);
    return masks_.contains(mask);
  }

 private:
  static constexpr std::size_t kMost = 256;  // of graphs that are gone
  std::mutex mutex_;
  std::set<const ggml_tensor*> masks_;
};

ChainMasks& chain_masks() {
  static ChainMasks& masks = *new ChainMasks;  // never destroyed, as flash_gate()
  return masks;
}

bool is_chain_op(const ggml_tensor* node) {
  const ggml_tensor* from = node->src[0];
  const bool of_mask = from != nullptr && from->op == GGML_OP_NONE && from->type == GGML_TYPE_F16 &&
                       (from->flags & GGML_TENSOR_FLAG_INPUT) != 0;
  switch (node->op) {
    case GGML_OP_CPY:
      if (!of_mask || node->type != GGML_TYPE_F32) return false;
      chain_masks().note(from);
      return true;
    case GGML_OP_FILL:
      return of_mask && chain_masks().has(from);
    case GGML_OP_UNARY:
      return ggml_get_unary_op(node) == GGML_UNARY_OP_RELU && is_of_chain(node);
    case GGML_OP_GET_ROWS:
    case GGML_OP_CONT:
    case GGML_OP_ADD:
    case GGML_OP_SCALE:
    case GGML_OP_RMS_NORM:
    case GGML_OP_MUL:
    case GGML_OP_ROPE:
    case GGML_OP_MUL_MAT:
    case GGML_OP_SET_ROWS:
      return is_of_chain(node);
    default:
      return false;
  }
}

}  // namespace

const ggml_tensor* cache_behind(const ggml_tensor* keys) {
  for (int step = 0; step < kLongestWalk; ++step) {
    if (keys->view_src != nullptr && keys->op != GGML_OP_CPY) {
      keys = keys->view_src;
    } else if (keys->op != GGML_OP_NONE && keys->src[0] != nullptr) {
      keys = keys->src[0];
    } else {
      break;
    }
  }
  return keys;
}

bool FlashGate::opens_for(const ggml_tensor* node, bool wanted) {
  const ggml_tensor* cache = cache_behind(node->src[1]);
  // Without memory: a cache whose context only counts its bytes, before the real one is made; or a graph that has none,
  // as tests build it.
  if (cache->data == nullptr) return std::string_view(cache->name).substr(0, 6) != "cache_";
  const std::lock_guard lock(mutex_);
  const auto [found, first] = caches_.try_emplace(cache, Seen{.tokens = node->src[0]->ne[1]});
  Seen& seen = found->second;
  if (!first && seen.tokens != node->src[0]->ne[1]) seen.open = true;
  seen.claimed = seen.claimed || (seen.open && wanted);
  return seen.open;
}

void FlashGate::forget(const std::set<const ggml_tensor*>& caches) {
  const std::lock_guard lock(mutex_);
  std::erase_if(caches_, [&](const auto& one) { return !one.second.claimed || caches.contains(one.first); });
}

FlashGate& flash_gate() {
  static FlashGate& gate = *new FlashGate;  // never destroyed: a context may end after what is static here
  return gate;
}

bool claims(const ggml_tensor* node) {
  const Options& chosen = options();
  switch (node->op) {
    case GGML_OP_TOP_K:
      // Where all cells are chosen there is nothing to do better.
      return chosen.top_k && fits_top_k(node) && node->ne[0] < node->src[0]->ne[0];
    case GGML_OP_FLASH_ATTN_EXT: {
      // The gate is asked about dense nodes too: it learns from them what has been probed.
      if (!chosen.attention || !unfit_attention(node).empty()) return false;
      const bool sparse = is_sparse(node);
      return flash_gate().opens_for(node, sparse) && sparse;
    }
    case GGML_OP_LIGHTNING_INDEXER:
      return chosen.indexer && fits_indexer(node);
    default:
      return chosen.chains && is_chain_op(node);
  }
}

}  // namespace seriatim::plugin
