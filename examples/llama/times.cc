#include "times.hpp"

#include <cstring>

namespace seriatim_llama {
namespace {

bool computes(const ggml_tensor* tensor) {
  switch (tensor->op) {
    case GGML_OP_NONE:
    case GGML_OP_VIEW:
    case GGML_OP_RESHAPE:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
    case GGML_OP_SET_ROWS:
      return false;
    default:
      return true;
  }
}

bool reads_key_cache(const ggml_tensor* tensor) {
  for (int i = 0; i < GGML_MAX_SRC; ++i) {
    const ggml_tensor* source = tensor->src[i];
    while (source != nullptr && source->view_src != nullptr) source = source->view_src;
    if (source == nullptr) continue;
    if (std::strncmp(source->name, "cache_k", 7) == 0 || std::strncmp(source->name, "cache_idx", 9) == 0) return true;
  }
  return false;
}

}  // namespace

bool LayerTimes::callback(ggml_tensor* tensor, bool ask, void* times) {
  auto& self = *static_cast<LayerTimes*>(times);
  if (self.state_ == State::kOff) return !ask;
  if (!ask) {
    if (self.state_ == State::kTiming) self.stamps_.push_back(Clock::now());
    return true;
  }
  if (self.state_ == State::kLearning) {
    const bool attends = tensor->op == GGML_OP_FLASH_ATTN_EXT;
    self.nodes_.push_back({computes(tensor) && reads_key_cache(tensor),
                           tensor->op == GGML_OP_TOP_K || (attends && tensor->op_params[4] > 0), attends});
    return false;
  }
  const std::size_t node = self.asked_++ % self.stops_.size();
  return self.stops_[node] != 0;
}

void LayerTimes::learn() {
  nodes_.clear();
  state_ = State::kLearning;
}

void LayerTimes::start() {
  spans_.clear();
  stops_.assign(nodes_.size(), 0);
  bool open = false;
  bool selects = false;
  std::size_t first = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].opens && !open) {
      open = true;
      selects = false;
      first = i;
    }
    selects = selects || nodes_[i].selects;
    if (!open || !nodes_[i].closes) continue;
    open = false;
    if (!selects || first == 0) continue;
    spans_.push_back({first - 1, i});
    stops_[first - 1] = stops_[i] = 1;
  }
  stamps_.clear();
  asked_ = 0;
  state_ = State::kTiming;
}

std::vector<double> LayerTimes::seconds() const {
  std::vector<double> all;
  const std::size_t call = 2 * spans_.size();
  if (call == 0) return all;
  for (std::size_t begin = 0; begin + call <= stamps_.size(); begin += call) {
    double sum = 0;
    for (std::size_t i = begin; i < begin + call; i += 2) {
      sum += std::chrono::duration<double>(stamps_[i + 1] - stamps_[i]).count();
    }
    all.push_back(sum);
  }
  return all;
}

}  // namespace seriatim_llama
