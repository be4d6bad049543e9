#include "seriatim/attend.hpp"

#include <fmt/format.h>

#include <limits>

#include "attend/attend_admit.hpp"
#include "attend/attend_ref.hpp"
#include "base/admit.hpp"
#include "sequence/admit_queries.hpp"
#include "sequence/first_fault.hpp"
#include "sequence/workspace.hpp"

namespace seriatim {
namespace {

// One batch of queries over one layer; a unit of work is one query and kv head.
class Attender final : public Task {
 public:
  Attender(const LayerView& layer, const AttendQueries& queries, Rows rows, Workspace::Impl& work, Tensor output, Tensor lse)
      : layer_(layer), geometry_(*layer.geometry), queries_(queries), rows_(rows), work_(work), output_(output), lse_(lse) {}

  Status admit() const {
    const std::int64_t count = queries_.queries.shape[0];
    const std::int64_t heads = geometry_.query_heads();
    if (Status s = check_workspace(work_, geometry_); !s.ok()) return s;
    if (Status s = admit_view("queries", queries_.queries, geometry_.kv_dtype(), {-1, heads, geometry_.head_dim()}); !s.ok()) return s;
    if (!is_float(output_.dtype)) {
      return attend_fault(Code::kInvalidArgument, "output", fmt::format("dtype {}", dtype_name(output_.dtype)), {});
    }
    if (Status s = admit_view("output", output_, output_.dtype, {count, heads, geometry_.value_dim()}); !s.ok()) return s;
    if (!lse_.empty()) {
      if (Status s = admit_view("lse", lse_, DType::kF32, {count, heads}); !s.ok()) return s;
      if (lse_.stride_bytes[1] != dtype_bytes(DType::kF32)) {
        return attend_fault(Code::kInvalidArgument, "lse", "heads are not contiguous", {});
      }
    }
    if (Status s = admit_sinks(geometry_, queries_.sinks); !s.ok()) return s;
    if (Status s = admit_positions(layer_, queries_.positions, count, std::numeric_limits<std::int64_t>::max()); !s.ok()) return s;
    return admit_rows(count);
  }

  Status run() {
    const std::int64_t units = queries_.queries.shape[0] * geometry_.kv_heads();
    work_.executor->run(units, *this);
    const std::int64_t first = overflow_.place();
    if (first == FirstFault::kNone) return {};
    const std::int64_t query = first / geometry_.query_heads();
    const std::int64_t head = first % geometry_.query_heads();
    return attend_fault(Code::kOverflow, "output", fmt::format("head {}: a logit or output passes f32", head), {query, head});
  }

  void run(std::int64_t unit, int worker) override {
    const std::int64_t query = unit / geometry_.kv_heads();
    AttendProblem problem;
    problem.layer = &layer_;
    problem.kv_head = unit % geometry_.kv_heads();
    problem.query = row_of(queries_.queries, query);
    problem.row = rows_.row(query);
    problem.sinks = queries_.sinks;
    problem.scratch = work_.workers[static_cast<std::size_t>(worker)].attend.data();
    problem.output = row_of(output_, query);
    if (!lse_.empty()) problem.lse = {reinterpret_cast<float*>(lse_.at(query)), static_cast<std::size_t>(geometry_.query_heads())};
    if (const std::int64_t head = attend_kv_head_ref(problem); head >= 0) overflow_.note(query * geometry_.query_heads() + head);
  }

 private:
  Status admit_rows(std::int64_t count) const {
    if (count > 0 && (rows_.positions == nullptr || rows_.counts == nullptr)) {
      return attend_fault(Code::kInvalidArgument, "rows", "no memory", {});
    }
    for (std::int64_t q = 0; q < count; ++q) {
      if (rows_.counts[q] < 0 || rows_.counts[q] > rows_.stride) {
        return attend_fault(Code::kInvalidArgument, "rows", fmt::format("a count of {} in a stride of {}", rows_.counts[q], rows_.stride), {q, -1});
      }
      const VisibleRun run = visible_run(layer_, queries_.positions[static_cast<std::size_t>(q)]);
      if (Status s = admit_attend(layer_, run, row_of(queries_.queries, q), rows_.row(q), q); !s.ok()) return s;
    }
    return {};
  }

  const LayerView& layer_;
  const Geometry& geometry_;
  const AttendQueries& queries_;
  const Rows rows_;
  Workspace::Impl& work_;
  const Tensor output_;
  const Tensor lse_;
  FirstFault overflow_;
};

}  // namespace

Status attend(const LayerView& layer, const AttendQueries& queries, Rows rows, Workspace& workspace, Tensor output, Tensor lse) {
  Attender attender(layer, queries, rows, workspace.impl(), output, lse);
  if (Status s = attender.admit(); !s.ok()) return s;
  return attender.run();
}

}  // namespace seriatim
