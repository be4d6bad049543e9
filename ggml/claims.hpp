// Which nodes the backend claims.
#pragma once

#include <ggml.h>

#include <map>
#include <mutex>
#include <set>

namespace seriatim::plugin {

// When to claim attention. llama.cpp's flash attention "auto" first builds a graph with one token per sequence and
// gives flash attention up for the whole context if any device but the layer's own would take it; then it builds graphs
// with other numbers of tokens. So the first number of tokens that is asked about a cache is declined, until another
// one has been asked about. A context whose batches hold one token per sequence never asks about another: it needs
// flash attention "on".
class FlashGate {
 public:
  // Takes   a FLASH_ATTN_EXT node; whether it is claimed if the gate is open. Threads  any number at once.
  bool opens_for(const ggml_tensor* node, bool wanted = true);
  // A context ends: its caches' addresses may be another's later. `caches` are those whose attention was laid out for
  // it; what was never claimed is forgotten too.
  void forget(const std::set<const ggml_tensor*>& caches);

 private:
  struct Seen {
    long long tokens = 0;
    bool open = false;
    bool claimed = false;
  };
  std::mutex mutex_;
  std::map<const ggml_tensor*, Seen> caches_;
};

FlashGate& flash_gate();

// The tensor of the cache that the keys come from, or where a walk upwards ends.
const ggml_tensor* cache_behind(const ggml_tensor* keys);

// Whether the device takes the node; nothing but shapes, types and names of the graph is read.
bool claims(const ggml_tensor* node);

}  // namespace seriatim::plugin
