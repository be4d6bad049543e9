// Shared by the tests of this module: one query over a layer laid out by hand, and what the dense oracle says of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "seriatim/attend.hpp"
#include "seriatim/oracle.hpp"
#include "support/bits.hpp"
#include "support/geometries.hpp"
#include "support/plain_layer.hpp"
#include "support/random.hpp"

namespace seriatim::testing {

struct Attended {
  Status status;
  HostTensor output;
  std::vector<float> lse;

  bool untouched() const {
    return !varies(output.bytes()) && output.bytes()[0] == kUntouched &&
           std::all_of(lse.begin(), lse.end(), [](float x) { return x == -77.0f; });
  }
  static constexpr std::byte kUntouched{0xa5};
};

// One head's part of an output.
inline std::span<const std::byte> head_bytes(const HostTensor& output, std::int64_t head) {
  const auto bytes = output.bytes();
  const std::size_t size = bytes.size() / static_cast<std::size_t>(output.view().shape[0]);
  return bytes.subspan(static_cast<std::size_t>(head) * size, size);
}

// Equal outputs and log-sum-exps, bit for bit.
inline ::testing::AssertionResult same_result(const Attended& got, const Attended& want) {
  if (!got.status.ok() || !want.status.ok())
    return ::testing::AssertionFailure() << got.status.message() << want.status.message();
  if (auto same = same_bits(got.output.bytes(), want.output.bytes()); !same) return same << " (output)";
  if (auto same = same_bits(got.lse, want.lse); !same) return same << " (lse)";
  return ::testing::AssertionSuccess();
}

// The random tokens of one sequence and one query over them. Everything may be changed before run().
class AttendCase {
 public:
  AttendCase(const GeometryOptions& options, std::int64_t tokens, std::uint64_t seed, float logit_scale = 2.0f)
      : geometry(*Geometry::admit(options)), output_dtype(geometry.kv_dtype()), row(static_cast<std::size_t>(tokens)) {
    Random random(seed);
    const DType dtype = geometry.kv_dtype();
    query = random_tensor(random, dtype, {geometry.query_heads(), geometry.head_dim()}, logit_scale);
    keys = random_tensor(random, dtype, {tokens, geometry.kv_heads(), geometry.head_dim()});
    if (!geometry.values_alias_keys())
      values = random_tensor(random, dtype, {tokens, geometry.kv_heads(), geometry.value_dim()});
    std::iota(row.begin(), row.end(), 0);
  }

  // Keeps every token of the run whose number gives true.
  template <typename Keep>
  void keep_only(Keep&& keep) {
    std::erase_if(row, [&](std::int32_t position) { return !keep(position - anchor); });
  }
  void move_to(std::int64_t new_anchor) {
    for (std::int32_t& position : row) position += static_cast<std::int32_t>(new_anchor - anchor);
    anchor = new_anchor;
  }

  const HostTensor* own_values() const { return geometry.values_alias_keys() ? nullptr : &values; }
  std::int64_t tokens() const { return keys.view().shape[0]; }
  PlainLayer layer() const { return PlainLayer(geometry, anchor, keys, own_values(), page_tokens, first_slot); }

  Attended run() const {
    const PlainLayer laid_out = layer();
    return run(laid_out.view());
  }
  Attended run(const LayerView& view) const {
    Attended result = blank();
    std::vector<float> scratch(static_cast<std::size_t>(attend_scratch_floats(geometry)));
    result.status =
        attend_row(view, {anchor, tokens()}, query.view(), row, sinks, scratch, result.output.writable(), result.lse);
    return result;
  }
  // The dense oracle over the row's tokens alone, packed together.
  Attended oracle() const {
    HostTensor packed_keys = pack(keys);
    HostTensor packed_values = geometry.values_alias_keys() ? HostTensor() : pack(values);
    const DenseTokens packed{packed_keys.view(), geometry.values_alias_keys() ? ConstTensor{} : packed_values.view()};
    Attended result = blank();
    result.status = dense_attend(geometry, static_cast<std::int64_t>(row.size()), query.view(), packed, sinks,
                                 result.output.writable(), result.lse);
    return result;
  }
  Attended blank() const {
    Attended result;
    result.output = HostTensor(output_dtype, {geometry.query_heads(), geometry.value_dim()});
    std::memset(result.output.writable().data, static_cast<int>(Attended::kUntouched), result.output.bytes().size());
    result.lse.assign(static_cast<std::size_t>(geometry.query_heads()), -77.0f);
    return result;
  }

  const Geometry geometry;
  DType output_dtype;
  HostTensor query;
  HostTensor keys;
  HostTensor values;
  std::vector<std::int32_t> row;
  std::vector<float> sinks;
  std::int64_t anchor = 0;
  std::int64_t page_tokens = 48;
  std::int64_t first_slot = 5;

 private:
  HostTensor pack(const HostTensor& from) const {
    const ConstTensor view = from.view();
    HostTensor packed(from.dtype(), {static_cast<std::int64_t>(row.size()), view.shape[1], view.shape[2]});
    for (std::size_t j = 0; j < row.size(); ++j) {
      std::memcpy(packed.writable().at(static_cast<std::int64_t>(j)), view.at(row[j] - anchor),
                  static_cast<std::size_t>(view.stride_bytes[0]));
    }
    return packed;
  }
};

}  // namespace seriatim::testing
