#include "claims.hpp"

#include "attention.hpp"
#include "indexer.hpp"
#include "options.hpp"
#include "top_k.hpp"

namespace seriatim::plugin {
namespace {

constexpr int kLongestWalk = 8;

// Whether the graph says that few cells are visible, so that a row is worth reading off the mask.
bool is_sparse(const ggml_tensor* node) {
  const std::int64_t most = most_visible(node);
  return most > 0 && node->src[1]->ne[1] > most;
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

bool FlashGate::opens_for(const ggml_tensor* node) {
  const ggml_tensor* cache = cache_behind(node->src[1]);
  if (cache->data == nullptr) return true;  // a graph without a cache, as tests build it
  const std::lock_guard lock(mutex_);
  const auto [found, first] = caches_.try_emplace(cache, Seen{node->src[0]->ne[1], false});
  Seen& seen = found->second;
  if (!first && seen.tokens != node->src[0]->ne[1]) seen.open = true;
  return seen.open;
}

void FlashGate::forget(const std::set<const ggml_tensor*>& caches) {
  const std::lock_guard lock(mutex_);
  std::erase_if(caches_, [&](const auto& one) { return !one.second.open || caches.contains(one.first); });
}

FlashGate& flash_gate() {
  static FlashGate gate;
  return gate;
}

bool claims(const ggml_tensor* node) {
  const Options& chosen = options();
  switch (node->op) {
    case GGML_OP_TOP_K:
      // Where all cells are chosen there is nothing to do better.
      return chosen.top_k && fits_top_k(node) && node->ne[0] < node->src[0]->ne[0];
    case GGML_OP_FLASH_ATTN_EXT:
      return chosen.attention && unfit_attention(node).empty() && is_sparse(node) && flash_gate().opens_for(node);
    case GGML_OP_LIGHTNING_INDEXER:
      return chosen.indexer && fits_indexer(node);
    default:
      return false;
  }
}

}  // namespace seriatim::plugin
