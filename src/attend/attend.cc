#include "seriatim/attend.hpp"

#include "attend/attend_admit.hpp"
#include "attend/attend_kernels.hpp"
#include "base/admit.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"

namespace seriatim {
std::int64_t attend_scratch_floats(const Geometry& geometry) { return attend_block_floats(geometry, 1); }

Status attend_row(const LayerView& layer, VisibleRun run, ConstTensor query, std::span<const std::int32_t> row,
                  std::span<const float> sinks, std::span<float> scratch, Tensor output, std::span<float> lse,
                  std::int64_t row_number) {
  DefaultFloatEnvironment environment;
  const Geometry& geometry = *layer.geometry;
  const auto invalid = [row_number](std::string_view argument, std::string_view what) {
    return attend_fault(Code::kInvalidArgument, argument, what, {row_number, -1});
  };
  if (Status s = admit_attend(layer, run, query, row, row_number); !s.ok()) return s;
  if (Status s = admit_sinks(geometry, sinks); !s.ok()) return s;
  if (static_cast<std::int64_t>(scratch.size()) < attend_scratch_floats(geometry)) {
    return invalid("scratch",
                   formatted("{} floats where {} are needed", scratch.size(), attend_scratch_floats(geometry)));
  }
  if (!is_float(output.dtype)) return invalid("output", formatted("dtype {}", dtype_name(output.dtype)));
  if (Status s = admit_view("output", output, output.dtype, {geometry.query_heads(), geometry.value_dim()}); !s.ok())
    return s;
  if (!lse.empty() && static_cast<std::int64_t>(lse.size()) != geometry.query_heads()) {
    return invalid("lse", formatted("{} entries for {} heads", lse.size(), geometry.query_heads()));
  }
  BlockQuery one{query, row, output, lse, -1};
  std::int64_t overflow = -1;
  for (std::int64_t kv_head = 0; kv_head < geometry.kv_heads(); ++kv_head) {
    attend_kernels(default_kernels()).attend_block({&layer, kv_head, {&one, 1}, sinks, scratch.data()});
    if (overflow < 0) overflow = one.overflow;
  }
  if (overflow >= 0) {
    return attend_fault(Code::kOverflow, "output",
                        formatted("head {}: a logit passes f32, or an output its dtype", overflow),
                        {row_number, overflow});
  }
  return {};
}

}  // namespace seriatim
