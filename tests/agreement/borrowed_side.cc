#include "agreement/borrowed_side.hpp"

#include <cstring>

namespace seriatim::agreement {
namespace {

constexpr std::int64_t kPageTokens = 16;

std::int64_t pages_of(std::int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace

BorrowedSide::BorrowedSide(const Problem& problem, Memory memory) : borrowed_(problem.geometry) {
  const bool aliased = problem.geometry.values_alias_keys();
  tensors_.keys = problem.keys.view();
  if (!aliased) tensors_.values = problem.values.view();
  if (memory == Memory::kArray) return;
  tensors_.keys = scatter(tensors_.keys, key_pool_);
  if (!aliased) tensors_.values = scatter(tensors_.values, value_pool_);
  const std::int64_t pages = pages_of(problem.tokens());
  for (std::int64_t page = 0; page < pages; ++page)
    block_table_.push_back(static_cast<std::int32_t>(pages - page));  // page 0 of the pool is nobody's
  tensors_.block_table = dense_view(static_cast<const void*>(block_table_.data()), DType::kI32, {pages});
}

ConstTensor BorrowedSide::scatter(const ConstTensor& from, std::vector<std::byte>& pool) const {
  const std::int64_t tokens = from.shape[0];
  const std::int64_t heads = from.shape[1];
  const std::int64_t row = row_bytes(from.dtype, from.shape[2]);
  const std::int64_t pages = pages_of(tokens);
  pool.assign(static_cast<std::size_t>((pages + 1) * heads * kPageTokens * row), std::byte{0xFF});
  Tensor to;
  to.data = pool.data();
  to.dtype = from.dtype;
  to.rank = 4;
  to.shape = {pages + 1, kPageTokens, heads, from.shape[2]};
  to.stride_bytes = {heads * kPageTokens * row, row, kPageTokens * row, dtype_bytes(from.dtype)};
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t head = 0; head < heads; ++head) {
      std::memcpy(to.at(pages - token / kPageTokens, token % kPageTokens, head), from.at(token, head),
                  static_cast<std::size_t>(row));
    }
  }
  return seriatim::as_const(to);
}

Result<LayerView> BorrowedSide::view(const LayerView& layer) {
  tensors_.index = &layer;
  if (Status s = borrowed_.bind(layer.run, tensors_); !s.ok()) return s;
  return borrowed_.view();
}

}  // namespace seriatim::agreement
