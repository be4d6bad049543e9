
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <new>
#include <string_view>
#include <vector>

#include "base/exp.hpp"
#include "base/float_environment.hpp"
#include "base/fma.hpp"
#include "base/format.hpp"
#include "base/half.hpp"
#include "base/log.hpp"
#include "oracle/admit_oracle.hpp"
#include "seriatim/oracle.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kSplit = 128;

// Formats on the stack: a refused request must not allocate anything but its Status.
Status refuse_visible(std::int64_t visible, std::int64_t ceiling) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "visible: %lld tokens are not in 0..%lld, the dense oracle's range",
                static_cast<long long>(visible), static_cast<long long>(ceiling));
  return Status::error(Code::kInvalidArgument, "visible", text.data());
}

Status check_ceiling(const Geometry& geometry, std::int64_t visible) {
  const std::int64_t ceiling = geometry.row_capacity();
  if (visible < 0 || visible > ceiling) return refuse_visible(visible, ceiling);
  return {};
}

// One head, lane by lane: everything about the softmax is known before the first value is read, then each output dim
// runs down the tokens on its own.
class DenseHead {
 public:
  DenseHead(const Geometry& geometry, std::int64_t visible)
      : geometry_(geometry),
        weights_(static_cast<std::size_t>(visible)),
        keep_(static_cast<std::size_t>((visible + kSplit - 1) / kSplit)),
        join_(keep_.size()),
        lanes_(static_cast<std::size_t>(geometry.value_dim())) {}

  void attend(const ConstTensor& query, const DenseTokens& tokens, std::int64_t head, const float* sink) {
    kv_head_ = head / (geometry_.query_heads() / geometry_.kv_heads());
    values_ = geometry_.values_alias_keys() ? tokens.keys : tokens.values;
    finite_ = true;
    for (std::size_t t = 0; t < weights_.size(); ++t) {
      float dot = 0.0f;
      for (std::int64_t i = 0; i < geometry_.head_dim(); ++i) {
        dot = fma32(load_element(query.at(head, i), query.dtype),
                    load_element(tokens.keys.at(static_cast<std::int64_t>(t), kv_head_, i), tokens.keys.dtype), dot);
      }
      weights_[t] = dot * geometry_.softmax_scale();
      finite_ = finite_ && std::isfinite(weights_[t]);
    }
    weigh(sink);
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i] = lane(static_cast<std::int64_t>(i));
      finite_ = finite_ && std::isfinite(lanes_[i]);
    }
  }

  // Meaningless unless finite().
  float output(std::int64_t lane) const { return lanes_[static_cast<std::size_t>(lane)]; }
  float lse() const { return empty() ? -std::numeric_limits<float>::infinity() : maximum_ + log32(denominator_); }
  bool finite() const { return finite_; }

 private:
  float lane(std::int64_t lane) const {
    float total = 0.0f;
    for (std::size_t s = 0; s < keep_.size(); ++s) {
      float sum = 0.0f;
      for (std::size_t t = begin(s); t < end(s); ++t) {
        sum = fma32(weights_[t], load_element(values_.at(static_cast<std::int64_t>(t), kv_head_, lane), values_.dtype),
                    sum);
      }
      total = s == 0 && !sunk_ ? sum : fma32(total, keep_[s], sum * join_[s]);
    }
    return empty() ? 0.0f : total / denominator_;
  }

  static std::size_t begin(std::size_t split) { return split * kSplit; }
  std::size_t end(std::size_t split) const { return std::min(begin(split) + kSplit, weights_.size()); }
  bool empty() const { return weights_.empty() && !sunk_; }

  // Logits -> weights exp(l - m) of their split; the factors of every fold; the maximum and denominator of all.
  void weigh(const float* sink) {
    sunk_ = sink != nullptr;
    maximum_ = sunk_ ? *sink : 0.0f;
    denominator_ = 1.0f;
    for (std::size_t s = 0; s < keep_.size(); ++s) {
      float top = weights_[begin(s)];
      for (std::size_t t = begin(s); t < end(s); ++t) top = weights_[t] > top ? weights_[t] : top;
      float sum = 0.0f;
      for (std::size_t t = begin(s); t < end(s); ++t) sum += weights_[t] = exp32(weights_[t] - top);
      if (s == 0 && !sunk_) {
        maximum_ = top;
        denominator_ = sum;
        continue;
      }
      const float joint = top > maximum_ ? top : maximum_;
      keep_[s] = exp32(maximum_ - joint);
      join_[s] = exp32(top - joint);
      denominator_ = fma32(denominator_, keep_[s], sum * join_[s]);
      maximum_ = joint;
    }
  }

  const Geometry& geometry_;
  ConstTensor values_;
  std::int64_t kv_head_ = 0;
  std::vector<float> weights_;  // [visible]
  std::vector<float> keep_;     // [splits] what is left of the earlier ones when split s is folded in
  std::vector<float> join_;     // [splits] what split s counts then
  std::vector<float> lanes_;    // [value_dim]
  float maximum_ = 0.0f;
  float denominator_ = 1.0f;
  bool sunk_ = false;
  bool finite_ = true;
};

Status compute(const Geometry& geometry, DenseHead& dense, const ConstTensor& query, const DenseTokens& tokens,
               std::span<const float> sinks, const Tensor& output, std::span<float> lse) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  std::int64_t overflow = -1;
  for (std::int64_t head = 0; head < geometry.query_heads(); ++head) {
    dense.attend(query, tokens, head, sinks.empty() ? nullptr : &sinks[static_cast<std::size_t>(head)]);
    bool finite = dense.finite();
    for (std::int64_t i = 0; i < geometry.value_dim(); ++i) {
      store_element(output.at(head, i), output.dtype, dense.output(i));
      finite = finite && std::isfinite(load_element(output.at(head, i), output.dtype));
    }
    for (std::int64_t i = 0; !finite && i < geometry.value_dim(); ++i)
      store_element(output.at(head, i), output.dtype, kNaN);
    if (!lse.empty()) lse[static_cast<std::size_t>(head)] = finite ? dense.lse() : kNaN;
    if (!finite && overflow < 0) overflow = head;
  }
  if (overflow < 0) return {};
  return Status::error(Code::kOverflow, "output",
                       formatted("output: head {}: a logit passes f32, or an output its dtype", overflow),
                       {-1, overflow});
}

}  // namespace

Result<std::int64_t> dense_row(const Geometry& geometry, VisibleRun run, std::span<std::int32_t> row) {
  if (Status s = check_ceiling(geometry, run.tokens); !s.ok()) return s;
  if (Status s = geometry.check_run(run); !s.ok()) return s;
  if (static_cast<std::int64_t>(row.size()) < run.tokens) {
    return oracle_fault("row", formatted("{} entries for {} tokens", row.size(), run.tokens));
  }
  for (std::int64_t t = 0; t < run.tokens; ++t)
    row[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(run.anchor + t);
  return run.tokens;
}

Status dense_attend(const Geometry& geometry, std::int64_t visible, ConstTensor query, const DenseTokens& tokens,
                    std::span<const float> sinks, Tensor output, std::span<float> lse) {
  DefaultFloatEnvironment environment;
  if (Status s = check_ceiling(geometry, visible); !s.ok()) return s;
  if (Status s = admit_oracle_tokens(geometry, query, tokens, visible, sinks); !s.ok()) return s;
  if (!is_float(output.dtype)) return oracle_fault("output", formatted("dtype {}", dtype_name(output.dtype)));
  if (Status s = admit_view("output", output, output.dtype, {geometry.query_heads(), geometry.value_dim()}); !s.ok())
    return s;
  if (Status s = admit_oracle_size("lse", lse.size(), geometry.query_heads(), true); !s.ok()) return s;
  try {
    DenseHead dense(geometry, visible);
    return compute(geometry, dense, query, tokens, sinks, output, lse);
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "visible", "visible: the system refused memory");
  }
}

}  // namespace seriatim
