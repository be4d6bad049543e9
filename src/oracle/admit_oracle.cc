#include "oracle/admit_oracle.hpp"

#include "base/format.hpp"

namespace seriatim {
namespace {

Status admit_tokens(std::string_view name, const ConstTensor& tensor, const Geometry& geometry, std::int64_t dim,
                    std::int64_t least) {
  if (Status s = admit_view(name, tensor, geometry.kv_dtype(), {-1, geometry.kv_heads(), dim}); !s.ok()) return s;
  if (tensor.shape[0] < least)
    return oracle_fault(name, formatted("{} tokens where {} are visible", tensor.shape[0], least));
  ConstTensor visible = tensor;
  visible.shape[0] = least;
  return admit_finite(name, visible);
}

}  // namespace

Status oracle_fault(std::string_view argument, std::string_view what) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what));
}

Status admit_oracle_size(std::string_view argument, std::size_t size, std::int64_t wanted, bool may_be_absent) {
  if (static_cast<std::int64_t>(size) == wanted || (may_be_absent && size == 0)) return {};
  return oracle_fault(argument, formatted("{} entries where {} are needed", size, wanted));
}

Status admit_oracle_tokens(const Geometry& geometry, const ConstTensor& query, const DenseTokens& tokens,
                           std::int64_t least, std::span<const float> sinks) {
  if (Status s = admit_view("query", query, geometry.kv_dtype(), {geometry.query_heads(), geometry.head_dim()});
      !s.ok())
    return s;
  if (Status s = admit_finite("query", query); !s.ok()) return s;
  if (Status s = admit_tokens("keys", tokens.keys, geometry, geometry.head_dim(), least); !s.ok()) return s;
  if (!geometry.values_alias_keys()) {
    if (Status s = admit_tokens("values", tokens.values, geometry, geometry.value_dim(), least); !s.ok()) return s;
  } else if (!tokens.values.empty()) {
    return oracle_fault("values", "given although they alias the keys");
  }
  if (Status s = admit_oracle_size("sinks", sinks.size(), geometry.query_heads(), true); !s.ok()) return s;
  return admit_finite("sinks", dense_view(sinks.data(), DType::kF32, {static_cast<std::int64_t>(sinks.size())}));
}

}  // namespace seriatim
