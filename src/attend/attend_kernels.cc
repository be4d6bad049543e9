#include "attend/attend_kernels.hpp"

#include "attend/attend_ref.hpp"

namespace seriatim {
namespace {

// One query after the other: the definition.
void attend_block_ref(const AttendBlock& block) {
  for (BlockQuery& one : block.queries) {
    one.overflow = attend_kv_head_ref(
        {block.layer, block.kv_head, one.query, one.row, block.sinks, block.scratch, one.output, one.lse, one.biases});
  }
}

AttendProblem problem_of(const AttendBlock& block) {
  const BlockQuery& one = block.queries[0];
  return {block.layer, block.kv_head, one.query, one.row, block.sinks, block.scratch, one.output, one.lse, one.biases};
}

void split_partials_of_ref(const AttendBlock& block, std::int64_t first, std::int64_t count, float*, float* partials) {
  const AttendProblem problem = problem_of(block);
  for (std::int64_t s = 0; s < count; ++s)
    split_partial_ref(problem, first + s, partials + s * attend_partial_floats(*block.layer->geometry));
}

void fold_partials_of_ref(const AttendBlock& block, const float* partials, std::int64_t count, float*) {
  if (block.state != nullptr) return fold_state_ref(problem_of(block), partials, count, block.state);
  block.queries[0].overflow = fold_partials_ref(problem_of(block), partials, count);
}

}  // namespace

const AttendKernels& attend_reference() {
  static constexpr AttendKernels kTable{.name = "reference",
                                        .attend_block = attend_block_ref,
                                        .split_partials = split_partials_of_ref,
                                        .fold_partials = fold_partials_of_ref};
  return kTable;
}

std::int64_t attend_partial_floats(const Geometry& geometry) {
  return geometry.query_heads() * (2 + geometry.value_dim());
}

std::int64_t attend_ref_floats(const Geometry& geometry) {
  return kSplitEntries * (geometry.head_dim() + geometry.value_dim() + 1) + 2 * geometry.value_dim();
}

}  // namespace seriatim
