
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <vector>

#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "base/half.hpp"
#include "oracle/admit_oracle.hpp"
#include "seriatim/oracle.hpp"

namespace seriatim {
namespace {

double wide(const std::byte* address, DType dtype) { return static_cast<double>(load_element(address, dtype)); }

double head_term(const Geometry& geometry, double dot, double scale) {
  if (geometry.scale_at() == ScaleAt::kBeforeRelu) dot *= scale;
  if (geometry.relu()) dot = std::max(dot, 0.0);
  if (geometry.scale_at() == ScaleAt::kAfterRelu) dot *= scale;
  return dot;
}

// One head of attention in f64.
class HeadTwin {
 public:
  HeadTwin(const Geometry& geometry, const DenseTokens& tokens, std::span<const std::int64_t> row)
      : geometry_(geometry),
        keys_(tokens.keys),
        values_(geometry.values_alias_keys() ? tokens.keys : tokens.values),
        row_(row),
        weights_(row.size()) {}

  void weigh(const ConstTensor& query, std::int64_t head, const float* sink) {
    kv_head_ = head / geometry_.heads_per_kv();
    top_ = sink == nullptr ? -std::numeric_limits<double>::infinity() : static_cast<double>(*sink);
    for (std::size_t j = 0; j < row_.size(); ++j) {
      double dot = 0.0;
      for (std::int64_t i = 0; i < geometry_.head_dim(); ++i) {
        dot += wide(query.at(head, i), query.dtype) * wide(keys_.at(row_[j], kv_head_, i), keys_.dtype);
      }
      weights_[j] = dot * static_cast<double>(geometry_.softmax_scale());
      top_ = std::max(top_, weights_[j]);
    }
    sum_ = sink == nullptr ? 0.0 : std::exp(static_cast<double>(*sink) - top_);
    for (double& weight : weights_) sum_ += weight = std::exp(weight - top_);
  }

  double output(std::int64_t dim) const {
    double sum = 0.0;
    for (std::size_t j = 0; j < row_.size(); ++j)
      sum += weights_[j] * wide(values_.at(row_[j], kv_head_, dim), values_.dtype);
    return row_.empty() ? 0.0 : sum / sum_;
  }
  double lse() const { return top_ + std::log(sum_); }

 private:
  const Geometry& geometry_;
  const ConstTensor keys_;
  const ConstTensor values_;
  const std::span<const std::int64_t> row_;
  std::vector<double> weights_;
  std::int64_t kv_head_ = 0;
  double top_ = 0.0;
  double sum_ = 0.0;
};

Status check_entries(const Geometry& geometry, const DenseTokens& tokens, std::span<const std::int64_t> row) {
  const std::int64_t held =
      geometry.values_alias_keys() ? tokens.keys.shape[0] : std::min(tokens.keys.shape[0], tokens.values.shape[0]);
  for (std::size_t j = 0; j < row.size(); ++j) {
    if (row[j] >= 0 && row[j] < held) continue;
    return Status::error(Code::kInvalidArgument, "row",
                         formatted("row: entry {} is {}, not one of {} tokens", j, row[j], held),
                         {-1, static_cast<std::int64_t>(j)});
  }
  return {};
}

}  // namespace

Status score_f64(const Geometry& geometry, ConstTensor query, ConstTensor head_weights, ConstTensor pooled,
                 std::span<double> scores) {
  DefaultFloatEnvironment environment;
  const std::int64_t heads = geometry.heads_per_selection();
  const std::int64_t dim = geometry.index_dim();
  if (Status s = admit_view("query", query, geometry.index_dtype(), {heads, dim}); !s.ok()) return s;
  if (!left_out(head_weights)) {
    if (Status s = admit_view("head_weights", head_weights, DType::kF32, {heads}); !s.ok()) return s;
  }
  if (Status s = admit_view("pooled", pooled, geometry.index_dtype(), {-1, dim}); !s.ok()) return s;
  if (Status s = admit_oracle_size("scores", scores.size(), pooled.shape[0], false); !s.ok()) return s;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  for (std::int64_t g = 0; g < pooled.shape[0]; ++g) {
    double score = 0.0;
    for (std::int64_t h = 0; h < heads; ++h) {
      double dot = 0.0;
      for (std::int64_t i = 0; i < dim; ++i)
        dot += wide(query.at(h, i), query.dtype) * wide(pooled.at(g, i), pooled.dtype);
      score += (head_weights.empty() ? 1.0 : wide(head_weights.at(h), DType::kF32)) * head_term(geometry, dot, scale);
    }
    scores[static_cast<std::size_t>(g)] = geometry.scale_at() == ScaleAt::kAfterSum ? score * scale : score;
  }
  return {};
}

Status attend_f64(const Geometry& geometry, ConstTensor query, const DenseTokens& tokens,
                  std::span<const std::int64_t> row, std::span<const float> sinks, std::span<double> output,
                  std::span<double> lse) {
  DefaultFloatEnvironment environment;
  if (Status s = admit_oracle_tokens(geometry, query, tokens, 0, sinks); !s.ok()) return s;
  if (Status s = check_entries(geometry, tokens, row); !s.ok()) return s;
  if (Status s = admit_oracle_size("output", output.size(), geometry.query_heads() * geometry.value_dim(), false);
      !s.ok())
    return s;
  if (Status s = admit_oracle_size("lse", lse.size(), geometry.query_heads(), false); !s.ok()) return s;
  try {
    HeadTwin twin(geometry, tokens, row);
    for (std::int64_t head = 0; head < geometry.query_heads(); ++head) {
      twin.weigh(query, head, sinks.empty() ? nullptr : &sinks[static_cast<std::size_t>(head)]);
      for (std::int64_t i = 0; i < geometry.value_dim(); ++i) {
        output[static_cast<std::size_t>(head * geometry.value_dim() + i)] = twin.output(i);
      }
      lse[static_cast<std::size_t>(head)] = twin.lse();
    }
    return {};
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "row", "row: the system refused memory");
  }
}

}  // namespace seriatim
