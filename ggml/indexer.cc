#include "indexer.hpp"

#include "panel.hpp"
#include "seriatim/geometry.hpp"
#include "tensors.hpp"

namespace seriatim::plugin {
namespace {

Result<Geometry> geometry_of(const ggml_tensor* node) {
  GeometryOptions options;
  options.pooling = Pooling::kNone;
  options.scale_at = ScaleAt::kNowhere;
  options.group_tokens = 1;
  options.budget_tokens = 1;
  options.query_heads = options.kv_heads = 1;
  options.head_dim = 1;
  options.index_heads = node->src[0]->ne[1];
  options.index_dim = node->src[0]->ne[0];
  options.index_rotary_dim = 0;
  return Geometry::admit(options);
}

// Adds the mask and writes the node's rows of one stream.
class MaskedScores final : public Scorer::Sink {
 public:
  MaskedScores(const ggml_tensor* node, std::int64_t stream) : node_(node), mask_(node->src[3]), stream_(stream) {}

  void take(std::int64_t query, std::int64_t first, std::int64_t count, const float* scores, float* spare) override {
    const std::byte* mask = bytes_of(mask_) + query * stride(mask_, 1) + stream_ % mask_->ne[3] * stride(mask_, 3);
    auto* out = reinterpret_cast<float*>(static_cast<std::byte*>(node_->data) + query * stride(node_, 1) +
                                         stream_ * stride(node_, 3));
    kernels_.widen(mask + first * dtype_bytes(DType::kF16), DType::kF16, count, spare);
    for (std::int64_t i = 0; i < count; ++i) out[first + i] = scores[i] + spare[i];
  }

 private:
  const ggml_tensor* node_;
  const ggml_tensor* mask_;
  const std::int64_t stream_;
  const PanelKernels& kernels_ = panel_kernels(default_kernels());
};

}  // namespace

bool fits_indexer(const ggml_tensor* node) {
  if (node->op != GGML_OP_LIGHTNING_INDEXER) return false;
  const ggml_tensor* q = node->src[0];
  const ggml_tensor* k = node->src[1];
  const ggml_tensor* w = node->src[2];
  const ggml_tensor* mask = node->src[3];
  if (q == nullptr || k == nullptr || w == nullptr || mask == nullptr) return false;
  if (is_empty_somewhere(node)) return false;
  const bool types = q->type == GGML_TYPE_F32 && w->type == GGML_TYPE_F32 && mask->type == GGML_TYPE_F16 &&
                     node->type == GGML_TYPE_F32 && can_be_widened(k->type);
  const bool dense = q->nb[0] == sizeof(float) && w->nb[0] == sizeof(float) && mask->nb[0] == sizeof(std::uint16_t) &&
                     k->nb[0] == ggml_type_size(k->type) && node->nb[0] == sizeof(float);
  const bool shapes = q->ne[0] == k->ne[0] && k->ne[1] == 1 && w->ne[0] == q->ne[1] && w->ne[1] == q->ne[2] &&
                      w->ne[2] == 1 && mask->ne[0] == k->ne[2] && mask->ne[1] == q->ne[2] && mask->ne[2] == 1 &&
                      q->ne[3] == k->ne[3] && w->ne[3] == q->ne[3] && q->ne[3] % mask->ne[3] == 0 &&
                      node->ne[0] == k->ne[2] && node->ne[1] == q->ne[2] && node->ne[2] == 1 && node->ne[3] == q->ne[3];
  return types && dense && shapes && geometry_of(node).ok();
}

Outcome Indexer::compute(const ggml_tensor* node, Workers& workers, const AbortCallback& abort) {
  const Geometry geometry = *geometry_of(node);
  const ggml_tensor* k = node->src[1];
  for (std::int64_t stream = 0; stream < node->ne[3]; ++stream) {
    if (abort.wants_to_stop()) return Outcome::kAborted;
    ConstTensor weights = view3(node->src[2], DType::kF32, 1, 0, 2, stream);
    weights.rank = 2;
    MaskedScores sink(node, stream);
    scorer_.run(geometry, view3(node->src[0], DType::kF32, 2, 1, 0, stream), weights,
                {k->type, bytes_of(k) + stream * stride(k, 3), stride(k, 2), k->ne[2]}, workers, sink);
  }
  return Outcome::kDone;
}

}  // namespace seriatim::plugin
